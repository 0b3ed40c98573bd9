"""What the name of an environment tells: a game of Atari, or a module to import."""

from collections.abc import Mapping

import gymnasium as gym

SUFFIX = "NoFrameskip-v4"


def is_atari(env_id: str) -> bool:
    """BreakoutNoFrameskip-v4, or a name without a version, which only Atari games have."""
    return env_id.endswith(SUFFIX) or (env_id.isidentifier() and env_id not in gym.registry)


def game_of(env_id: str) -> str:
    return env_id.removesuffix(SUFFIX)


def names_module(value: object) -> bool:
    """Whether an id, or anything in the arguments of an environment, may name a module to import."""
    if isinstance(value, str):
        return ":" in value
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(map(names_module, parts))
