"""Every objective with every learning-rate schedule, early stop and recorder: trained, or refused in a sentence."""

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import torch

import spo
from lengths import leave_formulas
from probes import CONTINUOUS, DISCRETE, ActionReward, accepts_box
from spo.config.sources import make_config
from spo.config.validation import HINTS
from spo.errors import SpoError
from spo.objectives import INPUTS, OBJECTIVES, Objective, settings_of
from spo.runs.console import announce
from spo.runs.directory import RunDirectory
from spo.runs.loggers import ProgressLogger, TensorBoardLogger

DOCUMENTED = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
OF_SOME_ROWS = {
    "return_mean",
    "length_mean",
    "eval_return_mean",
    "eval_length_mean",
    "action_std",
    "clipped_action_fraction",
}
SOMETIMES = {"episodes_cut", "env_restarts", "beta", "epsilon", "step_fraction", *OF_SOME_ROWS}
"""Documented metrics that only some runs have."""
OWN = {"ppo-penalty": {"beta"}, "spo-adaptive": {"epsilon"}, "trpo": {"step_fraction"}}
SCHEDULES = get_args(HINTS["lr_schedule"])
ITERATIONS, EPOCHS = 2, 2
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


def documented_tags(objective: str) -> set[str]:
    tags = set(re.findall("`((?:charts|losses)/.+?)`", DOCUMENTED))
    return tags - {tag for name, tag in TensorBoardLogger.FED_BACK.items() if name not in OWN.get(objective, ())}


def stops_of(objective: Objective) -> Iterator[dict[str, float]]:
    """Settings for each combination of early stops: --target-kl, and the objective's own if it has one."""
    names = [*settings_of(objective.stop_epochs), *settings_of(objective.stop_minibatches)]
    own = [{name: limit} for name in names for limit in (ALWAYS, NEVER)] or [{}]
    for limits, target in itertools.product(own, ({}, {"target_kl": ALWAYS})):
        yield limits | target


def is_refused(objective: str, schedule: str, stops: dict[str, float]) -> bool:
    """The only pairs that do not go together: a trust region has neither a learning rate nor a second epoch."""
    return objective == "trpo" and (schedule == "adaptive-kl" or "target_kl" in stops)


@pytest.mark.parametrize("objective", leave_formulas(OBJECTIVES))
def test_every_combination_trains_or_is_refused(objective, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ProgressLogger, "SECONDS_BETWEEN_LINES", -1.0)
    space = CONTINUOUS if accepts_box(objective) else DISCRETE
    pairs = itertools.product(SCHEDULES, stops_of(OBJECTIVES[objective]))
    for number, (schedule, stops) in enumerate(pairs):
        settings = TINY | {"objective": objective, "lr_schedule": schedule} | stops
        if is_refused(objective, schedule, stops):
            with pytest.raises(
                SpoError, match=r"^--(lr-schedule|target-kl) \S+ does not go with objective trpo, .+: .+"
            ):
                make_config("Pendulum-v1", **settings)
            continue
        run = spo.train(lambda: ActionReward(space), tensorboard=True, out=str(tmp_path / str(number)), **settings)
        check_rows(RunDirectory(run.directory).read_metrics(), objective, ends_early=ALWAYS in stops.values())
        check_tags(run.directory / "tensorboard", objective)
        check_progress(capsys.readouterr().err)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_registry_knows_which_objectives_are_parabolas_beyond_the_bound(name):
    """Led back to a bound that stays, for either sign of A: beyond it ∂²f/∂r² is one negative number."""
    objective = OBJECTIVES[name]
    ratio = torch.linspace(0.05, 3.0, 60, dtype=torch.float64)
    ratio = ratio[(ratio - 1).abs() > 0.21].requires_grad_()
    curvatures, is_led_back = [], True
    for sign in (1.0, -1.0):
        inputs = {other: torch.full_like(ratio, 0.01) for other in INPUTS} | {"ratio": ratio}
        inputs["advantage"] = torch.full_like(ratio, sign)
        value = objective.function(*[inputs[each] for each in objective.inputs]).sum()
        (slope,) = torch.autograd.grad(value, ratio, create_graph=True)
        curvatures.append(torch.autograd.grad(slope.sum() + 0 * ratio.sum(), ratio)[0])
        is_led_back &= bool((sign * slope[sign * (ratio - 1) > 0] < 0).all())  # DRPO's peak is out of reach
    curvature = torch.cat(curvatures)
    is_parabola = is_led_back and bool((curvature < -1e-6).all()) and float(curvature.max() - curvature.min()) < 1e-6
    assert objective.is_quadratic == (is_parabola and objective.adaptive_setting != "epsilon")


@pytest.mark.parametrize(
    "settings, is_told",
    [
        ({"objective": "spo"}, True),
        ({"objective": "simple"}, True),
        ({"objective": "spo-power"}, True),
        ({"objective": "spo-adaptive"}, False),
        ({"objective": "aspo"}, False),
        ({"objective": "ppo-clip"}, False),
        ({"objective": "spo", "lr_kl_target": 0.002}, False),
        ({"objective": "spo", "lr_kl_target": 0.002, "epsilon": 0.1}, True),
        ({"objective": "spo", "lr_schedule": "linear"}, False),
        ({"objective": "spo", "lr_kl_target": 0.0001, "epsilon_schedule": "linear"}, True),
    ],
    ids=str,
)
def test_a_rate_that_would_climb_to_its_cap_is_told_when_the_run_starts(settings, is_told, capsys):
    announce(make_config("Pendulum-v1", **TINY | {"lr_schedule": "adaptive-kl"} | settings))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + is_told
    if is_told:
        told = f"warning: {settings['objective']} keeps the KL mostly below half of --lr-kl-target"
        instead = "to its cap of 0.01; use --lr-schedule linear"
        instead += "" if "epsilon_schedule" in settings else ", or a target of at most"
        assert lines[1].startswith(told) and instead in lines[1]


def check_rows(rows: list[dict], objective: str, ends_early: bool) -> None:
    assert len(rows) == ITERATIONS
    for row in rows:
        assert set(row) - OF_SOME_ROWS == documented_metrics() | OWN.get(objective, set())
        assert all(math.isfinite(value) for value in row.values())
        assert row["epochs"] == (1 if ends_early else EPOCHS)


def check_tags(directory: Path, objective: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert set(tags) - set(TensorBoardLogger.OPTIONAL.values()) == documented_tags(objective)
    for tag in tags:
        values = [event.value for event in events.Scalars(tag)]
        assert len(values) >= ITERATIONS and all(map(math.isfinite, values)), tag


def check_progress(told: str) -> None:
    lines = [line for line in told.splitlines() if " steps/s · " in line]
    assert len(lines) == ITERATIONS
    for line in lines:
        numbers = re.search(r"return (\S+) · ratio deviation (\S+) · .* · KL (\S+)(?: · ε [\d.e-]+)?$", line).groups()
        assert all(math.isfinite(float(number)) for number in numbers), line
