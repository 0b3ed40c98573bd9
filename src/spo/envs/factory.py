"""Which backend steps the environments: a fixed rule, so that the same command gives the same run."""

from importlib import import_module
from importlib.util import find_spec

from spo.config.config import BACKENDS, Config
from spo.config.env_ids import is_atari
from spo.envs import VecEnv
from spo.envs.envpool import INSTALL, has_only_envpool
from spo.envs.make import EnvMaker, MakeEnv, check_maker
from spo.envs.watchdog import WatchdogVecEnv


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
    """Make the environments by the module of the backend, under a clock that names one that hangs."""
    made = import_module(f"spo.envs.{BACKENDS[backend]}").make_envs(config, maker, threads)
    return made if made.has_timeout else WatchdogVecEnv(made, config.env_timeout)
