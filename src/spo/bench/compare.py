"""Objectives side by side on one task: an ad-hoc question, answered with a table."""

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from spo.bench.execute import Job, execute, train_job
from spo.errors import Refusal
from spo.metrics import clock

SECONDS_BETWEEN_LINES = 10.0


def compare(env: str, objectives: Iterable[str], seeds: int, settings: list[str], out: str | None) -> None:
    """Trains every objective with every seed, one run per core, and prints what came of each."""
    root = Path(out or f"runs/compare-{env.replace('/', '_')}-{time.strftime('%Y%m%d-%H%M%S')}")
    if root.exists() and any(root.iterdir()):
        raise Refusal(f"--out {root} is not empty; name a new directory")
    jobs = [
        train_job(
            f"{name} seed {seed}", [env, "--objective", name, "--seed", str(seed), *settings], root / f"{name}-s{seed}"
        )
        for seed in range(1, seeds + 1)
        for name in objectives
    ]
    with Display(jobs, f"{env} {' '.join(settings)}") as display:
        execute(jobs, os.cpu_count() or 1, display.update)
    Console().print(result_table(jobs, env))
    for job in jobs:
        print(f"{job.name}: {job.directory.path}")
    failed = [job for job in jobs if job.state == "failed"]
    if failed:
        raise Refusal(f"{len(failed)} of {len(jobs)} runs failed: {failed[0].name}: {_last_line(failed[0])}")


class Display:
    """A live table on a terminal, a line for each run now and then elsewhere."""

    def __init__(self, jobs: list[Job], title: str):
        self.jobs, self.title = jobs, title
        self.console = Console(stderr=True)
        self.live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self.last_line = time.monotonic()

    def __enter__(self) -> "Display":
        self.console.print(f"{self.title}: {len(self.jobs)} runs", highlight=False)
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_) -> None:
        if self.live:
            self.live.stop()

    def update(self, jobs: list[Job]) -> None:
        if self.live:
            self.live.update(progress_table(jobs), refresh=True)
        elif time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            for job in jobs:
                if job.state == "running":
                    print(f"{job.name}: {', '.join(progress_cells(job))}", file=sys.stderr, flush=True)


def progress_table(jobs: list[Job]) -> Table:
    table = Table("run", "state", "steps", "steps/s", "time left", "return", "ratio deviation")
    for job in jobs:
        table.add_row(job.name, job.state, *progress_cells(job, labelled=False))
    return table


def progress_cells(job: Job, labelled: bool = True) -> list[str]:
    """Steps, steps/s, time left, return, ratio deviation."""
    rows = job.directory.read_metrics()
    if not rows:
        return ["starting"] if labelled else [""] * 5
    last, total = rows[-1], job.directory.read_config()["resolved"]["total_steps"]
    speed = last["env_steps"] / last["wall_time"]
    returns = [episode["return"] for episode in job.directory.read_episodes()[-20:]]
    cells = {
        "steps": f"{last['env_steps']:,} of {total:,}",
        "steps/s": f"{speed:,.0f}",
        "left": clock((total - last["env_steps"]) / speed),
        "return": f"{sum(returns) / len(returns):.1f}" if returns else "–",
        "ratio deviation": f"{last['ratio_deviation']:.3g}",
    }
    return [f"{name} {value}" for name, value in cells.items()] if labelled else list(cells.values())


def result_table(jobs: list[Job], env: str) -> Table:
    table = Table("run", "return, last 10 %", "maximum ratio deviation", "steps/s", title=env)
    for job in jobs:
        table.add_row(job.name, *_result_cells(job))
    return table


def _result_cells(job: Job) -> tuple[str, str, str]:
    if job.state != "finished":
        return job.state, "", ""
    summary = job.directory.summary()
    returned = "–" if summary["return"] is None else f"{summary['return']:.1f}"
    return returned, f"{summary['ratio_deviation_max']:.4g}", f"{summary['steps_per_second']:,.0f}"


def _last_line(job: Job) -> str:
    lines = (job.directory.path / "output.txt").read_text().strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "no message"
