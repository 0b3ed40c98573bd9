"""Objectives side by side on one task: an ad-hoc question, asked as a plan like any suite."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from spo.config.config import Config
from spo.config.sources import make_config
from spo.errors import SpoError
from spo.experiments.plan import Plan, check_seeds, path_component

OF_EACH_RUN = ("env", "objective", "seed", "steps", "out", "quiet", "config", "threads", "preset")


def check(objectives: Sequence[str], seeds: int, settings: Sequence[str]) -> None:
    """Every run must be what its name says."""
    check_seeds(seeds)
    if not objectives or len(set(objectives)) < len(objectives):
        raise SpoError(f"--objectives {' '.join(objectives)} is not accepted: it must be one or more, each once")
    for text in settings:
        if text.split("=")[0] in ("--objective", "--seed"):
            raise SpoError(f"{text} is not accepted here: it must be set with --objectives and --seeds")


def plan_of(configs: Mapping[str, Config], seeds: int) -> Plan:
    """The plan that trains each objective, all on the first one's task and with what was asked of all."""
    first = next(iter(configs.values()))
    return Plan(
        suite=f"compare {first.env}",
        title=f"{first.env}: {', '.join(configs)}",
        source="an ad-hoc comparison",
        preset=first.preset,
        steps=first.steps,
        seeds=seeds,
        tasks=(first.env,),
        variants={name: {"label": name, "objective": name} for name in configs},
        baseline="ppo-clip" if "ppo-clip" in configs else None,
        settings=_given_settings(first),
    )


def _given_settings(config: Config) -> dict[str, object]:
    """What a user asked for besides the preset, as JSON has it."""
    usual = vars(make_config(config.env, preset=config.preset, objective=config.objective, paper=config.paper))
    asked = {name: value for name, value in asdict(config).items() if name not in OF_EACH_RUN and value != usual[name]}
    lists = {name: list(value) for name, value in asked.items() if isinstance(value, tuple)}
    return {"paper": config.paper} | asked | lists


def default_directory(env: str) -> Path:
    return Path("runs") / f"compare-{path_component(env)}-{time.strftime('%Y%m%d-%H%M%S')}"
