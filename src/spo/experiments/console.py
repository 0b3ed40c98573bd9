"""A sweep on the terminal: its plan, its progress, its results."""

import sys
import time
import warnings

import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Column, Table

from spo.errors import SpoError
from spo.experiments.answer import answer
from spo.experiments.plan import Cell
from spo.experiments.results import Results
from spo.experiments.run_time import seconds_of_all
from spo.experiments.sweep import Sweep
from spo.runtime.formatting import clock, draw_bars, fold, plural

SECONDS_BETWEEN_LINES = 10.0
WIDE = 200
SPARK = 10
"""Letters of a spark line."""
SHORT = "* so few episodes ended there that the last 8 were taken"
SECONDS_BETWEEN_TABLES = 2.0


def print_missing(results: Results) -> None:
    failures = results.failures()
    for run in failures:
        print(f"failed: {run.cell}: {run.reason}", file=sys.stderr)
    if failures:
        raise SpoError(f"{len(failures)} of {len(results.runs)} runs failed; --retry-failed tries them again")
    if not results.is_complete():
        raise SpoError("some runs have not finished; the same command goes on with them")


def print_plan(sweep: Sweep, cells: list[Cell], slots: int) -> None:
    """What would be run, in its order, and how long it would take."""
    plan, results = sweep.plan, Results(sweep)
    print(f"{plan.title}\n{plan.note or 'the whole of it, nothing reduced'}")
    for cell in cells:
        print(f"  {cell}")
    seconds, share = clock(seconds_of_all(plan, cells, results, slots)), f"{len(cells)} of {len(plan.cells())}"
    print(f"{share} runs to do, {plan.steps:,} steps each, {slots} at once: about {seconds}")
    if left_out := {run.cell for run in results.failures()} - set(cells):
        print(f"{plural(len(left_out), 'run')} left out that failed; --retry-failed tries them again")


class Display:
    """A live table on a terminal, a line for each running run now and then elsewhere."""

    def __init__(self, sweep: Sweep, cells: list[Cell], slots: int):
        self.sweep, self.cells, self.slots = sweep, cells, slots
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self.last_look = time.monotonic()

    def __enter__(self) -> "Display":
        plan, results = self.sweep.plan, Results(self.sweep)
        seconds = clock(seconds_of_all(plan, self.cells, results, self.slots))
        note = f" ({plan.note})" if plan.note else ""
        work = f"{len(self.cells)} of {len(plan.cells())} runs to do, {self.slots} at once, about {seconds}"
        print(f"{plan.title}{note}\n{work}", file=sys.stderr, flush=True)
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_) -> None:
        if self.live:
            self.live.stop()

    def update(self, running: set[Cell]) -> None:
        pause = SECONDS_BETWEEN_TABLES if self.live else SECONDS_BETWEEN_LINES
        if time.monotonic() - self.last_look < pause:
            return
        self.last_look = time.monotonic()
        if self.live:
            self.live.update(progress_table(self.sweep, running), refresh=True)
        else:
            for cell in sorted(running):
                print(f"{cell}: {progress_line(progress(self.sweep, cell))}", file=sys.stderr, flush=True)


def progress_table(sweep: Sweep, running: set[Cell]) -> Table:
    """From the status of each run alone: reading all of their rows takes too long to do it every other second."""
    statuses = {cell: sweep.run(cell).read_status() for cell in sweep.plan.cells()}
    failed = {cell: status.get("reason") for cell, status in statuses.items() if status.get("state") == "failed"}
    done = sum(status.get("state") == "finished" for status in statuses.values())
    title = f"{done} of {len(statuses)} done, {len(failed)} failed"
    headings = ("steps", "steps/s", "time left", "return", "ratio deviation")
    has_rows = bool(running or failed)
    box = SIMPLE if has_rows else None
    table = Table(Column("run", min_width=17), *headings, title=title, box=box, show_header=has_rows)
    for cell in sorted(running):
        table.add_row(escape(str(cell)), *progress(sweep, cell))
    for cell, reason in failed.items():
        table.add_row(escape(str(cell)), f"failed: {escape(str(reason))}")
    return table


def progress(sweep: Sweep, cell: Cell) -> list[str]:
    """Steps, steps per second, time left, return (of the last 20 episodes) and ratio deviation of a running run."""
    last = sweep.run(cell).last_metrics()
    if last is None:
        return ["starting"]
    total, speed = sweep.plan.config(cell).total_steps, last["env_steps"] / last["wall_time"]
    left = clock((total - last["env_steps"]) / speed)
    returns = [episode["return"] for episode in sweep.run(cell).last_episodes()]
    reached = f"{sum(returns) / len(returns):.1f}" if returns else "–"
    return [f"{last['env_steps']:,} of {total:,}", f"{speed:,.0f}", left, reached, f"{last['ratio_deviation']:.3g}"]


def progress_line(numbers: list[str]) -> str:
    """The same in words, where no table has them as its headings."""
    if len(numbers) == 1:
        return numbers[0]
    steps, speed, left, reached, deviation = numbers
    return f"{steps} steps, {speed} steps/s, {left} left, return {reached}, ratio deviation {deviation}"


def print_results(results: Results) -> None:
    """The table of what the runs came to, and the answer in words."""
    # Elsewhere than on a terminal nothing is gained by folding lines.
    Console(width=None if sys.stdout.isatty() else WIDE).print(result_table(results))
    print(fold(" ".join(answer(results)), sys.stdout))


def result_table(results: Results) -> Table:
    """Ours beside the paper's; no times, so that the same runs give the same table."""
    plan = results.plan
    has_paper = bool(plan.paper)
    columns = ["task", "variant", "returns", f"return, last {plan.final_fraction:.0%}", "maximum ratio deviation"]
    table = Table(*columns, *(["paper: return", "deviation"] if has_paper else []), title=escape(plan.title))
    entries = {(task, variant): results.entry(task, variant) for task in plan.tasks for variant in plan.variants}
    notes = [plan.note, SHORT if any(entry.from_last_episodes for entry in entries.values()) else ""]
    table.caption = "\n".join(filter(None, notes)) or None
    sparks = {cell: spark for task in plan.tasks for cell, spark in draw_sparks(results, task).items()}
    for (task, variant), entry in entries.items():
        cells = _entry_cells(entry, has_paper)
        table.add_row(escape(task), escape(plan.label(variant)), sparks[task, variant], *cells)
    return table


def draw_sparks(results: Results, task: str) -> dict[tuple[str, str], str]:
    """By task and variant, the mean return over the steps as a spark line; one scale for all variants of a task."""
    curves = {variant: _mean_curve(results, task, variant) for variant in results.plan.variants}
    known = np.concatenate([curve[np.isfinite(curve)] for curve in curves.values()])
    ends = (float(known.min()), float(known.max())) if known.size else None
    return {(task, variant): draw_bars(curve, SPARK, ends) for variant, curve in curves.items()}


def _mean_curve(results: Results, task: str, variant: str) -> np.ndarray:
    _, runs = results.curve(task, variant, points=SPARK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a bin in which no episode ended has no mean
        return np.nanmean(runs, axis=0) if len(runs) else np.array([])


def _entry_cells(entry, has_paper: bool) -> list[str]:
    if entry.mean is None:
        ours = [escape("; ".join(entry.unfinished)) or "no episode ended", ""]
    else:
        missing = f" [{len(entry.unfinished)} runs missing]" if entry.unfinished else ""
        mark = " *" if entry.from_last_episodes else ""
        seeds = f"± {entry.std:.1f} ({len(entry.returns)} seeds)" if len(entry.returns) > 1 else "(1 seed)"
        ours = [escape(f"{entry.mean:.1f} {seeds}{mark}{missing}"), f"{entry.deviation:.4g}"]
    theirs = [f"{number:g}" for number in entry.paper] if entry.paper else ["", ""]
    return ours + (theirs if has_paper else [])
