"""EnvPool: environments in C++ threads.

Differences from Gymnasium that this adapter hides: it seeds when it is made, resets on the step *after* an end (that
step is made here at once, for the ended environments alone, so nobody sees it), and leaves contact forces at zero
unless told otherwise. What it cannot hide: an episode that terminates exactly at its limit counts as truncated only,
and its physics engine is its own, so long runs differ from Gymnasium's while single steps agree.
"""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from spo.config.env_ids import game_of, is_atari, module_in_envpool
from spo.envs import EpisodeStatistics, Step, VecEnv
from spo.errors import ConfigError, EnvError
from spo.runtime.seeding import derive_seed
from spo.spaces import ObservationLayout, sample_of

if TYPE_CHECKING:
    from spo.config.config import Config
    from spo.envs.make import EnvMaker

INSTALL = "pip install 'simple-policy-optimization[envpool]'"
ATARI = {"episodic_life": True, "repeat_action_probability": 0.0, "use_fire_reset": True, "noop_max": 30}
EPISODES_BETWEEN_REBUILDS = 4
"""Full episodes that every environment can play before a rebuild cuts what is running."""


class EnvPoolVecEnv(VecEnv):
    """N environments of one pool.

    A pool cannot be restored, so every `rebuild_after_steps` steps it is made anew with a seed of its own, whether or
    not the run is ever interrupted; a run resumes from there.
    """

    def __init__(
        self,
        env_id: str,
        count: int,
        seed: int,
        threads: int,
        env_arg: Mapping[str, object],
        encoder: str = "auto",
        rebuild_after_steps: int | None = None,
    ):
        self.env_id, self.num_envs, self.seed, self.number = env_id, count, seed, 0
        self.settings = {"num_envs": count, "num_threads": threads} | dict(env_arg)
        self.pool = self._new_pool()
        four_episodes = EPISODES_BETWEEN_REBUILDS * self.pool.config["max_episode_steps"]
        self.rebuild_after_steps = rebuild_after_steps or four_episodes
        self.observation_space, self.action_space = self.pool.observation_space, self.pool.action_space
        self.layout = ObservationLayout(self.observation_space, encoder)
        self.episodes = EpisodeStatistics(range(count))

    def _new_pool(self) -> Any:
        """Make the pool that comes after so many rebuilds."""
        return make_pool(self.env_id, self.settings | {"seed": derive_seed(self.seed, "envpool", self.number) % 2**31})

    def reset(self) -> np.ndarray:
        self.observation = self._pack(self.pool.reset()[0])
        return self.observation

    def _pack(self, observation: object, count: int | None = None) -> np.ndarray:
        return self.layout.pack_batch(observation, self.num_envs if count is None else count)

    def rebuild(self) -> np.ndarray:
        self.number += 1
        self.pool.close()
        self.pool = self._new_pool()
        self.episodes.clear()
        return self.reset()

    def state(self) -> dict[str, object]:
        """Return the state right after a reset; EnvPool cannot be restored mid-episode."""
        return {"number": self.number, "steps": self.steps, "observation": self.observation.copy()}

    def restore(self, state: dict) -> dict[int, str]:
        self.number, self.steps = state["number"] - 1, state["steps"]
        same = (self.rebuild() == state["observation"]).reshape(self.num_envs, -1).all(axis=1)
        return {index: "EnvPool starts it differently now" for index in np.flatnonzero(~same).tolist()}

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        action = action.astype(self.action_space.dtype)
        observation, reward, terminated, truncated, info = self.pool.step(action)
        observation = self._pack(observation)
        self.episodes.add(reward)
        done = terminated | truncated
        if not done.any():
            return Step(observation, reward, terminated, truncated, None, [])
        # A life that ended leaves lives in the game; without lives in the info, every end is a whole episode's.
        life_lost = (info["lives"] > 0) & terminated if "lives" in info else np.zeros_like(done)
        episodes = [self.episodes.finish(index) for index in np.flatnonzero(done & ~life_lost).tolist()]
        final, observation = observation, observation.copy()
        ended = np.flatnonzero(done).astype(np.int32)
        observation[ended] = self._pack(self.pool.step(action[ended], ended)[0], len(ended))
        return Step(observation, reward, terminated, truncated, final, episodes)

    def close(self) -> None:
        self.pool.close()


def make_envs(config: "Config", maker: "EnvMaker", threads: int) -> EnvPoolVecEnv:
    if config.wrapper:
        raise ConfigError(f"--wrapper {' '.join(config.wrapper)} does not go with --backend envpool, which has none")
    if callable(maker.env):
        raise ConfigError("--backend envpool needs the id of an environment, not a callable that makes one")
    after_steps = config.rebuild_every and config.rebuild_every * config.horizon
    return EnvPoolVecEnv(config.env, config.envs, config.seed, threads, config.env_arg, config.encoder, after_steps)


def make_pool(env_id: str, settings: dict[str, object]) -> Any:
    try:
        import envpool
    except ImportError:
        raise EnvError(f"--backend envpool needs: {INSTALL}")
    name = f"{game_of(env_id)}-v5" if is_atari(env_id) else env_id
    if name not in envpool.list_all_envs():
        raise EnvError(f"--backend envpool does not have environment {env_id!r}; use --backend gymnasium")
    if is_atari(env_id):
        settings = ATARI | settings
    elif "post_constraint" in envpool.make_spec(name).config._fields:
        settings = {"post_constraint": True} | settings  # without it the Humanoids' contact forces stay zero
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*precision lowered by casting")
            pool = envpool.make(name, "gymnasium", **settings)
            _ = pool.observation_space, pool.action_space  # made now, once: EnvPool rounds its own bounds
    except Exception as error:
        raise EnvError(f"--backend envpool cannot make {env_id!r}: {type(error).__name__}: {error}")
    return pool


def has_only_envpool(env_id: str) -> bool:
    """Tell whether an id is none of Gymnasium's, but one of EnvPool's."""
    return not is_atari(env_id) and module_in_envpool(env_id) is not None


class PoolEnv(gym.Env):
    """A single environment of EnvPool, for evaluating what Gymnasium does not have."""

    def __init__(self, env_id: str, **settings: object):
        self.make = partial(make_pool, env_id)
        self.settings = {"num_envs": 1, "num_threads": 1} | settings
        self.pool = self.make(self.settings)
        self.observation_space, self.action_space = self.pool.observation_space, self.pool.action_space

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[object, dict]:
        """Make the pool anew, because it takes a seed at no other time."""
        self.pool.close()
        self.pool = self.make(self.settings | {"seed": 0 if seed is None else seed % 2**31})
        return sample_of(self.pool.reset()[0], 0), {}

    def step(self, action: np.ndarray) -> tuple[object, float, bool, bool, dict]:
        action = np.asarray(action, self.action_space.dtype)[None]
        observation, reward, terminated, truncated, _ = self.pool.step(action)
        return sample_of(observation, 0), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def close(self) -> None:
        self.pool.close()
