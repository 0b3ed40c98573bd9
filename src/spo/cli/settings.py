"""The settings of `spo train` on the command line: which were given, and the help with the defaults of those."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, TypedDict

import tyro

from spo.cli.command import parse
from spo.config.config import OBJECTIVE_SETTINGS, Config, Essential, ObjectiveSettings, make_objective_field
from spo.config.sources import merge_sources
from spo.config.validation import ANNOTATIONS

GivenSettings = TypedDict("GivenSettings", ANNOTATIONS, total=False)
"""Those settings that a command line names; all others are missing."""
EXAMPLE = "HalfCheetah-v4"
"""Whose defaults the help shows where no environment is named."""


def parse_settings(words: list[str], program: str) -> dict[str, object]:
    """Parse the settings that the words of a command line give, and no others."""
    return dict(parse(GivenSettings, words, program))


def print_help(given: Mapping[str, object]) -> None:
    """Print the settings in their groups, with the defaults that they have beside those given, and exit."""
    config = merge_sources({"env": EXAMPLE} | given)
    own = config.objective_settings
    groups = [_choose_fields(kind, own) for kind in reversed(Config.__bases__)]
    layout = dataclasses.make_dataclass(
        "Layout", [(kind.__name__, Annotated[kind, tyro.conf.OmitArgPrefixes]) for kind in groups if _has_fields(kind)]
    )
    values = vars(config) | own | {"env": given.get("env", tyro.MISSING)}
    parse(
        layout,
        ["--help"],
        "spo train",
        layout(*(_fill(kind, values) for kind in groups if _has_fields(kind))),
        description=f"{Config.__doc__} Defaults are those of {config.env} with preset {config.preset}.",
    )


def _choose_fields(kind: type, own: Mapping[str, object]) -> type:
    """Leave of the objectives' settings those of the chosen one; its epsilon is essential."""
    if kind not in (Essential, ObjectiveSettings):
        return kind
    names = [name for name in OBJECTIVE_SETTINGS if name in own and (name == "epsilon") == (kind is Essential)]
    bases = (Essential,) if kind is Essential else ()
    made = [make_objective_field(name) for name in names]
    group = dataclasses.make_dataclass(kind.__name__, made, bases=bases, frozen=True, kw_only=True)
    group.__doc__ = kind.__doc__
    return group


def _has_fields(kind: type) -> bool:
    return bool(dataclasses.fields(kind))


def _fill(kind: type, values: Mapping[str, object]) -> object:
    return kind(**{field.name: values[field.name] for field in dataclasses.fields(kind)})
