"""Every objective with every learning-rate schedule, early stop and recorder: trained, or refused in a sentence."""

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import spo
from probes import CONTINUOUS, ActionReward
from spo.checks import HINTS
from spo.errors import Refusal
from spo.metrics import Progress
from spo.objectives import OBJECTIVES, Objective, settings_of
from spo.presets import make_config
from spo.rundir import RunDirectory

DOCUMENTED = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
SOMETIMES = {"episodes_cut", "beta", "step_fraction"}
"""Documented metrics that only some runs have."""
OWN = {"ppo-penalty": {"beta"}, "trpo": {"step_fraction"}}
SCHEDULES = get_args(HINTS["lr_schedule"])
ITERATIONS, EPOCHS = 2, 3
TINY = {
    "preset": "classic", "backend": "gymnasium", "envs": 2, "horizon": 8, "minibatches": 2, "epochs": EPOCHS,
    "steps": ITERATIONS * 16, "hidden": (4,), "critic_hidden": (4,), "learning_rate": 1e-2, "compile": "off",
}  # fmt: skip
ALWAYS, NEVER = 1e-8, 1e8
"""Limits that every iteration exceeds after its first epoch, and that none exceeds."""


def documented_metrics() -> set[str]:
    table = DOCUMENTED.partition("| key | meaning |")[2].partition("\n\n")[0]
    keys = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    return {name for key in keys for name in re.findall("`(.+?)`", key)} - SOMETIMES


def documented_tags() -> set[str]:
    return set(re.findall("`((?:charts|losses)/.+?)`", DOCUMENTED))


def stops_of(objective: Objective) -> Iterator[dict[str, float]]:
    """Settings for each combination of early stops: --target-kl, and the objective's own if it has one."""
    names = [*settings_of(objective.ends_epochs), *settings_of(objective.ends_updates)]
    own = [{name: limit} for name in names for limit in (ALWAYS, NEVER)] or [{}]
    for limits, target in itertools.product(own, ({}, {"target_kl": ALWAYS})):
        yield limits | target


def is_refused(objective: str, schedule: str, stops: dict[str, float]) -> bool:
    """The only pairs that do not go together: a trust region has neither a learning rate nor a second epoch."""
    return objective == "trpo" and (schedule == "adaptive-kl" or "target_kl" in stops)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_combination_trains_or_is_refused(objective, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Progress, "SECONDS_BETWEEN_LINES", -1.0)
    pairs = itertools.product(SCHEDULES, stops_of(OBJECTIVES[objective]))
    for number, (schedule, stops) in enumerate(pairs):
        settings = TINY | {"objective": objective, "lr_schedule": schedule} | stops
        if is_refused(objective, schedule, stops):
            with pytest.raises(
                Refusal, match=r"^--(lr-schedule|target-kl) \S+ does not go with objective trpo, .+: .+"
            ):
                make_config("probe", **settings)
            continue
        run = spo.train(lambda: ActionReward(CONTINUOUS), tensorboard=True, out=str(tmp_path / str(number)), **settings)
        check_rows(RunDirectory(run.directory).read_metrics(), objective, ends_early=ALWAYS in stops.values())
        check_tags(run.directory / "tensorboard")
        check_progress(capsys.readouterr().err)


def check_rows(rows: list[dict], objective: str, ends_early: bool) -> None:
    assert len(rows) == ITERATIONS
    for row in rows:
        assert set(row) == documented_metrics() | OWN.get(objective, set())
        assert all(math.isfinite(value) for value in row.values())
        assert row["epochs"] == (1 if ends_early else EPOCHS)


def check_tags(directory: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert set(tags) == documented_tags()
    for tag in tags:
        values = [event.value for event in events.Scalars(tag)]
        assert len(values) >= ITERATIONS and all(map(math.isfinite, values)), tag


def check_progress(told: str) -> None:
    lines = [line for line in told.splitlines() if " steps/s · " in line]
    assert len(lines) == ITERATIONS
    for line in lines:
        numbers = re.search(r"return (\S+) · ratio deviation (\S+) · KL (\S+)$", line).groups()
        assert all(math.isfinite(float(number)) for number in numbers), line
