"""What each setting accepts, and the sentence for what it does not."""

import dataclasses
import json
import os
import types
import typing
from collections.abc import Callable, Mapping
from typing import Literal

from spo.config import fields
from spo.config.config import Config
from spo.config.env_ids import is_atari
from spo.config.fields import LARGEST_LAYER, MOST_LAYERS
from spo.errors import SpoError
from spo.objectives import OBJECTIVES

FIELDS = {field.name: field for field in dataclasses.fields(Config)}
HINTS = typing.get_type_hints(Config)
LARGEST_SINGLE = 3e38
"""About the largest number that torch can take over into a 32-bit float."""
LARGEST_BATCH = 2**26


def whole(lowest: int, highest: int) -> tuple[str, Callable[[int], bool]]:
    return f"a whole number from {lowest} to {highest}", lambda x: lowest <= x <= highest


ABOVE_ZERO = ("a number above 0", lambda x: x > 0)
ABOVE_ZERO_OR_OFF = ("a number above 0, or off", lambda x: x == "off" or (not isinstance(x, str) and x > 0))
ABOVE_ONE = ("a number above 1", lambda x: x > 1)
NOT_NEGATIVE = ("a number of at least 0", lambda x: x >= 0)
UP_TO_ONE = ("a number from 0 to 1", lambda x: 0 <= x <= 1)
BETWEEN_ZERO_AND_ONE = ("a number above 0 and below 1", lambda x: 0 < x < 1)
MOST_ITERATIONS = 2**31 - 1
COUNT, COUNT_OR_ZERO, CORES = whole(1, MOST_ITERATIONS), whole(0, MOST_ITERATIONS), whole(1, os.cpu_count() or 1)
LAYERS = (
    f"up to {MOST_LAYERS} whole numbers from 1 to {LARGEST_LAYER}",
    lambda sizes: len(sizes) <= MOST_LAYERS and all(1 <= size <= LARGEST_LAYER for size in sizes),
)
RANGES = {
    "seed": COUNT_OR_ZERO,
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
    "dual_clip": ABOVE_ONE,
    "deviation_limit": ABOVE_ZERO,
    "deviation_target": ABOVE_ZERO,
    "epsilon_min": BETWEEN_ZERO_AND_ONE,
    "epsilon_max": BETWEEN_ZERO_AND_ONE,
    "epsilon_gain": UP_TO_ONE,
    "power": ABOVE_ONE,
    "damping": NOT_NEGATIVE,
    "cg_steps": COUNT,
    "backtrack": BETWEEN_ZERO_AND_ONE,
    "backtrack_steps": COUNT,
    "lr_kl_target": ABOVE_ZERO,
    "steps": whole(1, 10**15),
    "envs": whole(1, 2**16),
    "horizon": whole(1, 2**20),
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
    "env_timeout": ("a number above 0, of at most 1000000", lambda x: 0 < x <= 10**6),
    "checkpoint_every": COUNT_OR_ZERO,
    "keep": COUNT,
    "replay_limit": COUNT,
    "rebuild_every": COUNT,
    "record_ratios": (
        f"whole numbers from 1 to {MOST_ITERATIONS}",
        lambda iterations: all(1 <= number <= MOST_ITERATIONS for number in iterations),
    ),
    "eval_every": COUNT_OR_ZERO,
    "threads": (f"{CORES[0]} (the cores of this machine)", CORES[1]),
}
"""What each setting accepts, in words and as a test; the words are the error message."""
FORMER_NAMES = {"seam_every": "rebuild_every"}
"""What earlier versions called a setting, and with it a key of config.json."""


def under_current_names(values: Mapping[str, object]) -> dict[str, object]:
    return {FORMER_NAMES.get(name, name): value for name, value in values.items()}


def typed(values: Mapping[str, object]) -> dict[str, object]:
    """The values as the fields want them, or a refusal that names the field."""
    return {name: _as_field(name, value) for name, value in under_current_names(values).items()}


def built(values: Mapping[str, object]) -> Config:
    """A Config of settings from a file, or a refusal that names the setting that is wrong or missing."""
    for name, field in FIELDS.items():
        if name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise SpoError(f"setting {name!r} is missing; it must be {_words(name, HINTS[name])}")
    return Config(**typed(values))


def _as_field(name: str, value: object) -> object:
    if name not in FIELDS:
        raise SpoError(f"setting {name!r} is unknown; accepted: {', '.join(FIELDS)}")
    accepted = HINTS[name]
    if name == "steps" and isinstance(value, str | float):
        value = fields.parse_steps(str(value))
    if isinstance(value, list):
        value = tuple(value)
    if not _fits(value, accepted):
        raise SpoError(f"{flag(name)} {shown(value)} is not accepted: it must be {_words(name, accepted)}")
    return float(value) if accepted is float and _is_single(value) else value


def _fits(value: object, accepted: object) -> bool:
    origin, arguments = typing.get_origin(accepted), typing.get_args(accepted)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, argument) for argument in arguments)
    if origin is dict:
        return isinstance(value, dict) and _can_be_recorded(value)
    if accepted in (int, float):
        return isinstance(value, (int, accepted)) and not isinstance(value, bool)
    return isinstance(value, accepted)


def _can_be_recorded(value: dict) -> bool:
    """Whether config.json can hold it."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return all(isinstance(name, str) for name in value)


def _is_single(value: object) -> bool:
    """Whether a number fits a 32-bit float, so that neither this process nor torch overflows; NaN does not."""
    return not isinstance(value, int | float) or abs(value) <= LARGEST_SINGLE


KINDS = {dict: "names with JSON values", bool: "true or false", str: "text", int: "a whole number", float: "a number"}


def _words(name: str, accepted: object) -> str:
    if typing.get_origin(accepted) is Literal:
        return "one of " + ", ".join(typing.get_args(accepted))
    if name in RANGES:
        return RANGES[name][0]
    kinds = (accepted, typing.get_origin(accepted), *typing.get_args(accepted))
    return next(words for kind, words in KINDS.items() if kind in kinds)


def shown(value: object) -> str:
    try:
        return repr(value)
    except (ValueError, RecursionError):  # Python writes no number of more than 4300 digits
        return "of more digits than can be shown"


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def checked(config: Config) -> Config:
    """The same config, or a refusal that names the value and what is accepted."""
    typed(vars(config))
    for name in RANGES:
        check_range(name, getattr(config, name))
    _check_objective_settings(config)
    _check_width(config)
    _check_improvement_rule(config)
    _check_batch(config)
    if config.atari_wrappers != "standard" and not is_atari(config.env):
        raise SpoError(f"--atari-wrappers {config.atari_wrappers} is not accepted: {config.env} is no Atari game")
    return config


def check_range(name: str, value: object, named: str = "") -> None:
    words, accepts = RANGES[name]
    if value is None or (_is_single(value) and accepts(value)):
        return
    told = " ".join(map(shown, value)) if isinstance(value, tuple) else shown(value)
    limit = f", of at most {LARGEST_SINGLE:g}" if accepts(value) else ""
    raise SpoError(f"{named or flag(name) + ' '}{told} is not accepted: it must be {words}{limit}")


def _check_objective_settings(config: Config) -> None:
    own = config.resolved_objective.settings
    accepted = f"does not belong to objective {config.objective}; its settings: {', '.join(map(flag, own)) or 'none'}"
    strange = sorted(config.given_objective_settings.keys() - config.objective_arg.keys() - own.keys())
    if strange:
        raise SpoError(f"{flag(strange[0])} {accepted}")
    for name, value in config.objective_arg.items():
        named, told = f"--objective-arg {name}=", value if isinstance(value, str) else shown(value)
        if name not in own:
            raise SpoError(f"{named}{told} {accepted}")
        if not (_fits(value, float) and _is_single(value)):
            raise SpoError(f"{named}{told} is not accepted: it must be a number")
        if config.objective in OBJECTIVES:  # an objective of the user's own has ranges of its own
            check_range(name, value, named)


def _check_width(config: Config) -> None:
    """A width that is adapted within bounds must start there."""
    own = config.objective_settings
    if config.resolved_objective.fed_back != "epsilon" or own["epsilon_min"] <= own["epsilon"] <= own["epsilon_max"]:
        return
    bounds = f"a number from {own['epsilon_min']:g} (--epsilon-min) to {own['epsilon_max']:g} (--epsilon-max)"
    raise SpoError(f"--epsilon {own['epsilon']} is not accepted: it must be {bounds}")


def _check_improvement_rule(config: Config) -> None:
    """What would do nothing beside a trust region, whose policy makes one step per iteration, without a rate."""
    if not config.resolved_objective.trust_region:
        return
    rule = f"objective {config.objective}, whose policy makes one step per iteration"
    if config.lr_schedule == "adaptive-kl":
        accepted = ", ".join(name for name in typing.get_args(HINTS["lr_schedule"]) if name != "adaptive-kl")
        raise SpoError(f"--lr-schedule adaptive-kl does not go with {rule}: it must be one of {accepted}")
    if config.target_kl is not None:
        raise SpoError(f"--target-kl {config.target_kl} does not go with {rule}: --delta bounds the KL of that step")


def _check_batch(config: Config) -> None:
    if config.batch_size > LARGEST_BATCH:
        raise SpoError(
            f"--horizon {config.horizon} is not accepted: {config.envs} envs make a batch of {config.batch_size:,}"
            f" samples; it must have up to {LARGEST_BATCH:,}"
        )
    if config.batch_size % config.minibatches:
        raise SpoError(
            f"--minibatches {config.minibatches} does not divide the batch of {config.batch_size} samples"
            f" ({config.envs} envs × horizon {config.horizon})"
        )
    if config.normalize_advantage == "minibatch" and config.minibatch_size < 2:
        raise SpoError(
            f"--minibatches {config.minibatches} leaves minibatches of one sample, which cannot be normalised;"
            " use fewer, or --normalize-advantage batch"
        )
    if config.iterations < 1:
        raise SpoError(
            f"--steps {config.steps} is less than one iteration of {config.batch_size} steps"
            f" ({config.envs} envs × horizon {config.horizon})"
        )
