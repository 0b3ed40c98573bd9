"""Data collection: rollouts of (T, N) arrays, and their advantages.

Axes: T steps of the horizon, N environments, B = T·N samples. Whatever speaks about time is built in (T, N).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from spo.envs import Step, VecEnv
from spo.errors import DivergenceError, EnvError
from spo.models.actors import Actor
from spo.models.distributions import Distribution
from spo.models.normalization import ObservationNormalizer, RewardNormalizer
from spo.runtime.signals import raise_if_interrupted
from spo.runtime.timing import Timer


class EpisodeRow(NamedTuple):
    """A row of episodes.jsonl: one finished episode and the step of the run at which it ended."""

    env: int
    total_reward: float
    length: int
    env_steps: int

    def as_row(self) -> dict[str, float]:
        return {"env": self.env, "return": self.total_reward, "length": self.length, "env_steps": self.env_steps}


@dataclass(frozen=True)
class Rollout:
    """What the old policy did and saw, all (T, N, …)."""

    observation: Tensor  # (T, N, D) normalised
    action: Tensor  # (T, N, …) as sampled, not as clipped for the environment
    dist_params: Tensor  # (T, N, P) of the old policy's distributions
    reward: Tensor  # (T, N) normalised
    value: Tensor  # (T, N)
    next_value: Tensor  # (T, N) of the true next observation; meaningless where terminated
    terminated: Tensor  # (T, N) bool: no value follows
    done: Tensor  # (T, N) bool: the episode ended here
    episodes: list[EpisodeRow]
    mask: Tensor | None = None  # (T, N, P) bool: the actions that were allowed; None if all always are


@dataclass
class PartialRollout:
    """A rollout under way."""

    noise: np.ndarray  # (T, N, …)
    buffers: dict[str, np.ndarray]  # each (T, N, …)
    episodes: list[EpisodeRow]
    final_observations: list[tuple[int, int, np.ndarray]]
    has_values: bool = False  # whether acting gave values too; otherwise they are computed at the end, all at once


LARGEST = float(np.finfo(np.float32).max)
"""What the network's numbers can hold."""


def gae(
    reward: Tensor, value: Tensor, next_value: Tensor, terminated: Tensor, done: Tensor, gamma: float, lam: float
) -> Tensor:
    """Generalised advantage estimation (Schulman et al., 2016), (T, N).

    Two masks: `terminated` decides whether the next value counts, `done` whether the recursion crosses.
    """
    delta = reward + gamma * next_value * ~terminated - value
    carry = gamma * lam * (~done).to(delta.dtype)
    advantage = delta.clone()
    rows, carries = advantage.numpy(), carry.numpy()  # a row's handful of numbers costs less in NumPy than in torch
    for t in reversed(range(len(rows) - 1)):
        rows[t] += carries[t] * rows[t + 1]
    return advantage


class Collector:
    """Steps the environments with the current policy and remembers where they stand between rollouts."""

    def __init__(
        self,
        envs: VecEnv,
        actor: Actor,
        distribution: Distribution,
        observation_normalizer: ObservationNormalizer,
        reward_normalizer: RewardNormalizer,
        generator: np.random.Generator,
        horizon: int,
        truncation: str = "bootstrap",
        count_final_observations: bool = False,
        clip_reward_sign: bool = False,
        timer: Timer | None = None,
    ):
        self.envs, self.actor, self.distribution = envs, actor, distribution
        self.observation_normalizer, self.reward_normalizer = observation_normalizer, reward_normalizer
        self.generator, self.horizon = generator, horizon
        self.truncation, self.count_final_observations = truncation, count_final_observations
        self.clip_reward_sign, self.timer = clip_reward_sign, timer or Timer()
        self.env_steps = 0
        self.env_restarts = 0  # since the start, or since the run was resumed
        self.under_way: PartialRollout | None = None
        self.observation = self._normalize(self._check_start(envs.reset()))
        self.mask = envs.action_mask

    def make_first_step(self) -> None:
        """Step every environment once, so that its faults come now; the next rollout begins with this step."""
        self.under_way = self._begin()
        self._step(self.under_way, 0)
        self._check_rollout("reward", self.under_way.buffers["reward"][:1], 1)

    def collect(self) -> Rollout:
        """The next `horizon` steps of every environment."""
        rollout, first = (self.under_way, 1) if self.under_way else (self._begin(), 0)
        self.under_way = None
        for t in range(first, self.horizon):
            raise_if_interrupted()
            self._step(rollout, t)
        if not rollout.has_values:
            rollout.buffers["value"][:] = self._values(rollout.buffers["observation"])
        self._check_rollout("value", rollout.buffers["value"], 0)
        return self._make_rollout(rollout)

    def _begin(self) -> PartialRollout:
        noise = self.distribution.noise(self.generator, (self.horizon, self.envs.num_envs))
        self.actor.sync_weights()
        return PartialRollout(noise, self._empty_buffers(), [], [])

    def _step(self, rollout: PartialRollout, t: int) -> None:
        """Act in every environment, and store what was seen, done and earned."""
        buffers = rollout.buffers
        with self.timer("acting"):
            dist_params, value = self.actor(self.observation)
        self._check("output of the policy", dist_params)
        if self.mask is not None:
            dist_params, buffers["mask"][t] = self.distribution.mask(dist_params, self.mask), self.mask
        action = self.distribution.sample(dist_params, rollout.noise[t])
        self._check("action", action)
        buffers["observation"][t], buffers["action"][t] = self.observation, action
        buffers["dist_params"][t] = dist_params
        if value is not None:
            buffers["value"][t], rollout.has_values = value, True
        with self.timer("stepping"):
            step = self.envs.step(self.distribution.to_env(action))
        self.env_steps += self.envs.num_envs
        self.env_restarts += step.restarts
        self._check_finite(step)
        rollout.episodes += [EpisodeRow(*episode, self.env_steps) for episode in step.episodes]
        buffers["reward"][t], buffers["terminated"][t] = step.reward, step.terminated
        buffers["truncated"][t] = step.truncated
        if step.final_observation is not None:
            rollout.final_observations += self._truncated_observations(t, step, step.final_observation)
        self.observation, self.mask = self._normalize(step.observation), self.envs.action_mask

    def rebuild_envs(self) -> int:
        """Make the environments anew and start over with them; return how many running episodes that cut."""
        cut = int(np.count_nonzero(self.envs.episodes.length))
        self.observation, self.mask = self._normalize(self._check_start(self.envs.rebuild())), self.envs.action_mask
        return cut

    def state(self) -> dict[str, object]:
        return {
            "env_steps": self.env_steps,
            "generator": self.generator.bit_generator.state,
            "observation": self.observation.copy(),
            "observation_moments": self.observation_normalizer.moments.state(),
            "reward_normalizer": self.reward_normalizer.state(),
            "envs": self.envs.state(),
        }

    def restore(self, state: dict) -> dict[int, str]:
        """Go on from there; return why not, by environment, where a new episode had to start."""
        self.under_way = None
        failures = self.envs.restore(state["envs"])
        self.env_steps, self.mask = state["env_steps"], self.envs.action_mask
        self.generator.bit_generator.state = state["generator"]
        self.observation_normalizer.moments.restore(state["observation_moments"])
        self.reward_normalizer.restore(state["reward_normalizer"])
        self.observation = state["observation"].copy()
        if failures:
            fresh = np.isin(np.arange(self.envs.num_envs), list(failures))
            self.observation_normalizer.update(self.envs.observation, fresh)
            self.observation[fresh] = self.observation_normalizer(self.envs.observation)[fresh]
        return failures

    def _make_rollout(self, rollout: PartialRollout) -> Rollout:
        buffers = rollout.buffers
        buffers["done"] = buffers["terminated"] | buffers.pop("truncated")
        buffers["reward"] = self._normalize_reward(buffers["reward"], buffers["terminated"], buffers["done"])
        if self.truncation == "terminal":
            buffers["terminated"][:] = buffers["done"]
        next_value = np.concatenate([buffers["value"][1:], self._value(self.observation)[None]])
        if rollout.final_observations:
            steps, envs, observations = zip(*rollout.final_observations)
            next_value[list(steps), list(envs)] = self._value(np.stack(observations))
        tensors = {name: torch.from_numpy(array) for name, array in buffers.items()}
        return Rollout(**tensors, next_value=torch.from_numpy(next_value), episodes=rollout.episodes)

    def _normalize_reward(self, reward: np.ndarray, terminated: np.ndarray, done: np.ndarray) -> np.ndarray:
        self._check_rollout("reward", reward, 1)
        reward = np.sign(reward) if self.clip_reward_sign else reward
        with self.timer("normalising"):
            return self.reward_normalizer(reward, terminated, done).astype(np.float32)

    def _truncated_observations(self, t: int, step: Step, final: np.ndarray) -> list[tuple[int, int, np.ndarray]]:
        """(t, n, last observation) of the episodes that a limit cut; their value goes on."""
        if self.count_final_observations:
            self.observation_normalizer.update(final, step.terminated | step.truncated)
        if self.truncation == "terminal":
            return []
        cut = np.flatnonzero(step.truncated & ~step.terminated).tolist()
        normalized = self.observation_normalizer(final) if cut else final
        return [(t, n, normalized[n]) for n in cut]

    def _normalize(self, observation: np.ndarray) -> np.ndarray:
        with self.timer("normalising"):
            self.observation_normalizer.update(observation)
            return self.observation_normalizer(observation)

    def _empty_buffers(self) -> dict[str, np.ndarray]:
        leading = (self.horizon, self.envs.num_envs)
        float32, params_size = np.float32, self.distribution.params_size
        masks = {} if self.mask is None else {"mask": np.empty((*leading, params_size), bool)}
        return masks | {
            "observation": np.empty((*leading, *self.observation.shape[1:]), self.observation.dtype),
            "action": np.empty((*leading, *self.distribution.action_shape), self.distribution.action_dtype),
            "dist_params": np.empty((*leading, params_size), float32),
            "reward": np.empty(leading),
            "value": np.empty(leading, float32),
            "terminated": np.empty(leading, bool),
            "truncated": np.empty(leading, bool),
        }

    def _check_start(self, observation: np.ndarray) -> np.ndarray:
        self._check("observation", observation)
        return observation

    def _values(self, observation: np.ndarray) -> np.ndarray:
        """The value of every observation (T, N, …) of a rollout."""
        leading = observation.shape[:2]
        return self._value(observation.reshape(-1, *observation.shape[2:])).reshape(leading)

    def _value(self, observation: np.ndarray) -> np.ndarray:
        with self.timer("acting"):
            return self.actor.value(observation)

    def _check_rollout(self, what: str, array: np.ndarray, steps_before: int) -> None:
        """Raise if a rollout's array (T, N) has a non-finite number; its first row is of step `steps_before`."""
        if (unusable := find_unusable(array)).any():
            t, env = np.argwhere(unusable)[0]
            step = self.env_steps // self.envs.num_envs - len(array) + steps_before + t
            raise _unusable(what, env, array[t, env], step)

    def _check_finite(self, step: Step) -> None:
        self._check("observation", step.observation)
        if step.final_observation is not None:
            self._check("final observation", step.final_observation)

    def _check(self, what: str, array: np.ndarray) -> None:
        """A sum is finite and small only if its parts are, and costs a fraction of looking at every part."""
        if array.dtype.kind != "f" or abs(np.add.reduce(array, axis=None)) <= LARGEST:
            return
        if (unusable := find_unusable(array)).any():
            env = int(np.flatnonzero(unusable.reshape(len(array), -1).any(axis=1))[0])
            worst = array[env][unusable[env]].flat[0] if array.ndim > 1 else array[env]
            raise _unusable(what, env, worst, self.env_steps // self.envs.num_envs)


def find_unusable(array: np.ndarray) -> np.ndarray:
    """Where an array has numbers that are not finite, or would not be for the network."""
    return ~(np.abs(array) <= LARGEST)  # which NaN is not


def _unusable(what: str, env: int, number: float, step: int) -> DivergenceError | EnvError:
    """The error for a number that cannot be learned from: the policy's own, or one that the environment returned."""
    kind = DivergenceError if what in ("output of the policy", "action", "value") else EnvError
    problem = "larger than a 32-bit float holds" if math.isfinite(number) else "not finite"
    return kind(f"the {what} of environment {env} is {problem} ({number}) at its step {step}")
