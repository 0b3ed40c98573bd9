"""Types of settings: how a command line writes them (200k, off, key=value), and the range that they accept."""

import ast
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from spo.errors import ConfigError

MOST_ITERATIONS = 2**31 - 1
SUFFIXES = {"k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6, "b": 10**9, "B": 10**9}
UNSET = "–"
NAMES_ELSEWHERE = {
    **dict.fromkeys(("lr", "stepsize", "step_size"), "learning_rate"),
    **dict.fromkeys(("num_envs", "n_envs", "nproc"), "envs"),
    **dict.fromkeys(("timesteps", "total_timesteps", "n_timesteps", "num_timesteps", "max_steps"), "steps"),
    **dict.fromkeys(("n_steps", "num_steps", "rollout_steps", "num_steps_per_env"), "horizon"),
    **dict.fromkeys(("n_epochs", "num_epochs", "update_epochs", "num_learning_epochs"), "epochs"),
    **dict.fromkeys(("num_minibatches", "num_mini_batches", "nminibatches", "batch_size"), "minibatches"),
    **dict.fromkeys(("clip_range", "clip_coef", "clip_param", "clip", "eps"), "epsilon"),
    **dict.fromkeys(("ent_coef", "entropy"), "entropy_coef"),
    **dict.fromkeys(("vf_coef", "value_loss_coef"), "value_coef"),
    **dict.fromkeys(("gae_lambda", "lambda_"), "lam"),
    **dict.fromkeys(("net_arch", "layers", "hidden_sizes", "hidden_layers"), "hidden"),
    **dict.fromkeys(("algo", "algorithm", "loss"), "objective"),
    **dict.fromkeys(("discount", "discount_factor"), "gamma"),
    **dict.fromkeys(("env_id", "environment", "task"), "env"),
    **dict.fromkeys(("env_kwargs", "env_args"), "env_arg"),
    **dict.fromkeys(("clip_vloss", "no_clip_vloss", "clip_range_vf", "clip_value"), "value_clip"),
    **dict.fromkeys(("anneal_lr", "no_anneal_lr", "lr_decay", "schedule"), "lr_schedule"),
    **dict.fromkeys(("norm_adv", "no_norm_adv"), "normalize_advantage"),
    **dict.fromkeys(("cuda", "gpu"), "device"),
    **dict.fromkeys(("output", "log_dir", "logdir", "dir"), "out"),
}
"""What other libraries call a setting."""


@dataclass(frozen=True)
class Range:
    """What a setting accepts, in words and as a test; the words are part of the error message."""

    words: str
    accepts: Callable[[Any], bool]


def whole(lowest: int, highest: int) -> Range:
    """Make a range of whole numbers, both ends included."""
    return Range(f"a whole number from {lowest} to {highest}", lambda x: lowest <= x <= highest)


def interval(text: str) -> Range:
    """Make a range of an interval as mathematics writes it: (0, 1) without its ends, [0, ∞) or off with the lower."""
    text, or_off, _ = text.partition(" or off")
    low, high = text[1:-1].split(", ")
    lowest, highest = float(low), float(high.replace("∞", "inf"))
    words = {
        "()": f"a number above {low} and below {high}",
        "(]": f"a number above {low}, of at most {high}",
        "[]": f"a number from {low} to {high}",
        "(∞": f"a number above {low}",
        "[∞": f"a number of at least {low}",
    }[text[0] + ("∞" if high == "∞" else text[-1])]

    def accepts(x: Any) -> bool:
        if or_off and isinstance(x, str):
            return x == "off"
        above = x > lowest or (text[0] == "[" and x == lowest)
        return above and (x < highest or (text[-1] == "]" and x == highest))

    return Range(words + (", or off" if or_off else ""), accepts)


ABOVE_ZERO, NOT_NEGATIVE, UP_TO_ONE = interval("(0, ∞)"), interval("[0, ∞)"), interval("[0, 1]")
NUMBER = Range("a number", lambda x: True)
COUNT, COUNT_OR_ZERO = whole(1, MOST_ITERATIONS), whole(0, MOST_ITERATIONS)
CORES = Range(
    f"{whole(1, os.cpu_count() or 1).words} (the cores of this machine)", whole(1, os.cpu_count() or 1).accepts
)
ITERATIONS = Range(
    f"whole numbers from 1 to {MOST_ITERATIONS}",
    lambda numbers: all(1 <= number <= MOST_ITERATIONS for number in numbers),
)


def names_wrapper(word: str) -> bool:
    """Tell whether a word of --wrapper names one, and is not an argument of the one before."""
    module, colon, _ = word.partition(":")
    return bool(colon) and "=" not in module


WRAPPERS = Range(
    "module:Class, each followed by its arguments as key=value",
    lambda words: all(names_wrapper(word) or "=" in word for word in words) and all(map(names_wrapper, words[:1])),
)


def parse_steps(text: str, setting: str = "steps") -> int:
    """Read 1000, 1e6, 200k or 1.5M as a whole number; a refusal names the setting."""
    number, factor = (text[:-1], SUFFIXES[text[-1]]) if text and text[-1] in SUFFIXES else (text, 1)
    try:
        return round(float(number) * factor)
    except (ValueError, OverflowError):
        named = f"--{setting.replace('_', '-')} {text}"
        raise ConfigError(f"{named} is not a number of steps; accepted are forms such as 1000000, 1e6, 1M, 200k")


def parse_key_values(texts: list[str]) -> dict[str, object]:
    """Read key=value pairs; a value that reads as a Python literal is one, anything else is text."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigError(f"{text} is not accepted: --env-arg and --objective-arg take key=value")
        pairs[key] = _parse_literal(value)
    return pairs


def _parse_literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return {"true": True, "false": False}.get(text, text)


def _one_word(metavar: str, parse: Callable[[str], Any]) -> tyro.constructors.PrimitiveConstructorSpec:
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: parse(texts[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [UNSET if value is None else str(value)],
    )


def _show_default(text: str) -> str:
    """Tell a default in the help, where there is one."""
    return "" if text.strip("'") in (UNSET, "None", "") else f"(default: {text})"


SHOWN_IF_SET = tyro.conf.arg(help_behavior_hint=_show_default)
"""The help tells a default only where there is one."""

Steps = Annotated[int, _one_word("STEPS", parse_steps)]
ScheduleSteps = Annotated[int | None, _one_word("STEPS", partial(parse_steps, setting="schedule_steps")), SHOWN_IF_SET]
OptionalText = Annotated[str | None, _one_word("TEXT", str), SHOWN_IF_SET]
OptionalPath = Annotated[Path | None, _one_word("PATH", Path), SHOWN_IF_SET]
OptionalNumber = Annotated[float | None, _one_word("NUMBER", float), SHOWN_IF_SET]
NumberOrOff = Annotated[
    float | str | None, _one_word("NUMBER|off", lambda text: text if text == "off" else float(text)), SHOWN_IF_SET
]
OptionalCount = Annotated[int | None, _one_word("COUNT", int), SHOWN_IF_SET]
Numbers = Annotated[tuple[int, ...], SHOWN_IF_SET]
RunDirectory = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
KeyValues = Annotated[
    dict[str, object],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="KEY=VALUE",
        instance_from_str=parse_key_values,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{key}={item}" for key, item in value.items()],
    ),
    SHOWN_IF_SET,
]
