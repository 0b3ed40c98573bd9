"""The tables that pages have of published runs, as text: a page is true if it holds them to the letter.

`python tests/helpers/published_tables.py` puts them into the pages, for when runs were added.
"""

from itertools import dropwhile
from pathlib import Path

import numpy as np

from spo.experiments.results import Entry, Results
from spo.experiments.statistics import Interval
from spo.experiments.sweep import Sweep
from spo.experiments.verdict import BASES, DEPTHS, verdicts

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results"


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
        rows += [[task, *map(_table1_cell, entries)], ["*paper*", *map(_paper_cell, entries)]]
    return table_of(["task", *map(plan.label, plan.variants)], rows)


def _table1_cell(entry: Entry) -> str:
    if entry.mean is None:
        return "–"
    spread = f" ± {_whole(entry.std)}" if len(entry.returns) > 1 else ""
    return f"{_whole(entry.mean)}{spread} / {_deviation(entry.deviation)}"


def deep_returns(results: Results) -> str:
    """README.md: PPO-Clip and SPO with 7 layers at full length, on every task that both have finished."""
    pairs = {task: [results.entry(task, name) for name in ("ppo-7", "spo-7")] for task in results.plan.tasks}
    rows = [
        [task, *map(_table1_cell, pair), *map(_paper_cell, pair)]
        for task, pair in pairs.items()
        if all(len(entry.returns) for entry in pair)
    ]
    return table_of(["7 layers, 10M steps", "PPO-Clip", "**SPO**", "*the paper's PPO-Clip*", "*and SPO*"], rows)


def _paper_cell(entry: Entry) -> str:
    return f"*{_whole(entry.paper[0])} / {_deviation(entry.paper[1])}*"


COURSE = {
    "ratio_deviation": r"mean \|r − 1\|",
    "kl": "KL",
    "entropy": "entropy",
    "explained_variance": "explained variance",
}
COURSE |= {"grad_norm": "gradient norm"}
"""What tells why a run goes as it goes, and what a page calls it."""
TOLD = ("Ant-v4", "Humanoid-v4", "HumanoidStandup-v4", "Walker2d-v4")
"""The tasks of which results/README.md tells how they went."""


def course(results: Results, task: str, parts: int = 5) -> str:
    """results/README.md: how PPO and SPO with 7 layers went on a task, as means over parts of the steps (seed 1)."""
    runs = {name: results.finished_runs(task, f"{name}-7")[0] for name in ("ppo", "spo")}
    rows = [[f"{name.upper()}, return", *map(_whole, run.history.return_curve(parts))] for name, run in runs.items()]
    for metric, words in COURSE.items():
        for name, run in runs.items():
            values = run.history.metric_curve(metric, parts)
            rows.append([f"{name.upper()}, {words}", *(f"{value:.2g}".replace("-", "−") for value in values)])
    ends = [f"to {results.plan.steps * (part + 1) / parts / 1e6:g}M" for part in range(parts)]
    return table_of([f"{task}, 7 layers", *ends], rows)


APART = {
    "8 layers, 30 epochs of 512": "demo",
    "8 layers, 10 epochs of 512": "demo-apart/8-layers-10-epochs",
    "3 layers, 30 epochs of 512": "demo-apart/3-layers-30-epochs",
    "3 layers, 10 epochs of 2048": "demo-apart/3-layers-10-epochs",
}
"""The demo first, then what makes it, each alone."""
DEMO_HEAD = ["PPO-Clip", "**SPO**", "SPO, adaptive width"]


def demo_cells(results: Results) -> list[str]:
    """PPO-Clip, SPO and, where it was run, the adaptive width, on the task of a demo."""
    (task,), variants = results.plan.tasks, ("ppo-clip", "spo", "spo-adaptive")
    return [_table1_cell(results.entry(task, name)) if name in results.plan.variants else "–" for name in variants]


def demo_returns() -> str:
    """README.md: what the demo ends with, over its seeds."""
    head = "return, last 10 % of 150k steps / largest ratio deviation"
    return table_of([head, *DEMO_HEAD], [["8 layers, 30 epochs", *demo_cells(read_published("demo"))]])


def demo_apart() -> str:
    """results/README.md: the demo, and each of its demands alone."""
    runs = {words: read_published(name) for words, name in APART.items()}
    rows = [[words, str(own.plan.seeds), *demo_cells(own)] for words, own in runs.items()]
    return table_of(["InvertedDoublePendulum-v4", "seeds", *DEMO_HEAD], rows)


def _deviation(value: float) -> str:
    return _whole(value) if value >= 100 else f"{value:.{3 if value < 1 else 2}f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"


def tables_of(page: str) -> list[str]:
    """All that a page has of published runs, in its order."""
    full = read_published("table1")
    if page == "README.md":
        return [deep_returns(full), demo_returns()]
    if page == "results/README.md":
        courses = [course(full, task) for task in TOLD]
        return [table1_returns(full), *courses, demo_apart(), table1_returns(read_published("table1-1M"))]
    widths = read_published("width")
    return [of_depth(widths, depth) for of_depth in (width_returns, width_verdicts) for depth in DEPTHS]


PAGES = ("README.md", "results/README.md", "docs/width.md")


def put_tables(page: str, tables: list[str]) -> str:
    """A page's text with each table in place of the one that has the same head."""
    done: list[str] = []
    rest = page.splitlines(keepends=True)
    for table in tables:
        start = rest.index(table.splitlines(keepends=True)[0])
        done += [*rest[:start], table]
        rest = list(dropwhile(lambda line: line.startswith("|"), rest[start:]))
    return "".join(done + rest)


if __name__ == "__main__":
    for name in PAGES:
        page = (ROOT / name).read_text()
        (ROOT / name).write_text(put_tables(page, tables_of(name)))
