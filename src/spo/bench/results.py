"""What the runs of a sweep came to: cells of a table, scores and curves. No torch here."""

import csv
import io
import os
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from spo.bench import statistics
from spo.bench.suites import Cell, Plan, Sweep
from spo.errors import Refusal
from spo.rundir import RunDirectory, summarize

DAMAGE = (Refusal, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
DAMAGE += (OSError, EOFError, zlib.error)
"""What reading a run's files may raise when they do not hold what a run writes."""
LARGEST = 1e100
"""No return or deviation reaches it, and sums of smaller numbers are finite."""


@dataclass(frozen=True)
class History:
    """What is counted and drawn of a finished run. Its rows are let go: those of a whole suite would fill memory."""

    summary: dict[str, float | bool | None]
    steps: np.ndarray  # at which each episode ended
    returns: np.ndarray
    iteration_means: np.ndarray  # of the returns, for the iterations in which an episode ended
    iteration_steps: np.ndarray
    deviations: np.ndarray  # each iteration's largest
    mean_deviations: np.ndarray  # each iteration's mean; empty where the rows have none
    epsilons: np.ndarray  # each iteration's width, where it is adapted; else empty


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

    @property
    def episodes(self) -> list[dict]:
        return self.directory.read_episodes()

    @property
    def metrics(self) -> list[dict]:
        return self.directory.read_metrics()

    @property
    def summary(self) -> dict[str, float | bool | None]:
        return self.history.summary

    @property
    def epsilon(self) -> float | None:
        """The ε of the whole run; None where the objective has none, or adapts it."""
        own = self.config["resolved"].get("objective_settings") if self.config else None
        value = own.get("epsilon") if isinstance(own, Mapping) and "epsilon_gain" not in own else None
        return float(value) if isinstance(value, int | float) and value > 0 else None

    @property
    def departures(self) -> list[str]:
        """Why the run is not to the bit what an uninterrupted one would be."""
        if self.status.get("exact", True):
            return []
        told = self.status.get("departures")
        return [str(line) for line in told] if told and isinstance(told, list) else ["status.json does not say why"]

    @property
    def has_return(self) -> bool:
        return self.state == "finished" and self.summary["return"] is not None

    @property
    def trouble(self) -> str | None:
        """Why the run has no return, where that is known."""
        return "no episode ended" if self.state == "finished" and not self.has_return else self.reason

    @property
    def outcome(self) -> str:
        """How far the run got, in words."""
        return f"{self.state}: {self.trouble}" if self.trouble else self.state


@dataclass(frozen=True)
class Entry:
    """A cell of the table: one variant on one task, over its finished seeds."""

    returns: np.ndarray
    deviations: np.ndarray
    paper: tuple[float, float] | None
    unfinished: tuple[str, ...]  # a sentence for each run that has no part in it
    is_short: bool  # in some run fewer than 8 episodes ended in the last share, so the last 8 were taken

    @property
    def mean(self) -> float | None:
        return float(self.returns.mean()) if len(self.returns) else None

    @property
    def deviation(self) -> float | None:
        """The maximum over the seeds of each run's maximum ratio deviation."""
        return float(self.deviations.max()) if len(self.deviations) else None

    @property
    def spread(self) -> float:
        return float(self.returns.std(ddof=1)) if len(self.returns) > 1 else 0.0


class Results:
    """All that a sweep's directory holds now."""

    def __init__(self, sweep: Sweep):
        self.sweep, self.plan = sweep, sweep.plan
        self.runs = {cell: _result(sweep, cell) for cell in self.plan.cells()}

    def finished(self, task: str, variant: str) -> list[Result]:
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
            tuple(f"seed {run.cell.seed} {run.outcome}" for run in runs if not run.has_return),
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
        runs, edges = self._in_bins(task, variant, points)
        curves = [binned(run.history.steps, run.history.returns, edges) for run in runs]
        return edges[1:], np.array(curves).reshape(len(runs), points)

    def deviation_curve(self, task: str, variant: str, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Steps (points,), and each finished run's largest ratio deviation in each bin."""
        runs, edges = self._in_bins(task, variant, points)
        curves = [peaks(run.history.iteration_steps, run.history.deviations, edges) for run in runs]
        return edges[1:], np.array(curves).reshape(len(runs), points)

    def width_curve(self, task: str, variant: str, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Steps (points,), and the mean ε in each bin of each finished run that adapts it."""
        runs, edges = self._in_bins(task, variant, points)
        histories = [run.history for run in runs if len(run.history.epsilons)]
        curves = [binned(history.iteration_steps, history.epsilons, edges) for history in histories]
        return edges[1:], np.array(curves).reshape(len(curves), points)

    def _in_bins(self, task: str, variant: str, points: int) -> tuple[list[Result], np.ndarray]:
        runs = self.finished(task, variant)
        total = max((run.config["resolved"]["total_steps"] for run in runs), default=0)
        return runs, np.linspace(0, total, points + 1)

    def csv(self) -> str:
        """One line per run, without times, so that equal runs give equal bytes."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["task", "variant", "seed", "state", "return", "ratio_deviation_max", "env_steps", "note"])
        for cell, run in sorted(self.runs.items()):
            summary = run.summary if run.state == "finished" else {}
            numbers = [summary.get(name) for name in ("return", "ratio_deviation_max", "env_steps")]
            writer.writerow(
                [*cell, run.state, *("" if number is None else repr(number) for number in numbers), run.reason]
            )
        return text.getvalue()


def binned(steps: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Mean value per bin of steps; a bin without any repeats the one before it (or the first that has one)."""
    index, counts = _bins(steps, edges)
    sums = np.bincount(index, values, minlength=len(counts))
    return _filled(sums / np.maximum(counts, 1), counts)


def peaks(steps: np.ndarray, values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Largest value per bin of steps, likewise."""
    index, counts = _bins(steps, edges)
    largest = np.full(len(counts), -np.inf)
    np.maximum.at(largest, index, values)
    return _filled(largest, counts)


def _bins(steps: np.ndarray, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bin of each, which its upper edge belongs to, and how many are in each bin."""
    index = np.clip(np.searchsorted(edges, steps, side="left") - 1, 0, len(edges) - 2)
    return index, np.bincount(index, minlength=len(edges) - 1)


def _filled(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    known = np.flatnonzero(counts)
    if not len(known):
        return np.full(len(counts), np.nan)
    return values[known[np.clip(np.searchsorted(known, np.arange(len(counts)), side="right") - 1, 0, None)]]


# Reading one run


def _result(sweep: Sweep, cell: Cell) -> Result:
    """A run as its files tell it; one whose files are damaged must not hide the others."""
    directory = sweep.run(cell)
    try:
        return _read(sweep.plan, cell, directory)
    except DAMAGE as error:
        told = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"
        return Result(cell, directory, "damaged", told.replace(f"{directory.path}{os.sep}", ""))


def _read(plan: Plan, cell: Cell, directory: RunDirectory) -> Result:
    status = directory.read_status()
    config = directory.read_config() if directory.config.exists() else {}
    state, reason = str(status.get("state", "waiting")), status.get("reason")
    if config or state == "finished":
        _check_config(plan, cell, config)
    history = _history(directory, config, plan.last) if state == "finished" else None
    return Result(cell, directory, state, str(reason) if reason else None, status, config, history)


def _check_config(plan: Plan, cell: Cell, config: Mapping) -> None:
    """A run that was moved here, or resumed to another length, is not what its place says."""
    for part in ("settings", "resolved", "versions", "machine"):
        if not isinstance(config.get(part), dict):
            raise Refusal(f"config.json has no table {part!r}")
    wanted = dict(plan.settings) | dict(plan.variants[cell.variant])
    wanted |= {"env": cell.task, "seed": cell.seed, "steps": plan.steps}
    for name, value in wanted.items():
        found, value = config["settings"].get(name), list(value) if isinstance(value, tuple) else value
        if name != "label" and found != value:
            raise Refusal(f"config.json says {name} {found}; this run's is {value}")


def _history(directory: RunDirectory, config: Mapping, last: float) -> History:
    episodes, rows = directory.read_episodes(), directory.read_metrics()
    iterations, total_steps = (_count(config["resolved"], name) for name in ("iterations", "total_steps"))
    if len(rows) != iterations:
        raise Refusal(f"metrics.jsonl has {len(rows)} whole rows; {iterations} were made")
    return History(
        steps=_column(episodes, "env_steps"),
        returns=_column(episodes, "return"),
        iteration_steps=_column(rows, "env_steps"),
        deviations=_column(rows, "ratio_deviation_max"),
        mean_deviations=_column_if_any(rows, "ratio_deviation"),
        epsilons=_column_if_any(rows, "epsilon"),
        iteration_means=statistics.iteration_means(episodes, total_steps // iterations),
        summary=summarize(rows, episodes, total_steps, last),
    )


def _count(values: Mapping, name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int) or not 0 < value < 2**53:
        raise Refusal(f"config.json says {name} {value}; it is a whole number of at least 1")
    return value


def _column_if_any(rows: list[dict], name: str) -> np.ndarray:
    return _column(rows, name) if all(name in row for row in rows) else np.empty(0)


def _column(rows: list[dict], name: str) -> np.ndarray:
    values = np.array([row[name] for row in rows], dtype=float)
    is_sane = np.abs(values) < LARGEST  # NaN is not
    if not is_sane.all():
        raise Refusal(f"{name} is {values[~is_sane][0]} in a row; only finite numbers are written")
    return values
