"""What the runs of a sweep came to: cells of a table, scores and curves. No torch here."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spo.bench import statistics
from spo.bench.suites import Cell, Sweep
from spo.rundir import RunDirectory, summarize


@dataclass(frozen=True)
class Result:
    """One run: how far it got, why it failed, and what it came to."""

    cell: Cell
    directory: RunDirectory
    state: str  # waiting, running, interrupted, failed, finished
    reason: str | None
    last: float

    @cached_property
    def config(self) -> dict:
        return self.directory.read_config()

    @cached_property
    def episodes(self) -> list[dict]:
        return self.directory.read_episodes()

    @cached_property
    def metrics(self) -> list[dict]:
        return self.directory.read_metrics()

    @cached_property
    def summary(self) -> dict[str, float | bool | None]:
        return summarize(self.metrics, self.episodes, self.config["resolved"]["total_steps"], self.last)

    @property
    def batch_size(self) -> int:
        settings = self.config["settings"]
        return settings["envs"] * settings["horizon"]


@dataclass(frozen=True)
class Entry:
    """A cell of the table: one variant on one task, over its finished seeds."""

    returns: np.ndarray
    deviations: np.ndarray
    paper: tuple[float, float] | None
    unfinished: tuple[str, ...]  # a sentence for each run that is not finished
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
        return [run for run in self._of(task, variant) if run.state == "finished"]

    def _of(self, task: str, variant: str) -> list[Result]:
        return [run for cell, run in self.runs.items() if (cell.task, cell.variant) == (task, variant)]

    def entry(self, task: str, variant: str) -> Entry:
        finished = [run for run in self.finished(task, variant) if run.summary["return"] is not None]
        unfinished = tuple(_told(run) for run in self._of(task, variant) if run.state != "finished")
        paper = self.plan.paper.get(task, {}).get(variant)
        return Entry(
            np.array([run.summary["return"] for run in finished]),
            np.array([run.summary["ratio_deviation_max"] for run in finished]),
            tuple(paper) if paper else None,
            unfinished,
            any(run.summary["return_from_last_episodes"] for run in finished),
        )

    def failures(self) -> list[Result]:
        return [run for run in self.runs.values() if run.state == "failed"]

    def versions(self) -> dict[str, dict[str, list[Cell]]]:
        """By package: by version, the runs made with it. More than one version is a mixture, and is shown."""
        found: dict[str, dict[str, list[Cell]]] = {}
        for cell, run in self.runs.items():
            if run.directory.config.exists():
                for package, version in run.config["versions"].items():
                    found.setdefault(package, {}).setdefault(version, []).append(cell)
        return found

    def is_complete(self) -> bool:
        return all(run.state == "finished" for run in self.runs.values())

    def scores(self, variant: str) -> dict[str, np.ndarray]:
        """Raw returns by task, for the tasks on which the variant has finished runs."""
        entries = {task: self.entry(task, variant) for task in self.plan.tasks}
        return {task: entry.returns for task, entry in entries.items() if len(entry.returns)}

    def bounds(self, seeds: str = "pooled") -> Mapping[str, statistics.Bounds]:
        """PPO-Clip's lowest and highest iteration means on each task: what scores are normalised by."""
        tasks = {task: self.finished(task, self.plan.normalizes) for task in self.plan.tasks}
        means = {
            task: [statistics.iteration_means(run.episodes, run.batch_size) for run in runs]
            for task, runs in tasks.items()
            if runs
        }
        return statistics.training_bounds(means, seeds)

    def normalized(self, variant: str, seeds: str = "pooled") -> dict[str, np.ndarray]:
        bounds = self.bounds(seeds)
        scores = {task: values for task, values in self.scores(variant).items() if task in bounds}
        return statistics.normalized(scores, bounds)

    def curve(self, task: str, variant: str, points: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Steps (points,), and for each finished run the mean return of the episodes that ended in each bin."""
        runs = self.finished(task, variant)
        total = max((run.config["resolved"]["total_steps"] for run in runs), default=0)
        edges = np.linspace(0, total, points + 1)
        return edges[1:], np.array([binned(run.episodes, edges) for run in runs]).reshape(len(runs), points)

    def deviation_curve(self, task: str, variant: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and each finished run's ratio deviation at every iteration."""
        runs = self.finished(task, variant)
        if not runs:
            return np.empty(0), np.empty((0, 0))
        steps = np.array([row["env_steps"] for row in runs[0].metrics])
        return steps, np.array([[row["ratio_deviation_max"] for row in run.metrics] for run in runs])

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


def binned(episodes: list[dict], edges: np.ndarray) -> np.ndarray:
    """Mean return per bin of steps; a bin in which no episode ended repeats the one before it, or the first."""
    steps = np.array([episode["env_steps"] for episode in episodes], dtype=float)
    index = np.clip(np.searchsorted(edges, steps, side="left") - 1, 0, len(edges) - 2)
    counts = np.bincount(index, minlength=len(edges) - 1)
    sums = np.bincount(index, [episode["return"] for episode in episodes], minlength=len(edges) - 1)
    known = np.flatnonzero(counts)
    if not len(known):
        return np.full(len(edges) - 1, np.nan)
    nearest = known[np.clip(np.searchsorted(known, np.arange(len(counts)), side="right") - 1, 0, None)]
    return sums[nearest] / counts[nearest]


def _result(sweep: Sweep, cell: Cell) -> Result:
    directory = sweep.run(cell)
    status = directory.read_status()
    return Result(cell, directory, status.get("state", "waiting"), status.get("reason"), sweep.plan.last)


def _told(run: Result) -> str:
    return f"seed {run.cell.seed} {run.state}" + (f": {run.reason}" if run.reason else "")
