"""The settings of `spo train` on the command line: which were given, and the help with the defaults of those."""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated, TypedDict

import tyro

from spo.cli.command import parse
from spo.config.config import OBJECTIVE_SETTINGS, Config, Essential, ObjectiveSettings, make_objective_field
from spo.config.sources import merge_sources
from spo.config.validation import ANNOTATIONS
from spo.errors import ConfigError

GivenSettings = TypedDict("GivenSettings", ANNOTATIONS, total=False)
"""Those settings that a command line names; all others are missing."""
ESSENTIAL_GROUPS = (Essential.__name__, ObjectiveSettings.__name__)
EXAMPLE = "HalfCheetah-v4"
"""Whose defaults the help shows where no environment is named."""


def parse_settings(words: list[str], program: str) -> dict[str, object]:
    """Parse the settings that the words of a command line give, and no others."""
    given = dict(parse(GivenSettings, words, program))
    if given.get("track") == ():
        raise ConfigError("--track names no tracker: say which, as in --track wandb (spo train --help-all lists them)")
    return given


def print_help(given: Mapping[str, object], is_whole: bool) -> None:
    """Print the essential settings or all of them, with the defaults that they have beside those given, and exit."""
    config = merge_sources({"env": EXAMPLE} | given)
    own = config.objective_settings
    groups = [group for kind in reversed(Config.__bases__) if dataclasses.fields(group := _choose_fields(kind, own))]
    shown = [kind for kind in groups if is_whole or kind.__name__ in ESSENTIAL_GROUPS]
    layout = dataclasses.make_dataclass(
        "Layout", [(kind.__name__, Annotated[kind, tyro.conf.OmitArgPrefixes]) for kind in shown]
    )
    values = vars(config) | own | {"env": given.get("env", tyro.MISSING)}
    try:
        parse(
            layout,
            ["--help"],
            "spo train",
            layout(*(_fill(kind, values) for kind in shown)),
            description=f"{Config.__doc__} Defaults are those of {config.env} with preset {config.preset}.",
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    finally:
        if not is_whole:
            print(_list_flags([kind for kind in groups if kind not in shown]))


def _list_flags(groups: Sequence[type]) -> str:
    """Name the flags of groups that are not explained here, and where they are."""
    lines = ["The others, which spo train --help-all explains with their defaults:"]
    for kind in groups:
        flags = " ".join(f"--{field.name.replace('_', '-')}" for field in dataclasses.fields(kind))
        indented = textwrap.fill(flags, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
        lines += ["", kind.__doc__ or kind.__name__, indented]
    return "\n".join(lines)


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


def _fill(kind: type, values: Mapping[str, object]) -> object:
    return kind(**{field.name: values[field.name] for field in dataclasses.fields(kind)})
