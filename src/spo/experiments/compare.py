"""Objectives and settings side by side: a question of one's own, asked as a plan like any suite."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, get_args, get_origin

from spo.config.config import Config
from spo.config.sources import make_config
from spo.errors import ConfigError
from spo.experiments.plan import COMPARISON, OF_ONE_RUN, Plan, check_seeds, make_title, path_component

OF_EACH_RUN = ("env", "objective", "seed", "steps", "out", "quiet", "config", "threads", "preset")
NOT_VARIED = {"env": "ENV", "objective": "--objectives", "seed": "--seeds", "steps": "--steps"}
"""Settings that a comparison takes another way, or of which all runs have one."""
SETTINGS = {
    field.name: field.type for field in fields(Config) if field.name not in ("out", "quiet", "config", "threads")
}

Parse = Callable[[list[str]], Config]


@dataclass(frozen=True)
class Variation:
    """A setting and the values that it takes, as they were typed."""

    setting: str
    values: tuple[str, ...]

    def words(self, value: str) -> list[str]:
        """The flag of `spo train` with one of the values; several words of it are several values of a list."""
        flag = self.setting.replace("_", "-")
        if SETTINGS[self.setting] is bool and value in ("true", "false"):
            return [f"--{flag}" if value == "true" else f"--no-{flag}"]
        return [f"--{flag}", *value.split()]


def read_variation(text: str) -> Variation:
    """A variation from KEY=a,b,c."""
    key, _, values = text.partition("=")
    setting, parts = key.removeprefix("--").replace("-", "_"), tuple(part.strip() for part in values.split(","))
    if not all(parts) or len(set(parts)) < len(parts):
        raise ConfigError(f"--vary {text} is not accepted: it must be KEY=a,b,c with each value once")
    if setting in NOT_VARIED:
        raise ConfigError(f"--vary {text} is not accepted: {key} is set with {NOT_VARIED[setting]}")
    if setting in OF_ONE_RUN:
        raise ConfigError(f"--vary {text} is not accepted: {OF_ONE_RUN[setting]}")
    if setting not in SETTINGS:
        raise ConfigError(f"--vary {text} is not accepted: it must be a setting of spo train, such as epsilon")
    return Variation(setting, parts)


def read_variations(texts: Sequence[str]) -> list[Variation]:
    """Read what varies, each setting once."""
    variations = [read_variation(text) for text in texts]
    settings = [variation.setting for variation in variations]
    for text, setting in zip(texts, settings):
        if settings.count(setting) > 1:
            values = ",".join(value for other in variations if other.setting == setting for value in other.values)
            instead = f"--vary {text.partition('=')[0]}={values} has all values of it"
            raise ConfigError(f"--vary {text} is not accepted: it must be the only one of its setting; {instead}")
    return variations


def check(envs: Sequence[str], objectives: Sequence[str], seeds: int, settings: Sequence[str]) -> None:
    """Refuse a comparison in which a run would not be what its name says."""
    check_seeds(seeds)
    if not envs or len(set(envs)) < len(envs):
        problem = f"ENV {' '.join(envs)} is not accepted" if envs else "ENV is missing"
        raise ConfigError(f"{problem}: name one or more environments first, each once, as in spo compare Hopper-v4")
    if not objectives or len(set(objectives)) < len(objectives):
        raise ConfigError(f"--objectives {' '.join(objectives)} is not accepted: it must be one or more, each once")
    check_flags(settings, {"objective": "--objectives names those to compare"})
    _refuse_several_values(settings)


def check_flags(words: Sequence[str], besides: Mapping[str, str] | None = None) -> None:
    """Refuse flags of `spo train` that no run of many would take over, with what says instead what they would."""
    refused = {name: OF_ONE_RUN[name] for name in ("seed", "threads", "quiet")} | dict(besides or {})
    for word in words:
        name = word.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        if word.startswith("--") and name in refused:
            raise ConfigError(f"{word} is not accepted here: {refused[name]}")


def _refuse_several_values(words: Sequence[str]) -> None:
    """Lead to --vary where a setting that has one value is given several."""
    for index, flag in enumerate(words):
        name = flag.removeprefix("--").replace("-", "_")
        if not flag.startswith("--") or name not in SETTINGS or _takes_several(SETTINGS[name]):
            continue
        values = list(itertools.takewhile(lambda word: not word.startswith("--"), words[index + 1 :]))
        if len(values) > 1:
            instead = f"--vary {flag[2:]}={','.join(values)} compares them"
            raise ConfigError(f"{flag} {' '.join(values)} is not accepted: it must be one value; {instead}")


def _takes_several(kind: object) -> bool:
    """Tell whether a setting's type is a list or a table, whatever is annotated to it."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    return get_origin(kind) in (tuple, dict) or any(map(_takes_several, get_args(kind)))


def plan_comparison(
    envs: Sequence[str],
    objectives: Sequence[str],
    variations: Sequence[Variation],
    seeds: int,
    words: Sequence[str],
    parse: Parse,
) -> Plan:
    """The plan that trains each objective with each value of what varies, on every environment.

    `words` are what the user asked of all runs, and `parse` reads the words of `spo train`.
    """
    common = {env: parse([env, "--objective", objectives[0], *words]) for env in envs}
    first = common[envs[0]]
    settings = {name: value for config in common.values() for name, value in given_settings(config).items()}
    variants = _variants(envs[0], objectives, variations, words, parse)
    return Plan(
        suite=f"compare {' '.join(envs)}",
        title=make_title(envs, variants),
        source=COMPARISON,
        preset=_common_value("--preset", [config.preset for config in common.values()]),
        steps=_common_value("--steps", [config.steps for config in common.values()]),
        seeds=seeds,
        tasks=tuple(envs),
        variants=variants,
        baseline="ppo-clip" if "ppo-clip" in variants else None,
        settings=_keep_critic(first, variations) | settings,
    )


def _common_value(flag: str, values: list) -> object:
    """What all environments have; presets may differ, as long as each environment has its own."""
    if len(set(values)) == 1:
        return values[0]
    if flag == "--preset":
        return None
    raise ConfigError(f"{flag} is missing: the environments' presets differ ({', '.join(map(str, values))})")


def _variants(
    env: str, objectives: Sequence[str], variations: Sequence[Variation], words: Sequence[str], parse: Parse
) -> dict[str, dict[str, object]]:
    """By name: the settings that make a variant what it is, as a configuration has them."""
    found = {}
    for objective in objectives:
        for values in itertools.product(*(variation.values for variation in variations)):
            chosen = list(zip(variations, values))
            flags = [word for variation, value in chosen for word in variation.words(value)]
            config = parse([env, "--objective", objective, *words, *flags])
            own = {variation.setting: _as_json(getattr(config, variation.setting)) for variation in variations}
            parts = [f"{variation.setting} {value}" for variation, value in chosen]
            name = ", ".join([objective, *parts] if len(objectives) > 1 or not parts else parts)
            _refuse_same(found, name, {"objective": objective} | own)
            found[name] = {"label": name, "objective": objective} | own
    return found


def _refuse_same(known: Mapping[str, Mapping[str, object]], name: str, own: Mapping[str, object]) -> None:
    """Refuse a variant that is another one, written otherwise."""
    for other, settings in known.items():
        if {"label": other} | own == settings:
            raise ConfigError(f"--vary is not accepted: {other} and {name} are the same; it must have each value once")


def critic_note(plan: Plan, variations: Sequence[Variation]) -> str:
    """What a study of ε does to the critic, whose clip follows ε where nobody says otherwise."""
    if not any(variation.setting == "epsilon" for variation in variations):
        return ""
    if "value_clip" in plan.settings:
        return f"--value-clip stays at {plan.settings['value_clip']} while epsilon varies: the critic is the same"
    if any(variation.setting == "value_clip" for variation in variations):
        return ""
    return "with --paper, --value-clip follows epsilon: the critic's loss varies too"


def _keep_critic(config: Config, variations: Sequence[Variation]) -> dict[str, object]:
    """A fixed clip of the value where ε varies and the authors' behaviour is not asked for."""
    varied = {variation.setting for variation in variations}
    is_tied = "epsilon" in varied and "value_clip" not in varied and config.value_clip is None
    return {"value_clip": config.value_clip_range} if is_tied and not config.paper and "paper" not in varied else {}


def given_settings(config: Config) -> dict[str, object]:
    """What a user asked for besides the preset, as JSON has it."""
    usual = vars(make_config(config.env, preset=config.preset, objective=config.objective, paper=config.paper))
    given = {name: value for name, value in asdict(config).items() if name not in OF_EACH_RUN and value != usual[name]}
    return {"paper": config.paper} | {name: _as_json(value) for name, value in given.items()}


def _as_json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def default_directory(envs: Sequence[str]) -> Path:
    """A new directory under runs/, named after the environments and the time."""
    return Path("runs") / f"compare-{path_component('-'.join(envs))}-{time.strftime('%Y%m%d-%H%M%S')}"
