"""The environment contract of the trainer, and the adapters that fulfil it, one per backend.

Same-step semantics: when an episode ends, `step` already returns the first observation of the next one, and the true
last observation stands in `final_observation`. The trainer never asks which backend it talks to.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

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

    def finish(self, index: int) -> Episode:
        """Return the episode that ended there; the next one starts from nothing."""
        episode = Episode(self.indices[index], float(self.total_reward[index]), int(self.length[index]))
        self.clear(index)
        return episode

    def clear(self, index: int | slice = slice(None)) -> None:
        self.total_reward[index], self.length[index] = 0.0, 0

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
    restarts: int = 0  # environments that raised in this step and were made anew, where that is asked for


class VecEnv(Protocol):
    """N environments stepped together: all that the trainer asks of a backend.

    A backend derives from it, sets `num_envs`, `observation_space`, `action_space` and `layout`, counts its `steps`,
    keeps the newest `observation`, and has `reset` and `step`; it replaces of the rest what it can do better. By
    default there are no masks, one thread, nothing rebuilt, and a new episode wherever a run resumes.
    """

    num_envs: int
    observation_space: gym.Space  # of a single environment
    action_space: gym.Space  # of a single environment
    layout: ObservationLayout  # how observations are packed into arrays
    observation: np.ndarray  # the newest (N, …), packed, before any normalisation
    action_mask: np.ndarray | None = None  # (N, P) bool: the actions allowed next; None if there are no masks
    steps: int = 0  # of each environment, since the run began
    episodes: EpisodeStatistics = EpisodeStatistics(())  # the running episodes, where this process counts them
    stepping_threads: int = 1  # that step environments within this process
    can_use_threads: bool = False  # whether more threads of this process could step more environments at once
    rebuild_after_steps: int | None = None  # of each environment: they are made anew then, as none can be restored
    has_timeout: bool = False  # whether it names by itself an environment that hangs; for others a watchdog does

    @property
    def progress(self) -> Sequence[Any]:
        """The environment and the step under way, for whoever waits for them."""
        return "of the pool", self.steps

    @abstractmethod
    def reset(self) -> np.ndarray:
        """Start the first episode everywhere and return its observations (N, …)."""

    @abstractmethod
    def step(self, action: np.ndarray) -> Step:
        """Step every environment with its row of actions (N, …), as the environment takes them."""

    def state(self) -> dict[str, object]:
        """Return what `restore` needs to bring the environments back to where they stand, in arrays and JSON values."""
        return {"steps": self.steps}

    def restore(self, state: dict[str, Any]) -> dict[int, str]:
        """Go back there after a reset; where that cannot be, a new episode starts: return why, by environment."""
        self.steps = state["steps"]
        self.observation = self.reset()
        return {index: "its backend cannot restore environments" for index in range(self.num_envs)}

    def rebuild(self) -> np.ndarray:
        """Make the environments anew, where `rebuild_after_steps` says so, and start an episode everywhere."""
        return self.reset()

    def close(self) -> None:
        """End every process, thread and environment; may be called twice."""
        return
