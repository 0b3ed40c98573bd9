"""Objectives side by side on one task: an ad-hoc question, asked as a plan like any suite."""

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from spo.bench.suites import Plan, safe
from spo.config import Config

OF_EACH_RUN = ("env", "objective", "seed", "steps", "out", "quiet", "config", "threads", "preset")


def plan_of(configs: Mapping[str, Config], seeds: int) -> Plan:
    """The plan that trains each objective with its settings, all on the first one's task and for its steps."""
    first = next(iter(configs.values()))
    variants = {name: {"label": name, "objective": name} | _settings(config) for name, config in configs.items()}
    return Plan(
        suite=f"compare {first.env}",
        title=f"{first.env}: {', '.join(configs)}",
        source="an ad-hoc comparison",
        preset=first.preset,
        steps=first.steps,
        seeds=seeds,
        tasks=(first.env,),
        variants=variants,
        normalizes="ppo-clip" if "ppo-clip" in configs else None,
    )


def _settings(config: Config) -> dict[str, object]:
    """All that is fixed about a run, as JSON has it."""
    fixed = {name: value for name, value in asdict(config).items() if name not in OF_EACH_RUN}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fixed.items()}


def default_directory(env: str) -> Path:
    return Path("runs") / f"compare-{safe(env)}-{time.strftime('%Y%m%d-%H%M%S')}"
