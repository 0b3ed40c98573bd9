"""What the runs of a sweep came to: cells of a table, scores and curves. No torch here."""

import csv
import io
import os
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from spo.errors import SpoError
from spo.experiments.history import BINS, DIGITS, SUMMARY, History, from_files, from_rows, is_packed
from spo.experiments.plan import Cell, Plan
from spo.experiments.sweep import Sweep
from spo.runs.directory import RunDirectory

NUMBERS = ("return", "ratio_deviation_max", "env_steps")
"""What results.csv has of a finished run."""
DAMAGE = (SpoError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
DAMAGE += (OSError, EOFError, zlib.error)
"""What reading a run's files may raise when they do not hold what a run writes."""


@dataclass(frozen=True)
class Result:
    """One run: how far it got, why it is not finished, and what it came to."""

    cell: Cell
    directory: RunDirectory
    state: str  # waiting, running, interrupted, failed, finished, or damaged: its files are not those of such a run
    reason: str | None = None
    status: Mapping = field(default_factory=dict)
    config: Mapping = field(default_factory=dict)
    history: History | None = None  # of a finished run
    summary: Mapping[str, float | bool | None] = field(default_factory=dict)  # likewise

    @property
    def epsilon(self) -> float | None:
        """The ε of the whole run; None where the objective has none, or it changes."""
        own = self.config["resolved"].get("objective_settings") if self.config else None
        is_constant = self.config.get("settings", {}).get("epsilon_schedule", "constant") == "constant"
        stays = isinstance(own, Mapping) and is_constant and "epsilon_gain" not in own
        value = own.get("epsilon") if stays else None
        return float(value) if isinstance(value, int | float) and value > 0 else None

    @property
    def inexact_reasons(self) -> list[str]:
        """Why the run is not to the bit what an uninterrupted one would be."""
        if self.status.get("exact", True):
            return []
        reasons = self.status.get("inexact_reasons", self.status.get("departures"))
        is_list = isinstance(reasons, list) and reasons
        return [str(line) for line in reasons] if is_list else ["status.json does not say why"]

    @property
    def total_steps(self) -> int:
        """Of a finished run."""
        return _length(self.config, self.status)[1]

    @property
    def has_return(self) -> bool:
        return self.state == "finished" and self.summary["return"] is not None

    @property
    def failure_reason(self) -> str | None:
        """Why the run has no return, where that is known."""
        return "no episode ended" if self.state == "finished" and not self.has_return else self.reason

    @property
    def state_text(self) -> str:
        """How far the run got, in words."""
        return f"{self.state}: {self.failure_reason}" if self.failure_reason else self.state


@dataclass(frozen=True)
class Entry:
    """A cell of the table: one variant on one task, over its finished seeds."""

    returns: np.ndarray
    deviations: np.ndarray
    paper: tuple[float, float] | None
    unfinished: tuple[str, ...]  # a sentence for each run that has no part in it
    from_last_episodes: bool  # in some run fewer than 8 episodes ended in the last share, so the last 8 were taken

    @property
    def mean(self) -> float | None:
        return float(self.returns.mean()) if len(self.returns) else None

    @property
    def deviation(self) -> float | None:
        """The maximum over the seeds of each run's maximum ratio deviation."""
        return float(self.deviations.max()) if len(self.deviations) else None

    @property
    def std(self) -> float:
        return float(self.returns.std(ddof=1)) if len(self.returns) > 1 else 0.0


class Results:
    """All that a sweep's directory holds now."""

    def __init__(self, sweep: Sweep):
        self.sweep, self.plan = sweep, sweep.plan
        self.runs = {cell: _read_result(sweep, cell) for cell in self.plan.cells()}

    def finished_runs(self, task: str, variant: str) -> list[Result]:
        return [run for run in self.runs_of(task, variant) if run.state == "finished"]

    def runs_of(self, task: str, variant: str) -> list[Result]:
        return [run for cell, run in self.runs.items() if (cell.task, cell.variant) == (task, variant)]

    def entry(self, task: str, variant: str) -> Entry:
        runs = self.runs_of(task, variant)
        counted = [run for run in runs if run.has_return]
        paper = self.plan.paper.get(task, {}).get(variant)
        return Entry(
            np.array([run.summary["return"] for run in counted]),
            np.array([run.summary["ratio_deviation_max"] for run in counted]),
            tuple(paper) if paper else None,
            tuple(f"seed {run.cell.seed} {run.state_text}" for run in runs if not run.has_return),
            any(run.summary["return_from_last_episodes"] for run in counted),
        )

    def failures(self) -> list[Result]:
        return [run for run in self.runs.values() if run.state == "failed"]

    def versions(self) -> dict[str, dict[str, list[Cell]]]:
        """By package: by version, the runs made with it. More than one version is a mixture, and is shown."""
        return self._by_value(lambda config: config["versions"])

    def circumstances(self) -> dict[str, dict[str, list[Cell]]]:
        """Likewise the machines, and what was chosen on them."""
        chosen = ("backend", "update", "threads")
        return self._by_value(
            lambda config: config["machine"] | {name: config["resolved"].get(name) for name in chosen}
        )

    def _by_value(self, values_of: Callable[[Mapping], Mapping]) -> dict[str, dict[str, list[Cell]]]:
        found: dict[str, dict[str, list[Cell]]] = {}
        for cell, run in self.runs.items():
            for name, value in values_of(run.config).items() if run.config else ():
                found.setdefault(name, {}).setdefault(str(value), []).append(cell)
        return found

    def is_complete(self) -> bool:
        return all(run.state == "finished" for run in self.runs.values())

    def scores(self, variant: str) -> dict[str, np.ndarray]:
        """Raw returns by task, for the tasks on which the variant has finished runs."""
        entries = {task: self.entry(task, variant) for task in self.plan.tasks}
        return {task: entry.returns for task, entry in entries.items() if len(entry.returns)}

    def curve(self, task: str, variant: str, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Steps (points,), and for each finished run the mean return of the episodes that ended in each bin."""
        runs = self.finished_runs(task, variant)
        return _curves(runs, [run.history.return_curve(points) for run in runs], points)

    def deviation_curve(self, task: str, variant: str, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Steps (points,), and each finished run's largest ratio deviation in each bin."""
        runs = self.finished_runs(task, variant)
        return _curves(runs, [run.history.peak_curve("ratio_deviation_max", points) for run in runs], points)

    def metric_curve(self, task: str, variant: str, name: str, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Steps (points,), and the mean of a metric in each bin of each finished run that has it."""
        runs = [run for run in self.finished_runs(task, variant) if name in run.history.metrics]
        return _curves(runs, [run.history.metric_curve(name, points) for run in runs], points)

    @property
    def origin(self) -> str:
        """What the finished runs were read from: all their rows, or what is packed of them."""
        packed = [run.history.is_packed for run in self.runs.values() if run.history]
        curves = f"packed curves ({BINS} bins, {DIGITS} digits)"
        if all(packed) or not any(packed):
            return "" if not packed else curves if packed[0] else "all rows"
        return f"all rows of {packed.count(False)} runs and {curves} of {packed.count(True)}"

    def csv(self) -> str:
        """One line per run, without times, so that equal runs give equal bytes."""
        rows = [["task", "variant", "seed", "state", *NUMBERS, "note"]]
        for cell, run in sorted(self.runs.items()):
            numbers = ["" if (number := run.summary.get(name)) is None else repr(number) for name in NUMBERS]
            rows.append([*cell, run.state, *numbers, run.reason])
        return _write_csv(rows)


def curves_csv(results: Results, points: int = 100) -> str:
    """One line for each hundredth of each finished run: what the report and the figures draw, as data."""
    lines = [["task", "variant", "seed", "env_steps", "return", "ratio_deviation_max"]]
    for cell, run in sorted(results.runs.items()):
        if run.history:
            columns = run.history.return_curve(points), run.history.peak_curve("ratio_deviation_max", points)
            steps = np.linspace(0, run.total_steps, points + 1)[1:]
            rows = zip(steps, *columns)
            lines += [[*cell, *("" if np.isnan(value) else f"{value:.6g}" for value in row)] for row in rows]
    return _write_csv(lines)


def _write_csv(rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _curves(runs: list[Result], curves: list[np.ndarray], points: int) -> tuple[np.ndarray, np.ndarray]:
    total = max((run.total_steps for run in runs), default=0)
    return np.linspace(0, total, points + 1)[1:], np.array(curves).reshape(len(runs), points)


# Reading one run


def _read_result(sweep: Sweep, cell: Cell) -> Result:
    """A run as its files tell it; one whose files are damaged must not hide the others."""
    directory = sweep.run(cell)
    try:
        return _read_files(sweep.plan, cell, directory)
    except DAMAGE as error:
        reason = str(error) if isinstance(error, SpoError) else f"{type(error).__name__}: {error}"
        return Result(cell, directory, "damaged", reason.replace(f"{directory.path}{os.sep}", ""))


def _read_files(plan: Plan, cell: Cell, directory: RunDirectory) -> Result:
    status = directory.read_status()
    config = directory.read_config() if directory.config.exists() else {}
    state, reason = str(status.get("state", "waiting")), status.get("reason")
    if config or state == "finished":
        _check_config(plan, cell, config)
    if state != "finished" and is_packed(directory):
        raise SpoError(f"status.json says {state}; only finished runs are packed")
    history = _history(directory, *_length(config, status), plan.final_fraction) if state == "finished" else None
    summary = history.summary(plan.final_fraction) if history else {}
    return Result(cell, directory, state, str(reason) if reason else None, status, config, history, summary)


def _check_config(plan: Plan, cell: Cell, config: Mapping) -> None:
    """A run that was moved here, or resumed to another length, is not what its place says."""
    for part in ("settings", "resolved", "versions", "machine"):
        if not isinstance(config.get(part), dict):
            raise SpoError(f"config.json has no table {part!r}")
    wanted = dict(plan.settings) | dict(plan.variants[cell.variant])
    wanted |= {"env": cell.task, "seed": cell.seed, "steps": plan.steps}
    for name, value in wanted.items():
        found, value = config["settings"].get(name), list(value) if isinstance(value, tuple) else value
        if name != "label" and found != value:
            raise SpoError(f"config.json says {name} {found}; this run's is {value}")


def _length(config: Mapping, status: Mapping) -> tuple[int, int]:
    """Iterations and steps of a finished run: those that were planned, unless it reached the return that it was to."""
    planned = [_count(config["resolved"], name) for name in ("iterations", "total_steps")]
    if config["settings"].get("stop_at") is None or status.get("reason") is None:
        return planned[0], planned[1]
    made = [_count(status, name, "status.json") for name in ("iteration", "env_steps")]
    return min(planned[0], made[0]), min(planned[1], made[1])


def _history(directory: RunDirectory, iterations: int, total_steps: int, last: float) -> History:
    if is_packed(directory):
        history = from_files(directory)
        _check_rows(SUMMARY, history.numbers["iterations"], iterations)
        return history
    rows = directory.read_metrics()
    _check_rows("metrics.jsonl", len(rows), iterations)
    return from_rows(rows, directory.read_episodes(), total_steps, iterations, last)


def _check_rows(file: str, found: int, made: int) -> None:
    if found != made:
        raise SpoError(f"{file} has {found} whole rows; {made} were made")


def _count(values: Mapping, name: str, file: str = "config.json") -> int:
    value = values.get(name)
    if not isinstance(value, int) or not 0 < value < 2**53:
        raise SpoError(f"{file} says {name} {value}; it is a whole number of at least 1")
    return value
