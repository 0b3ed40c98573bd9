"""Where settings come from, for Python and the command line alike: preset < file < --paper < what is given."""

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from spo.config.config import Config
from spo.config.env_ids import add_version, is_atari, is_classic, module_in_envpool
from spo.config.validation import coerce, config_from_dict, format_value, validate
from spo.errors import ConfigError, suggest
from spo.runtime.files import LARGEST_TEXT, parse_json, read_bounded

LARGEST_TOML = 2**14
"""Python reads a key of n parts in n² steps."""


def make_config(env: str | Config, preset: str | None = None, config: str | None = None, **settings: Any) -> Config:
    """Make a checked Config of an environment and any settings; the others come from a file and a preset.

    A Config in place of the environment is changed in the given settings alone.
    """
    if isinstance(env, Config):
        return validate(_change(env, {"preset": preset, "config": config} | settings))
    return validate(merge_sources({"env": env, "preset": preset, "config": config} | settings))


def _change(config: Config, given: Mapping[str, Any]) -> Config:
    """Replace settings of a complete Config, into which no further source is read."""
    given = _coerce_given(given)
    for name in given.keys() & {"preset", "config", "paper"}:
        raise ConfigError(f"{name}={given[name]!r} is not accepted beside a Config: it must be given to make_config")
    return dataclasses.replace(config, **given)


def merge_sources(given: Mapping[str, Any]) -> Config:
    """Merge all sources into a Config that is not checked yet; later ones win: preset, file, --paper, what is given."""
    given = _coerce_given(given)
    given = given | {"env": add_version(given["env"])}
    from_file = _read_config_file(given)
    preset = given.get("preset", from_file.get("preset", choose_preset(given["env"])))
    values = read_preset(preset) | from_file | {"env": given["env"], "preset": preset}
    if given.get("paper", from_file.get("paper", False)):
        values = values | {"paper": True} | paper_behaviour(values) | from_file
    return config_from_dict(values | given)


def _coerce_given(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert what was given, without a preset and a file that are None."""
    unset = [name for name in ("preset", "config") if given.get(name) is None]
    given = {name: value for name, value in _name_function(given).items() if name not in unset}
    return coerce({name: to_plain(value) for name, value in given.items()})


def to_plain(value: Any) -> Any:
    """Turn a path into text and NumPy's numbers into Python's, also those in a sequence or a table."""
    if isinstance(value, list | tuple):
        return tuple(map(_to_plain_item, value))
    if isinstance(value, dict):
        return {name: _to_plain_item(item) for name, item in value.items()}
    return _to_plain_item(value)


def _to_plain_item(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _name_function(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace an objective that is a function by its import path, under which a run can be resumed."""
    function = given.get("objective")
    if not callable(function):
        return dict(given)
    name = getattr(function, "__qualname__", "")
    if not name.isidentifier():
        raise ConfigError(
            f"objective={format_value(function)} is not accepted: it must be a function at the top of a module, or text"
        )
    return {**given, "objective": f"{function.__module__}:{name}"}


def _read_config_file(given: Mapping[str, Any]) -> dict[str, Any]:
    """Read the file that --config names; what it would import must be named again."""
    if "config" not in given:
        return {}
    settings = read_settings(Path(given["config"]))
    for name in ("objective", "encoder"):
        if name not in given and ":" in settings.get(name, ""):
            named = f"--{name} {settings[name]}"
            raise ConfigError(f"--config {given['config']} names a module: repeat {named} to import it")
    if "wrapper" not in given and settings.get("wrapper"):
        named = f"--wrapper {' '.join(settings['wrapper'])}"
        raise ConfigError(f"--config {given['config']} names a module: repeat {named} to import it")
    return settings


def choose_preset(env: str) -> str:
    """Choose the preset of an environment: by its kind, or MuJoCo's."""
    if is_atari(env):
        return "atari"
    if is_classic(env):
        return "classic"
    return "dm-control" if module_in_envpool(env) == "envpool.mujoco.dmc" else "mujoco"


def paper_behaviour(values: Mapping[str, Any]) -> dict[str, str]:
    """What --paper changes; a normaliser that is off stays off."""
    normalizers = ("normalize_observation", "normalize_reward")
    per_env = {name: "per-env" for name in normalizers if values[name] != "off"}
    wrappers = {"atari_wrappers": "authors"} if is_atari(values["env"]) else {}
    return {"truncation": "terminal"} | per_env | wrappers


def preset_names() -> list[str]:
    """List the presets."""
    names = [file.name.removesuffix(".toml") for file in resources.files("spo.config").joinpath("presets").iterdir()]
    return sorted(name for name in names if not name.startswith("_"))


def read_preset(name: str) -> dict[str, Any]:
    """Read the settings of a preset."""
    if name not in preset_names():
        raise ConfigError(
            f"--preset {name} is unknown{suggest(name, preset_names())}; accepted: {', '.join(preset_names())}"
        )
    return tomllib.loads(resources.files("spo.config").joinpath("presets", f"{name}.toml").read_text())


def read_settings(path: Path) -> dict[str, Any]:
    """Read settings from a TOML or JSON file; a run's config.json keeps them under "settings"."""
    is_json = path.suffix == ".json"
    try:
        content = read_bounded(path, LARGEST_TEXT if is_json else LARGEST_TOML)
        values = parse_json(content) if is_json else tomllib.loads(content.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} cannot be read as TOML or JSON: {error}")
    settings = values.get("settings", values) if isinstance(values, dict) else values
    if not isinstance(settings, dict):
        raise ConfigError(f"--config {path} holds a {type(settings).__name__}; accepted is a table of settings")
    return coerce({name: value for name, value in settings.items() if name not in ("env", "out", "config")})
