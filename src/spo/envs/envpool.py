"""EnvPool: environments in C++ threads.

Differences from Gymnasium that this adapter hides: it seeds when it is made, resets on the step *after* an end (that
step is made here at once, for the ended environments alone, so nobody sees it), and leaves contact forces at zero
unless told otherwise. What it cannot hide: an episode that terminates exactly at its limit counts as truncated only,
and its physics engine is its own, so long runs differ from Gymnasium's while single steps agree.
"""

from collections.abc import Mapping

import gymnasium as gym
import numpy as np

from spo.envs import EpisodeTotals, Step
from spo.envs.atari import game_of, is_atari
from spo.errors import Refusal
from spo.seeding import derived_seed
from spo.spaces import ObservationLayout

INSTALL = "pip install 'simple-policy-optimization[envpool]'"
ATARI = {"episodic_life": True, "repeat_action_probability": 0.0, "use_fire_reset": True, "noop_max": 30}


class EnvPool:
    """N environments of one pool."""

    mask = None

    def __init__(
        self, env_id: str, count: int, seed: int, threads: int, env_arg: Mapping[str, object], encoder: str = "auto"
    ):
        settings = {"num_envs": count, "seed": derived_seed(seed, "envpool") % 2**31, "num_threads": threads}
        self.pool, self.count = make_pool(env_id, settings | dict(env_arg)), count
        self.observation_space, self.action_space = self.pool.observation_space, self.pool.action_space
        self.layout = ObservationLayout(self.observation_space, encoder)
        self.totals = EpisodeTotals(range(count))
        self.steps = 0

    def reset(self) -> np.ndarray:
        observation, _ = self.pool.reset()
        return observation

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        action = action.astype(self.action_space.dtype)
        observation, reward, terminated, truncated, info = self.pool.step(action)
        self.totals.add(reward)
        done = terminated | truncated
        if not done.any():
            return Step(observation, reward, terminated, truncated, None, [])
        # A life that ended leaves lives in the game; without lives in the info, every end is a whole episode's.
        goes_on = (info["lives"] > 0) & terminated if "lives" in info else np.zeros_like(done)
        episodes = [self.totals.finish(position) for position in np.flatnonzero(done & ~goes_on).tolist()]
        final, observation = observation, observation.copy()
        ended = np.flatnonzero(done).astype(np.int32)
        observation[ended] = self.pool.step(action[ended], ended)[0]
        return Step(observation, reward, terminated, truncated, final, episodes)

    def close(self) -> None:
        self.pool.close()


def make_pool(env_id: str, settings: dict[str, object]):
    try:
        import envpool
    except ImportError:
        raise Refusal(f"--backend envpool needs: {INSTALL}")
    name = f"{game_of(env_id)}-v5" if is_atari(env_id) else env_id
    if name not in envpool.list_all_envs():
        raise Refusal(f"--backend envpool does not have environment {env_id!r}; use --backend gymnasium")
    if is_atari(env_id):
        settings = ATARI | settings
    elif "post_constraint" in envpool.make_spec(name).config._fields:
        settings = {"post_constraint": True} | settings  # without it the Humanoids' contact forces stay zero
    try:
        pool = envpool.make(name, "gymnasium", **settings)
    except Exception as error:
        raise Refusal(f"--backend envpool cannot make {env_id!r}: {type(error).__name__}: {error}")
    if not isinstance(pool.observation_space, gym.spaces.Box):
        raise Refusal(f"--backend envpool has {env_id!r} with {pool.observation_space}; accepted is a Box")
    return pool
