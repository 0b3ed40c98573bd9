"""What every figure of a sweep needs: results of the right suite, and the words under the figure."""

import os

import numpy as np

from spo.errors import SpoError
from spo.experiments.command_lines import sweep_command
from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.plan import narrow, read_suite
from spo.experiments.results import Results
from spo.experiments.sweep import Sweep

Drawn = tuple[np.ndarray, np.ndarray]
"""Steps (points,) and runs (runs, points)."""


def open_results(arguments: FigureArguments, suite: str | None = None) -> Results:
    """Open the sweep that a figure is asked to show, of the suite that it is about, if some of it is finished."""
    name, path = arguments.name, arguments.sweep
    new = "a suite or comparison, which spo bench and spo compare run"
    if suite:
        new = f"suite {suite}, which {sweep_command(read_suite(suite), f'runs/{suite}')} runs"
    if path is None:
        raise SpoError(f"figure {name} needs --sweep, the directory of a sweep of {new}")
    if not os.path.isfile(path / "plan.json"):
        raise SpoError(f"--sweep {path} holds no plan.json; figure {name} shows {new}")
    plan = narrow(Sweep.open(path).plan, arguments.tasks, arguments.variants)
    results = Results(Sweep(path, plan))
    if suite and results.plan.suite != suite:
        raise SpoError(f"--sweep {path} is of suite {results.plan.suite}; figure {name} shows {new}")
    if not any(run.state == "finished" for run in results.runs.values()):
        command = sweep_command(results.plan, str(path)) or "the command that made it"
        raise SpoError(f"--sweep {path} has no finished run; {command} goes on with it")
    return results


def ended_curve(results: Results, task: str, variant: str, points: int) -> Drawn:
    """The curve of returns, without the runs in which no episode ended."""
    steps, runs = results.curve(task, variant, points)
    return steps, runs[np.isfinite(runs).all(1)]


def note_of(results: Results, *more: str) -> str:
    """What is said under a figure: what is reduced or missing, what is drawn, how it was trained and kept."""
    behaviour = "the authors' behaviour (--paper)" if results.plan.settings.get("paper") else "default behaviour"
    origin = f"from {results.origin}" if results.origin else ""
    parts = (results.plan.note, _missing_runs(results), _without_episode(results), *more, behaviour, origin)
    return " · ".join(part for part in parts if part)


def _missing_runs(results: Results) -> str:
    missing = [run for run in results.runs.values() if run.state != "finished"]
    failed = len(results.failures())
    remark = f" ({failed} of them failed)" if failed else ""
    return f"{len(missing)} of {len(results.runs)} runs unfinished{remark}" if missing else ""


def _without_episode(results: Results) -> str:
    """A finished run in which no episode ended has no return to show."""
    finished = [run for run in results.runs.values() if run.state == "finished"]
    count = sum(run.summary["return"] is None for run in finished)
    return f"{count} of {len(results.runs)} runs ended no episode" if count else ""


def last_share(results: Results) -> str:
    """Over what a run's return is taken, and where that was too little."""
    runs = [run for run in results.runs.values() if run.state == "finished" and run.summary["return"] is not None]
    short = sum(run.summary["return_from_last_episodes"] for run in runs)
    remark = f" (of {short} runs their last 8 episodes, because fewer ended there)" if short else ""
    return f"returns over the last {100 * results.plan.final_fraction:g} % of the steps{remark}"


def seed_count(counts: list[int]) -> str:
    """How many seeds there are of what is drawn."""
    low, high = min(counts), max(counts)
    return f"{high} seed{'s' if high > 1 else ''}" if low == high else f"{low} to {high} seeds"
