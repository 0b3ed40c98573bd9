"""Types of settings that a command line writes in its own way: 200k, off, key=value."""

import ast
from pathlib import Path
from typing import Annotated

import tyro

from spo.errors import SpoError

LARGEST_LAYER, MOST_LAYERS = 2**20, 1000
"""Of a network that a setting or a file may ask for."""
SUFFIXES = {"k": 10**3, "K": 10**3, "m": 10**6, "M": 10**6, "b": 10**9, "B": 10**9}


def parse_steps(text: str) -> int:
    """1000, 1e6, 200k, 1.5M as a whole number."""
    number, factor = (text[:-1], SUFFIXES[text[-1]]) if text and text[-1] in SUFFIXES else (text, 1)
    try:
        steps = round(float(number) * factor)
    except (ValueError, OverflowError):
        raise SpoError(f"--steps {text} is not a number of steps; accepted are forms such as 1000000, 1e6, 1M, 200k")
    return steps


def parse_number_or_off(text: str) -> float | str:
    return "off" if text == "off" else float(text)


def parse_key_values(texts: list[str]) -> dict[str, object]:
    """key=value pairs; a value that reads as a Python literal is one, anything else is text."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise SpoError(f"{text} is not accepted: --env-arg and --objective-arg take key=value")
        pairs[key] = _literal(value)
    return pairs


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return {"true": True, "false": False}.get(text, text)


def _one(metavar: str, parse) -> tyro.constructors.PrimitiveConstructorSpec:
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: parse(texts[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: ["–" if value is None else str(value)],
    )


Steps = Annotated[int, _one("STEPS", parse_steps)]
OptionalText = Annotated[str | None, _one("TEXT", str)]
OptionalPath = Annotated[Path | None, _one("PATH", Path)]
OptionalNumber = Annotated[float | None, _one("NUMBER", float)]
NumberOrOff = Annotated[float | str | None, _one("NUMBER|off", parse_number_or_off)]
OptionalCount = Annotated[int | None, _one("COUNT", int)]
KeyValues = Annotated[
    dict[str, object],
    tyro.constructors.PrimitiveConstructorSpec(
        nargs="*",
        metavar="KEY=VALUE",
        instance_from_str=parse_key_values,
        is_instance=lambda value: isinstance(value, dict),
        str_from_instance=lambda value: [f"{key}={item}" for key, item in value.items()],
    ),
]
