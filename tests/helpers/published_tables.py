"""The tables that pages have of published runs, as text: a page is true if it holds them to the letter.

`python tests/helpers/published_tables.py` prints them, to be put into a page when runs were added.
"""

from pathlib import Path

import numpy as np

from spo.experiments.results import Results
from spo.experiments.statistics import Interval
from spo.experiments.sweep import Sweep
from spo.experiments.verdict import BASES, DEPTHS, verdicts

PUBLISHED = Path(__file__).parents[2] / "results"


def read_published(name: str) -> Results:
    return Results(Sweep.open(PUBLISHED / name))


def table_of(head: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, *rows]).replace("\n", f"\n|{'---|' * len(head)}\n", 1)


def width_returns(results: Results, depth: str) -> str:
    """docs/width.md: of each rule on each task, the return and how far the median iteration moved."""
    variants = [name for name in results.plan.variants if name.endswith(f"-{depth}")]
    rows = [
        [_rule(results, name), *(_width_cell(results, task, name) for task in results.plan.tasks)] for name in variants
    ]
    return table_of([f"{depth} layers", *results.plan.tasks], rows)


def _rule(results: Results, variant: str) -> str:
    return results.plan.label(variant).rpartition(",")[0]


def _width_cell(results: Results, task: str, variant: str) -> str:
    entry, runs = results.entry(task, variant), results.finished_runs(task, variant)
    if entry.mean is None:
        return "–"
    moved = np.mean([run.history.numbers["metrics"]["ratio_deviation"]["median"] for run in runs])
    spread = f" ± {entry.std:.0f}" if len(runs) > 1 else ""
    return f"{entry.mean:.0f}{spread}, {moved:.3f}"


def width_verdicts(results: Results, depth: str) -> str:
    """docs/width.md: each rule's lead, and how likely a run of it beats one of PPO and of SPO."""
    rows = []
    for rule, verdict in verdicts(results).items():
        standing = verdict.standings[depth]
        chances = [_interval(standing.better[base]) for base in BASES]
        rows.append([_rule(results, f"{rule}-{depth}"), _interval(standing.lead, "+"), *chances])
    return table_of([f"{depth} layers", "lead", "beats PPO", "beats SPO"], rows)


def _interval(interval: Interval, sign: str = "") -> str:
    value, low, high = (
        f"{float(end):{sign}.2f}".replace("-", "−") for end in (interval.value, interval.low, interval.high)
    )
    return f"{value} ({low} to {high})"


def table1_returns(results: Results) -> str:
    """results/README.md: return and largest ratio deviation, ours and below it the paper's."""
    plan = results.plan
    rows = []
    for task in plan.tasks:
        entries = [results.entry(task, name) for name in plan.variants]
        ours = [f"{own.mean:.0f} ± {own.std:.0f} / {_deviation(own.deviation)}" for own in entries]
        papers = [f"*{own.paper[0]:.0f} / {_deviation(own.paper[1])}*" for own in entries]
        rows += [[task, *ours], ["*paper*", *papers]]
    return table_of(["task", *map(plan.label, plan.variants)], rows)


def _deviation(value: float) -> str:
    return f"{value:.{3 if value < 1 else 2 if value < 100 else 0}f}"


if __name__ == "__main__":
    print(table1_returns(read_published("table1-1M")))
    widths = read_published("width")
    for depth in DEPTHS:
        print(width_returns(widths, depth), width_verdicts(widths, depth), sep="\n")
