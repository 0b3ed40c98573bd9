"""What each setting accepts, and the sentence for what it does not."""

import dataclasses
import math
import os
import types
import typing
from collections.abc import Mapping
from typing import Literal

from spo import flags
from spo.config import Config
from spo.errors import Refusal

FIELDS = {field.name: field for field in dataclasses.fields(Config)}
HINTS = typing.get_type_hints(Config)

ABOVE_ZERO = ("a number above 0", lambda x: x > 0)
ABOVE_ZERO_OR_OFF = ("a number above 0, or off", lambda x: x == "off" or (not isinstance(x, str) and x > 0))
NOT_NEGATIVE = ("a number of at least 0", lambda x: x >= 0)
UP_TO_ONE = ("a number from 0 to 1", lambda x: 0 <= x <= 1)
BETWEEN_ZERO_AND_ONE = ("a number above 0 and below 1", lambda x: 0 < x < 1)
COUNT = ("a whole number of at least 1", lambda x: x >= 1)
LAYERS = ("whole numbers of at least 1", lambda sizes: all(size >= 1 for size in sizes))

RANGES = {
    "seed": ("a whole number from 0 to 2147483647", lambda x: 0 <= x < 2**31),
    "epsilon": BETWEEN_ZERO_AND_ONE,
    "epsilon_high": ABOVE_ZERO,
    "epsilon_next": BETWEEN_ZERO_AND_ONE,
    "reflection": NOT_NEGATIVE,
    "alpha": NOT_NEGATIVE,
    "beta": ABOVE_ZERO,
    "kl_target": ABOVE_ZERO_OR_OFF,
    "temperature": ABOVE_ZERO,
    "state_delta": ABOVE_ZERO,
    "delta": ABOVE_ZERO,
    "dual_clip": ("a number above 1", lambda x: x > 1),
    "deviation_limit": ABOVE_ZERO,
    "damping": NOT_NEGATIVE,
    "cg_steps": COUNT,
    "backtrack": BETWEEN_ZERO_AND_ONE,
    "backtrack_steps": COUNT,
    "lr_kl_target": ABOVE_ZERO,
    "steps": COUNT,
    "envs": COUNT,
    "horizon": COUNT,
    "epochs": COUNT,
    "minibatches": COUNT,
    "learning_rate": ABOVE_ZERO,
    "adam_eps": ABOVE_ZERO,
    "max_grad_norm": ABOVE_ZERO,
    "gamma": UP_TO_ONE,
    "lam": UP_TO_ONE,
    "value_coef": NOT_NEGATIVE,
    "entropy_coef": NOT_NEGATIVE,
    "value_clip": ABOVE_ZERO_OR_OFF,
    "target_kl": ABOVE_ZERO,
    "hidden": LAYERS,
    "critic_hidden": LAYERS,
    "env_timeout": ABOVE_ZERO,
    "checkpoint_every": ("a whole number of at least 0", lambda x: x >= 0),
    "keep": COUNT,
    "replay_limit": COUNT,
    "seam_every": COUNT,
    "record_ratios": ("whole numbers of at least 1", lambda iterations: all(number >= 1 for number in iterations)),
    "eval_every": ("a whole number of at least 0", lambda x: x >= 0),
    "threads": (
        f"a whole number from 1 to {os.cpu_count()} (the cores of this machine)",
        lambda x: 1 <= x <= os.cpu_count(),
    ),
}
"""What each setting accepts, in words and as a test; the words are the error message."""


def typed(values: Mapping[str, object]) -> dict[str, object]:
    """The values as the fields want them, or a refusal that names the field."""
    return {name: _as_field(name, value) for name, value in values.items()}


def _as_field(name: str, value: object) -> object:
    if name not in FIELDS:
        raise Refusal(f"setting {name!r} is unknown; accepted: {', '.join(FIELDS)}")
    accepted = HINTS[name]
    if name == "steps" and isinstance(value, str | float):
        value = flags.parse_steps(str(value))
    if isinstance(value, list):
        value = tuple(value)
    if not _fits(value, accepted):
        raise Refusal(f"{flag(name)} {value!r} is not accepted: it must be {_words(name, accepted)}")
    return float(value) if accepted is float else value


def _fits(value: object, accepted: object) -> bool:
    origin, arguments = typing.get_origin(accepted), typing.get_args(accepted)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, argument) for argument in arguments)
    if origin is dict:
        return isinstance(value, dict)
    if accepted in (int, float):
        return isinstance(value, (int, accepted)) and not isinstance(value, bool)
    return isinstance(value, accepted)


def _words(name: str, accepted: object) -> str:
    if typing.get_origin(accepted) is Literal:
        return "one of " + ", ".join(typing.get_args(accepted))
    if name in RANGES:
        return RANGES[name][0]
    kinds = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
    return kinds.get(accepted, "of another type")


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def checked(config: Config) -> Config:
    """The same config, or a refusal that names the value and what is accepted."""
    for name, (words, accepts) in RANGES.items():
        value = getattr(config, name)
        if value is not None and not (_is_finite(value) and accepts(value)):
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            raise Refusal(f"{flag(name)} {shown} is not accepted: it must be {words}")
    _check_objective_settings(config)
    _check_batch(config)
    return config


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _check_objective_settings(config: Config) -> None:
    own = config.resolved_objective.settings
    for name, value in config.given_objective_settings.items():
        if name not in own:
            settings = ", ".join(map(flag, own)) or "none"
            raise Refusal(f"{flag(name)} does not belong to objective {config.objective}; its settings: {settings}")
        if name in config.objective_arg and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise Refusal(f"--objective-arg {name}={value} is not accepted: it must be a number")


def _check_batch(config: Config) -> None:
    if config.batch_size % config.minibatches:
        raise Refusal(
            f"--minibatches {config.minibatches} does not divide the batch of {config.batch_size} samples"
            f" ({config.envs} envs × horizon {config.horizon})"
        )
    if config.normalize_advantage == "minibatch" and config.minibatch_size < 2:
        raise Refusal(
            f"--minibatches {config.minibatches} leaves minibatches of one sample, which cannot be normalised;"
            " use fewer, or --normalize-advantage batch"
        )
    if config.iterations < 1:
        raise Refusal(
            f"--steps {config.steps} is less than one iteration of {config.batch_size} steps"
            f" ({config.envs} envs × horizon {config.horizon})"
        )
