"""What each setting accepts, and the sentence for what it does not."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from spo.config import fields
from spo.config.config import Config
from spo.config.env_ids import check_env_id, is_atari
from spo.config.fields import NAMES_ELSEWHERE, Range
from spo.errors import ConfigError, suggest
from spo.objectives import OBJECTIVES

FIELDS = {field.name: field for field in dataclasses.fields(Config)}
HINTS = typing.get_type_hints(Config)
ANNOTATIONS = typing.get_type_hints(Config, include_extras=True)
RANGES = {
    name: part
    for name, annotation in ANNOTATIONS.items()
    for part in getattr(annotation, "__metadata__", ())
    if isinstance(part, Range)
}
LARGEST_SINGLE = 3e38
"""About the largest number that torch can take over into a 32-bit float."""
LARGEST_BATCH = 2**26
FORMER_NAMES = {"seam_every": "rebuild_every"}
"""What earlier versions called a setting, and with it a key of config.json."""


def use_current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the settings that an earlier version recorded under another name."""
    return {FORMER_NAMES.get(name, name): value for name, value in values.items()}


def coerce(values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values to what the fields want, or refuse with the field's name."""
    return {name: _coerce_value(name, value) for name, value in use_current_names(values).items()}


def config_from_dict(values: Mapping[str, Any]) -> Config:
    """Make a Config of all its settings, or refuse with the name of the setting that is wrong or missing."""
    for name, field in FIELDS.items():
        if name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise ConfigError(f"setting {name!r} is missing; it must be {_describe_accepted(name, HINTS[name])}")
    return Config(**coerce(values))


def _coerce_value(name: str, value: Any) -> Any:
    if name not in FIELDS:
        nearest = suggest(name, FIELDS, NAMES_ELSEWHERE)
        raise ConfigError(f"setting {name!r} is unknown{nearest}; accepted: {', '.join(FIELDS)}")
    accepted = HINTS[name]
    if name in ("steps", "schedule_steps") and isinstance(value, str | float):
        value = fields.parse_steps(str(value), name)
    if isinstance(value, list):
        value = tuple(value)
    if not _fits(value, accepted):
        words = _describe_accepted(name, accepted)
        raise ConfigError(f"{flag(name)} {format_value(value)} is not accepted: it must be {words}")
    is_number = accepted is float or (float in typing.get_args(accepted) and type(value) is int)
    return float(value) if is_number and _is_single(value) else value


def _fits(value: Any, accepted: Any) -> bool:
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


def _can_be_recorded(value: dict[str, Any]) -> bool:
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


def _describe_accepted(name: str, accepted: object) -> str:
    for kind in (accepted, *typing.get_args(accepted)):
        if typing.get_origin(kind) is Literal:
            return ("one of " if kind is accepted else "some of ") + ", ".join(typing.get_args(kind))
    if name in RANGES:
        return RANGES[name].words
    kinds = (accepted, typing.get_origin(accepted), *typing.get_args(accepted))
    return next(words for kind, words in KINDS.items() if kind in kinds)


def format_value(value: object) -> str:
    """Write a value for a sentence."""
    try:
        return repr(value)
    except (ValueError, RecursionError):  # Python writes no number of more than 4300 digits
        return "of more digits than can be shown"


def flag(name: str) -> str:
    """Write a setting's name as the command line does."""
    return "--" + name.replace("_", "-")


def validate(config: Config) -> Config:
    """Return the same config, or refuse with the value and what is accepted."""
    coerce(vars(config))
    check_env_id(config.env)
    for name in RANGES:
        check_range(name, getattr(config, name))
    _check_objective_settings(config)
    _check_width(config)
    _check_epsilon_schedule(config)
    _check_schedule_steps(config)
    _check_improvement_rule(config)
    _check_batch(config)
    if config.keep_best and not config.eval_every:
        raise ConfigError("--keep-best needs evaluations: set --eval-every to a whole number of at least 1")
    if config.atari_wrappers != "standard" and not is_atari(config.env):
        raise ConfigError(f"--atari-wrappers {config.atari_wrappers} is not accepted: {config.env} is no Atari game")
    return config


def check_range(name: str, value: object, named: str = "") -> None:
    """Refuse a value outside of its setting's range."""
    words, accepts = RANGES[name].words, RANGES[name].accepts
    if value is None or (_is_single(value) and accepts(value)):
        return
    text = " ".join(map(format_value, value)) if isinstance(value, tuple) else format_value(value)
    limit = f", of at most {LARGEST_SINGLE:g}" if accepts(value) else ""
    raise ConfigError(f"{named or flag(name) + ' '}{text} is not accepted: it must be {words}{limit}")


def _check_objective_settings(config: Config) -> None:
    own = config.resolved_objective.settings
    accepted = f"does not belong to objective {config.objective}; its settings: {', '.join(map(flag, own)) or 'none'}"
    strange = sorted(config.given_objective_settings.keys() - config.objective_arg.keys() - own.keys())
    if strange:
        raise ConfigError(f"{flag(strange[0])} {accepted}")
    for name, value in config.objective_arg.items():
        named, text = f"--objective-arg {name}=", value if isinstance(value, str) else format_value(value)
        if name not in own:
            raise ConfigError(f"{named}{text} {accepted}")
        if not (_fits(value, float) and _is_single(value)):
            raise ConfigError(f"{named}{text} is not accepted: it must be a number")
        if config.objective in OBJECTIVES:  # an objective of the user's own has ranges of its own
            check_range(name, value, named)


def _check_width(config: Config) -> None:
    """A width that is adapted within bounds must start there."""
    own, adaptive = config.objective_settings, config.resolved_objective.adaptive_setting
    if adaptive != "epsilon" or own["epsilon_min"] <= own["epsilon"] <= own["epsilon_max"]:
        return
    bounds = f"a number from {own['epsilon_min']:g} (--epsilon-min) to {own['epsilon_max']:g} (--epsilon-max)"
    raise ConfigError(f"--epsilon {own['epsilon']} is not accepted: it must be {bounds}")


def _check_epsilon_schedule(config: Config) -> None:
    """Only one may move a width: the schedule, or the objective by itself."""
    if config.epsilon_schedule == "constant":
        return
    adapts = config.resolved_objective.adaptive_setting == "epsilon"
    if adapts or "epsilon" not in config.widths_at(0):
        why = "which adapts epsilon by itself" if adapts else "which has no epsilon"
        refused = f"--epsilon-schedule {config.epsilon_schedule} does not go with objective {config.objective}"
        raise ConfigError(f"{refused}, {why}: it must be constant")


def _check_schedule_steps(config: Config) -> None:
    """A schedule that ends before the run would leave iterations that learn nothing."""
    if config.schedule_steps is not None and config.schedule_steps < config.steps:
        accepted = f"it must be a whole number of at least {config.steps} (--steps)"
        raise ConfigError(f"--schedule-steps {config.schedule_steps} is not accepted: {accepted}")


def _check_improvement_rule(config: Config) -> None:
    """What would do nothing beside a trust region, whose policy makes one step per iteration, without a rate."""
    if not config.resolved_objective.trust_region:
        return
    rule = f"objective {config.objective}, whose policy makes one step per iteration"
    if config.lr_schedule == "adaptive-kl":
        accepted = ", ".join(name for name in typing.get_args(HINTS["lr_schedule"]) if name != "adaptive-kl")
        raise ConfigError(f"--lr-schedule adaptive-kl does not go with {rule}: it must be one of {accepted}")
    if config.target_kl is not None:
        raise ConfigError(f"--target-kl {config.target_kl} does not go with {rule}: --delta bounds the KL of that step")


def _check_batch(config: Config) -> None:
    if config.batch_size > LARGEST_BATCH:
        raise ConfigError(
            f"--horizon {config.horizon} is not accepted: {config.envs} envs make a batch of {config.batch_size:,}"
            f" samples; it must have up to {LARGEST_BATCH:,}"
        )
    if config.batch_size % config.minibatches:
        raise ConfigError(
            f"--minibatches {config.minibatches} does not divide the batch of {config.batch_size} samples"
            f" ({config.envs} envs × horizon {config.horizon})"
        )
    if config.normalize_advantage == "minibatch" and config.minibatch_size < 2:
        raise ConfigError(
            f"--minibatches {config.minibatches} leaves minibatches of one sample, which cannot be normalised;"
            " use fewer, or --normalize-advantage batch"
        )
    if config.iterations < 1:
        raise ConfigError(
            f"--steps {config.steps} is less than one iteration of {config.batch_size} steps"
            f" ({config.envs} envs × horizon {config.horizon})"
        )
