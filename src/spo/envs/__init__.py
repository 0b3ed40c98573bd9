"""The environment contract of the trainer, and the adapters that fulfil it, one per backend.

Same-step semantics: when an episode ends, `step` already returns the first observation of the next one, and the true
last observation stands in `final_observation`. The trainer never asks which backend it talks to.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import gymnasium as gym
import numpy as np

from spo.spaces import ObservationLayout


class Episode(NamedTuple):
    """One finished episode, with the rewards as the environment gave them."""

    env: int
    total_reward: float
    length: int


class EpisodeStatistics:
    """Sums rewards and counts steps of the running episodes."""

    def __init__(self, indices: Iterable[int]):
        self.indices = list(indices)
        self.total_reward = np.zeros(len(self.indices))
        self.length = np.zeros(len(self.indices), dtype=int)

    def add(self, reward: np.ndarray) -> None:
        self.total_reward += reward
        self.length += 1

    def finish(self, position: int) -> Episode:
        """The episode that ended there; the next one starts from nothing."""
        episode = Episode(self.indices[position], float(self.total_reward[position]), int(self.length[position]))
        self.clear(position)
        return episode

    def clear(self, position: int | slice = slice(None)) -> None:
        self.total_reward[position], self.length[position] = 0.0, 0

    def state(self) -> dict[str, np.ndarray]:
        return {"total_reward": self.total_reward.copy(), "length": self.length.copy()}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        self.total_reward[:], self.length[:] = state["total_reward"], state["length"]


class Step(NamedTuple):
    """What one step of all N environments returned."""

    observation: np.ndarray  # (N, …) what to act on next
    reward: np.ndarray  # (N,)
    terminated: np.ndarray  # (N,) bool: the task ended, nothing follows
    truncated: np.ndarray  # (N,) bool: cut by a limit, the task would have gone on
    final_observation: np.ndarray | None  # (N, …) before any reset; None if no episode ended
    episodes: list[Episode]  # those that ended in this step


class VecEnv(Protocol):
    """N environments stepped together."""

    count: int
    observation_space: gym.Space  # of a single environment
    action_space: gym.Space
    layout: ObservationLayout  # how observations are packed into arrays
    mask: np.ndarray | None  # (N, P) bool: the actions allowed next; None if the environments have no masks
    rebuild_after_steps: int | None  # of each environment: they are made anew then, because they cannot be restored

    def reset(self) -> np.ndarray:
        """Starts the first episode everywhere and returns its observations (N, …)."""

    def step(self, action: np.ndarray) -> Step:
        """Steps every environment with its row of actions (N, …)."""

    def state(self) -> dict[str, object]:
        """What `restore` needs to bring the environments back to where they stand, in arrays and JSON values."""

    def restore(self, state: dict) -> dict[int, str]:
        """Goes back there after a reset; where that cannot be, a new episode starts: why, by environment."""

    def seam(self) -> np.ndarray:
        """Makes the environments anew, where `rebuild_after_steps` says so, and starts an episode everywhere."""

    def close(self) -> None: ...
