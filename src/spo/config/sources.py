"""Where settings come from: preset < file < --paper < what is given."""

import dataclasses
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from spo.config.config import Config
from spo.config.env_ids import is_atari
from spo.config.validation import built, checked, typed
from spo.errors import SpoError
from spo.runtime.files import LARGEST_TEXT, parse_json, read_bounded

LARGEST_TOML = 2**14
"""Python reads a key of n parts in n² steps."""


def make_config(env: str, preset: str | None = None, config: str | None = None, **settings) -> Config:
    """A checked Config; later sources win: preset, configuration file, --paper, explicit settings."""
    unchecked = unchecked_config(env, preset, config, settings.get("paper"), settings.get("objective"))
    return checked(dataclasses.replace(unchecked, **typed(settings)))


def unchecked_config(
    env: str, preset: str | None, config: str | None, paper: bool | None, objective: str | None
) -> Config:
    """The defaults that flags are laid over."""
    typed({"env": env, "config": config})
    from_file = {} if config is None else read_settings(Path(config))
    if objective is None and ":" in from_file.get("objective", ""):
        raise SpoError(f"--config {config} names a module: repeat --objective {from_file['objective']} to import it")
    preset = from_file.get("preset", default_preset(env)) if preset is None else preset
    typed({"preset": preset})
    values = read_preset(preset) | from_file | {"env": env, "preset": preset, "config": config}
    if paper is None:
        paper = values.get("paper", False)
    if paper:
        values |= {"paper": True} | {
            name: value for name, value in paper_behaviour(values).items() if name not in from_file
        }
    return built(values)


def default_preset(env: str) -> str:
    return "atari" if is_atari(env) else "mujoco"


def paper_behaviour(values: Mapping[str, object]) -> dict[str, str]:
    """What --paper changes; a normaliser that is off stays off."""
    normalizers = ("normalize_observation", "normalize_reward")
    per_env = {name: "per-env" for name in normalizers if values[name] != "off"}
    wrappers = {"atari_wrappers": "authors"} if is_atari(values["env"]) else {}
    return {"truncation": "terminal"} | per_env | wrappers


def preset_names() -> list[str]:
    names = [file.name.removesuffix(".toml") for file in resources.files("spo.config").joinpath("presets").iterdir()]
    return sorted(name for name in names if not name.startswith("_"))


def read_preset(name: str) -> dict[str, object]:
    if name not in preset_names():
        raise SpoError(f"--preset {name} is unknown; accepted: {', '.join(preset_names())}")
    return tomllib.loads(resources.files("spo.config").joinpath("presets", f"{name}.toml").read_text())


def read_settings(path: Path) -> dict[str, object]:
    """Settings from a TOML or JSON file; a run's config.json keeps them under "settings"."""
    is_json = path.suffix == ".json"
    try:
        content = read_bounded(path, LARGEST_TEXT if is_json else LARGEST_TOML)
        values = parse_json(content) if is_json else tomllib.loads(content.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise SpoError(f"--config {path} cannot be read as TOML or JSON: {error}")
    settings = values.get("settings", values) if isinstance(values, dict) else values
    if not isinstance(settings, dict):
        raise SpoError(f"--config {path} holds a {type(settings).__name__}; accepted is a table of settings")
    return typed({name: value for name, value in settings.items() if name not in ("env", "out", "config")})
