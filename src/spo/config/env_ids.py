"""What the name of an environment tells: a game of Atari, a small classic task, or a module to import."""

from collections.abc import Mapping
from importlib.util import find_spec

import gymnasium as gym

from spo.errors import EnvError
from spo.objectives import OBJECTIVES

SUFFIX = "NoFrameskip-v4"
CLASSIC_MODULES = ("gymnasium.envs.classic_control", "gymnasium.envs.toy_text", "gymnasium.envs.tabular")


def is_atari(env_id: str) -> bool:
    """Tell whether it is BreakoutNoFrameskip-v4, or a name without a version, which only Atari games have."""
    is_registered = env_id in gym.registry or list_versions(env_id)
    return env_id.endswith(SUFFIX) or (env_id.isidentifier() and not is_registered)


def is_classic(env_id: str) -> bool:
    """Tell whether it is one of Gymnasium's classic control or toy text tasks, by where it is made."""
    entry_point = getattr(gym.registry.get(env_id.rpartition(":")[2]), "entry_point", None)
    return isinstance(entry_point, str) and entry_point.startswith(CLASSIC_MODULES)


def list_versions(name: str) -> list[str]:
    """List the registered ids of an environment that was named without a version, newest first; games have none."""
    specs = [spec for spec in gym.registry.values() if (spec.name or "").lower() == name.lower()]
    specs = [spec for spec in specs if not spec.namespace and not str(spec.entry_point).startswith("ale_py")]
    return [spec.id for spec in sorted(specs, key=lambda spec: spec.version or 0, reverse=True)]


def module_in_envpool(env_id: str) -> str | None:
    """Name the part of EnvPool that makes an environment, such as envpool.mujoco.dmc; None where Gymnasium makes it."""
    if ":" in env_id or env_id in gym.registry or find_spec("envpool") is None:
        return None
    from envpool.registration import registry

    return registry.specs[env_id][0] if env_id in registry.specs else None


def add_version(env_id: str) -> str:
    """Give the name of a task that only EnvPool has its newest version; all else, games too, stays as it is."""
    if not env_id.isidentifier() or env_id in gym.registry or list_versions(env_id) or find_spec("envpool") is None:
        return env_id
    import envpool

    known = [found for found in envpool.list_all_envs() if found.rpartition("-v")[0] == env_id]
    tasks = [found for found in known if module_in_envpool(found) not in (None, "envpool.atari")]
    return max(tasks, key=lambda found: int(found.rpartition("-v")[2]), default=env_id)


def check_env_id(env_id: str) -> None:
    """Refuse an objective, a name that lacks its version, or one that is written as no game of Atari is."""
    if env_id in gym.registry:
        return
    if objective := next((name for name in OBJECTIVES if f"{name}-".startswith(f"{env_id}-")), None):
        example = f"spo train HalfCheetah-v4 --objective {objective}"
        raise EnvError(f"{env_id!r} names an objective; accepted is an environment, as in {example}")
    if not env_id.isidentifier():
        return
    if versions := list_versions(env_id):
        raise EnvError(f"environment {env_id!r} has no version; accepted: {', '.join(versions)}")
    if env_id.islower():
        game = "".join(part.capitalize() for part in env_id.split("_"))
        raise EnvError(f"environment {env_id!r} is not known (did you mean {game}?); games of Atari have capitals")


def game_of(env_id: str) -> str:
    return env_id.removesuffix(SUFFIX)


def names_module(value: object) -> bool:
    """Tell whether an id, or anything in the arguments of an environment, may name a module to import."""
    if isinstance(value, str):
        return ":" in value
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(map(names_module, parts))
