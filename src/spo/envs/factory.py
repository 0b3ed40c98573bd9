"""Which backend steps the environments: a fixed rule, so that the same command gives the same run."""

from collections.abc import Iterable
from importlib.util import find_spec

import gymnasium as gym

from spo.config.config import Config
from spo.config.env_ids import is_atari
from spo.envs import VecEnv
from spo.envs.envpool import INSTALL, EnvPoolVecEnv, has_only_envpool
from spo.envs.gym_vector import GymVectorAdapter
from spo.envs.make import EnvMaker, MakeEnv, check_maker
from spo.envs.shared_memory import start_shared_envs
from spo.envs.subproc import SubprocVecEnv
from spo.envs.sync import SyncVecEnv
from spo.envs.watchdog import WatchdogVecEnv
from spo.errors import ConfigError

MOST_WORKERS = 256
"""Processes of one run, however many environments a file asks for."""


def choose_backend(config: Config, threads: int) -> tuple[str, str]:
    """The backend, and why: never a measurement, only what the settings say."""
    has_other_wrappers = config.backend == "envpool" and config.atari_wrappers == "authors"
    if config.backend != "auto":
        return config.backend, "as asked, without the authors' wrappers" if has_other_wrappers else "as asked"
    if config.atari_wrappers == "authors":
        return "gymnasium", "EnvPool does not have the authors' wrappers"
    if config.wrapper:
        return "gymnasium", "EnvPool takes no wrappers"
    if has_only_envpool(config.env):
        return "envpool", "Gymnasium does not have it"
    if config.env_arg or threads < 2:
        return "gymnasium", "the reference"
    if is_atari(config.env):
        if find_spec("envpool") is None:
            return "gymnasium", f"EnvPool would be faster: {INSTALL}"
        return "envpool", f"faster for {config.env} with {threads} threads"
    return "gymnasium", "the reference"


def env_maker(config: Config, env: str | MakeEnv | None = None) -> EnvMaker:
    """What makes a run's environments, for training and for evaluation: EnvPool shows what the standard wrappers do."""
    if env is not None:
        check_maker(env)
    wrappers = "standard" if config.backend == "envpool" else config.atari_wrappers
    return EnvMaker(config.env if env is None else env, config.env_arg, wrappers, config.on_env_error, config.wrapper)


def make_envs(config: Config, maker: EnvMaker, backend: str, threads: int) -> VecEnv:
    if backend == "envpool":
        if config.wrapper:
            raise ConfigError(
                f"--wrapper {' '.join(config.wrapper)} does not go with --backend envpool, which has none"
            )
        if callable(maker.env):
            raise ConfigError("--backend envpool needs the id of an environment, not a callable that makes one")
        after_steps = config.rebuild_every and config.rebuild_every * config.horizon
        pool = EnvPoolVecEnv(config.env, config.envs, config.seed, threads, config.env_arg, config.encoder, after_steps)
        return WatchdogVecEnv(pool, config.env_timeout)
    if backend == "process":
        workers = threads if threads > 1 else min(config.envs, MOST_WORKERS)
        limits = (config.env_timeout, config.encoder, config.replay_limit)
        return SubprocVecEnv(maker, config.envs, config.seed, workers, *limits)
    made = maker.make_wrapped()  # the first environment; a user's callable may have made a whole vector of them
    if isinstance(made, gym.vector.VectorEnv):
        return WatchdogVecEnv(GymVectorAdapter(made, config.envs, config.seed, config.encoder), config.env_timeout)
    seed, encoder, limit = config.seed, config.encoder, config.replay_limit

    def here(indices: Iterable[int], threads: int = 1) -> SyncVecEnv:
        return SyncVecEnv(maker, indices, seed, encoder, first=made, replay_limit=limit, threads=threads)

    if backend == "shared" and min(threads, config.envs) > 1:
        processes = min(threads, config.envs, MOST_WORKERS)
        return WatchdogVecEnv(
            start_shared_envs(maker, here, config.envs, processes, seed, encoder, limit), config.env_timeout
        )
    return WatchdogVecEnv(here(range(config.envs), threads), config.env_timeout)
