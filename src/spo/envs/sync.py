"""Gymnasium environments stepped one after the other in this process: the reference backend."""

import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import gymnasium as gym
import numpy as np

from spo.envs import Episode, EpisodeStatistics, Step, VecEnv
from spo.envs.gym_vector import GymVectorAdapter
from spo.envs.make import EnvMaker, MakeEnv, check_env
from spo.envs.mujoco_tasks import make_batched_task
from spo.errors import ConfigError, EnvError, place_of, printable
from spo.runtime.seeding import episode_seed
from spo.spaces import ObservationLayout, check_maskable, count_actions, join_mask, leaves_a_choice

if TYPE_CHECKING:
    from spo.config.config import Config

MASKED_ALWAYS = "accepted is one from every environment, in every reset and step, or none at all"
MOST_WARNINGS = 3
"""Of environments that raised and were made anew; further ones are counted in silence."""


class SyncVecEnv(VecEnv):
    """Copies of an environment; every episode is seeded from (seed, environment, episode).

    An episode is brought back by its seed and the actions executed since: the newest `replay_limit` are remembered.
    """

    progress: list[int] = []  # environment and step under way, in memory that others may look at

    def __init__(
        self,
        make_env: MakeEnv,
        indices: Iterable[int],
        seed: int,
        encoder: str = "auto",
        progress: list[int] | None = None,
        first: gym.Env | None = None,
        replay_limit: int = 100_000,
        threads: int = 1,
    ):
        self.make_env, self.restarts = make_env, 0  # since the last step ended
        self.warnings = 0
        self.indices, self.seed = list(indices), seed  # a part of all environments may live elsewhere
        self.num_envs = len(self.indices)
        self.envs = [check_env(first or make_env())] + [make_env() for _ in self.indices[1:]]
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space
        self.task = make_batched_task(self.envs, threads)
        self.stepping_threads = self.task.simulations.threads if self.task else 1
        self.can_use_threads = self.task is not None
        self.layout = ObservationLayout(self.observation_space, encoder)
        self.kind: str | None = None  # of the first observation's numbers: later ones must not change it
        self.progress = [self.indices[0], 0] if progress is None else progress
        self.episode = np.full(self.num_envs, -1)  # the index of each environment's running episode
        self.episodes = EpisodeStatistics(self.indices)
        self.actions: deque[np.ndarray] = deque(maxlen=replay_limit)  # each (N, …), as executed
        self.life_lost = np.zeros(self.num_envs, dtype=bool)  # a life was lost, and the game is not over

    def reset(self) -> np.ndarray:
        """Start the first episode everywhere; only now is it known whether there are action masks."""
        started = [self._start_episode(index) for index in range(self.num_envs)]
        masks = [mask_of(env, info) for env, (_, info) in zip(self.envs, started)]
        if any(mask is not None for mask in masks):
            self.action_mask = np.stack([self._check_mask(index, mask) for index, mask in enumerate(masks)])
        self.observation = np.stack([observation for observation, _ in started])
        return self.observation

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        self.progress[1] = self.steps
        self.actions.append(action.copy())
        final, reward, terminated, truncated = (self._together if self.task else self._one_by_one)(action)
        self.episodes.add(reward)
        self.observation, done = final, terminated | truncated
        restarts, self.restarts = self.restarts, 0
        if not done.any():
            return Step(final, reward, terminated, truncated, None, [])
        self.observation, episodes = self._restart(final, done)
        self._forget_ended_episodes()
        return Step(self.observation, reward, terminated, truncated, final, episodes, restarts)

    def _together(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        assert self.task is not None
        try:
            observation, reward, terminated = self.task.step(action)
        except Exception as error:
            self._fail(0, f"or one after it raised {type(error).__name__}: {error}", error)
        return observation, reward, terminated, self.episodes.length + 1 >= self.envs[0].spec.max_episode_steps

    def _one_by_one(self, action: np.ndarray) -> tuple[np.ndarray, ...]:
        observations, reward = [], np.empty(self.num_envs)
        terminated, truncated = np.empty(self.num_envs, dtype=bool), np.empty(self.num_envs, dtype=bool)
        for index, env in enumerate(self.envs):
            self.progress[0] = self.indices[index]
            try:
                observation, value, terminated[index], truncated[index], info = env.step(action[index])
            except (Exception, SystemExit) as error:
                if not self._may_restart(index):
                    self._fail(index, f"raised {type(error).__name__}: {error}{hint_at_old_api(error)}", error)
                reward[index], terminated[index], truncated[index] = 0.0, False, True
                observations.append(self._replace(index, error))
                continue
            try:
                reward[index] = value
            except (TypeError, ValueError) as error:
                self._fail(index, f"returned the reward {value!r}; accepted is a number", error)
            self._check_info(index, info)
            self.life_lost[index] = info.get("life_lost", False)
            observations.append(self._pack(index, observation))
            if not (terminated[index] or truncated[index]):  # the next action is that of another episode
                self._remember_mask(index, info)
        # As np.stack would, at a fraction of its cost.
        observation = np.concatenate(observations).reshape(self.num_envs, *self.layout.shape)
        return observation, reward, terminated, truncated

    def _may_restart(self, index: int) -> bool:
        """Tell whether to go on after an error: not if an episode fails in its first step, which the next would too."""
        return getattr(self.make_env, "on_error", "stop") == "restart" and self.episodes.length[index] > 0

    def _replace(self, index: int, error: BaseException) -> np.ndarray:
        """Make an environment that raised anew, and return the last that was seen of it: a limit cut its episode."""
        self.restarts += 1
        self.warnings += 1
        message = f"environment {self.indices[index]} raised {type(error).__name__}: {error} (its step {self.steps})"
        if self.warnings <= MOST_WARNINGS:
            last = "; from here on they are only counted" if self.warnings == MOST_WARNINGS else ""
            text = f"warning: {message}{place_of(error)}; its episode is cut, and it is made anew{last}"
            print(printable(text), file=sys.stderr, flush=True)
        with suppress(Exception):
            self.envs[index].close()
        self.envs[index], self.life_lost[index] = self.make_env(), False
        return self.observation[index]

    def _forget_ended_episodes(self) -> None:
        longest = self.episodes.length.max()
        while len(self.actions) > longest:
            self.actions.popleft()

    def state(self) -> dict[str, object]:
        shape = self.action_space.shape
        return {
            "steps": self.steps,
            "episode": self.episode.copy(),
            "totals": self.episodes.state(),
            "observation": self.observation.copy(),
            "actions": np.stack(self.actions) if self.actions else np.empty((0, self.num_envs, *shape)),
        }

    def restore(self, state: dict) -> dict[int, str]:
        """Replay the running episodes, and believe a replay only if it ends where the original stood."""
        self.steps = self.progress[1] = state["steps"]
        self.episode[:] = state["episode"]
        self.episodes.restore(state["totals"])
        self.actions.clear()
        self.actions.extend(state["actions"])
        self.observation = state["observation"].copy()
        failures = {index: self._try_replay(index) for index in range(self.num_envs)}
        for index in (index for index, why in failures.items() if why):
            self.episodes.clear(index)
            self.life_lost[index] = False
            self.observation[index], info = self._start_episode(index)
            self._remember_mask(index, info)
        return {self.indices[index]: why for index, why in failures.items() if why}

    def _try_replay(self, index: int) -> str | None:
        """Bring an environment back to where it stood; return the reason if it does not get there."""
        length = int(self.episodes.length[index])
        if length > len(self.actions):
            return f"its episode of {length} steps is longer than --replay-limit {self.actions.maxlen}"
        actions = list(self.actions)[len(self.actions) - length :]
        try:
            observation, total, info = self._replay(index, [action[index] for action in actions])
        except Exception as error:
            return f"its replay failed: {error}"
        if total != self.episodes.total_reward[index] or not np.array_equal(observation, self.observation[index]):
            return "its replay ended elsewhere, so it depends on more than its seed and its actions"
        self._remember_mask(index, info)
        return None

    def _replay(self, index: int, actions: list[np.ndarray]) -> tuple[np.ndarray, float, dict]:
        self.life_lost[index] = False
        self.episode[index] -= 1  # which starting the episode adds again
        observation, info = self._start_episode(index)
        total = 0.0
        for action in actions:
            seen, reward, terminated, truncated, info = self.envs[index].step(action)
            observation, total = self._pack(index, seen), total + float(reward)
            self.life_lost[index] = info.get("life_lost", False)
            if terminated or truncated:
                if not self.life_lost[index]:
                    raise EnvError("it ended where the original went on")
                observation, info = self._start_episode(index)
        self._tell_task(index)
        return observation, total, info

    def _tell_task(self, index: int) -> None:
        """What steps all environments together has to know where this one stands now."""
        if self.task:
            self.task.simulations.sync_from_env(index)

    def _remember_mask(self, index: int, info: dict) -> None:
        if self.action_mask is not None:
            self.action_mask[index] = self._check_mask(index, mask_of(self.envs[index], info))
        elif info.get("action_mask") is not None:
            self._fail(index, f"gave an action mask in step, and none in reset; {MASKED_ALWAYS}")

    def close(self) -> None:
        if self.task:
            self.task.simulations.close()
        for env in self.envs:
            env.close()

    def _restart(self, final: np.ndarray, done: np.ndarray) -> tuple[np.ndarray, list[Episode]]:
        """The observations after resetting where an episode is done, and the episodes that ended."""
        observation, episodes = final.copy(), []
        for index in np.flatnonzero(done).tolist():
            if not self.life_lost[index]:
                episodes.append(self.episodes.finish(index))
            observation[index], info = self._start_episode(index)
            self._remember_mask(index, info)
        return observation, episodes

    def _start_episode(self, index: int) -> tuple[np.ndarray, dict]:
        if not self.life_lost[index]:
            self.episode[index] += 1
        seed = episode_seed(self.seed, self.indices[index], int(self.episode[index]))
        self.progress[0] = self.indices[index]
        try:
            observation, info = self.envs[index].reset(seed=seed)
        except (Exception, SystemExit) as error:
            self._fail(index, f"raised {type(error).__name__} in reset: {error}{hint_at_old_api(error)}", error)
        self._tell_task(index)
        self._check_info(index, info)
        return self._pack(index, observation), info

    def _check_info(self, index: int, info: object) -> None:
        if not isinstance(info, dict):
            self._fail(index, f"returned the info {info!r}; accepted is a dict")

    def _pack(self, index: int, observation: object) -> np.ndarray:
        """The observation as one array of the layout's shape and of the first observation's kind of numbers."""
        try:
            array = np.asarray(self.layout.pack(observation))
        except Exception as error:
            self._fail(index, f"returned an observation that does not fit {self.observation_space}: {error}", error)
        if array.shape != self.layout.shape:
            self._fail(index, f"returned an observation of shape {array.shape}, its space says {self.layout.shape}")
        if array.dtype.kind == "f" and self.layout.dtype == np.uint8:
            self._fail(index, f"returned an image of type {array.dtype}, its space says {self.observation_space.dtype}")
        self.kind = self.kind or array.dtype.kind
        if array.dtype.kind != self.kind:
            self._fail(index, f"returned an observation of type {array.dtype}, unlike its first one")
        return array

    def _check_mask(self, index: int, mask: np.ndarray | None) -> np.ndarray:
        if mask is None:
            self._fail(index, f"gave no action mask; {MASKED_ALWAYS}")
        if len(mask) != (actions := count_actions(self.action_space)):
            self._fail(index, f"gave an action mask of {len(mask)} flags; accepted are {actions}, one for each action")
        if not leaves_a_choice(self.action_space, mask):
            self._fail(index, f"gave the action mask {mask}, which leaves no action")
        return mask

    def _fail(self, index: int, what: str, cause: BaseException | None = None) -> NoReturn:
        raise EnvError(f"environment {self.indices[index]} {what} (its step {self.steps})") from cause


NO_EVALUATION = "what was given makes a vector environment, and evaluations play in a single one"
MakeShare = partial[SyncVecEnv]
"""Makes a process's share of the environments from their `indices`; can be sent to another process."""


def share_maker(config: "Config", maker: EnvMaker) -> MakeShare:
    limit = config.replay_limit
    return partial(SyncVecEnv, make_env=maker, seed=config.seed, encoder=config.encoder, replay_limit=limit)


def make_envs(config: "Config", maker: EnvMaker, threads: int, first: object = None) -> VecEnv:
    """Make the backend `gymnasium`; a user's callable may have made a whole vector of environments."""
    first = maker.make_wrapped() if first is None else first
    if isinstance(first, gym.vector.VectorEnv):
        if config.eval_every:
            raise ConfigError(f"--eval-every {config.eval_every} is not accepted: {NO_EVALUATION}")
        return GymVectorAdapter(first, config.envs, config.seed, config.encoder)
    return share_maker(config, maker)(indices=range(config.envs), first=first, threads=threads)


def hint_at_old_api(error: BaseException) -> str:
    """Return what to say of an error that environments of the old gym raise here."""
    text = str(error)
    if isinstance(error, TypeError) and "keyword argument" in text and ("'seed'" in text or "'options'" in text):
        return "; this looks like the old gym: Gymnasium's reset takes seed and options"
    if isinstance(error, ValueError) and "values to unpack (expected 5" in text:
        return "; this looks like the old gym: step has to return observation, reward, terminated, truncated, info"
    if isinstance(error, ValueError) and "values to unpack (expected 2" in text:
        return "; this looks like the old gym: Gymnasium's reset returns observation, info"
    return ""


def mask_of(env: gym.Env, info: dict) -> np.ndarray | None:
    """The actions allowed next: `info["action_mask"]`, or what the environment's `action_masks()` says; or None."""
    mask = info.get("action_mask")
    if mask is None and env.has_wrapper_attr("action_masks"):
        mask = env.get_wrapper_attr("action_masks")()
    if mask is None:
        return None
    check_maskable(env.action_space)
    return join_mask(mask)
