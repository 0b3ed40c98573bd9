"""One run of a sweep as a process: python -m spo.experiments.worker DIR TASK VARIANT SEED."""

from spo.runtime import library_env

library_env.set_library_env()

import os
import signal
import sys
import time
from pathlib import Path

from spo.envs.factory import env_maker
from spo.envs.subproc import set_parent_death_signal
from spo.errors import SpoError
from spo.experiments.plan import Cell
from spo.experiments.sweep import Sweep
from spo.runs.directory import RunDirectory
from spo.runs.resume import resume
from spo.runs.start import run_training

SECONDS_TO_WAIT = 30.0
"""For a worker of a driver that was killed, which is still saving."""


def run_cell(path: Path, cell: Cell) -> None:
    """Start the run, or go on with it; a refusal is left in its status."""
    sweep = Sweep.open(path)
    run = sweep.run(cell)
    _wait_until_free(run)
    try:
        _start_or_resume(sweep, cell, run)
    except SpoError as refusal:
        if run.read_status().get("state") != "failed":  # it failed before there was a run
            run.path.mkdir(parents=True, exist_ok=True)
            run.write_status({"state": "failed", "reason": str(refusal)})
        raise


def _start_or_resume(sweep: Sweep, cell: Cell, run: RunDirectory) -> None:
    if any(":" in str(value) for value in (cell.task, sweep.plan.variants[cell.variant].get("objective"))):
        sys.path.append(os.curdir)  # a module is named, and may lie here
    config = sweep.plan.config(cell, run.path)
    if run.config.exists():
        named = {"env": cell.task, "objective": config.objective}
        resume(run.path, **{name: value for name, value in named.items() if ":" in value}, quiet=True)
    else:
        run_training(config, env_maker(config))


def _wait_until_free(run: RunDirectory) -> None:
    deadline = time.monotonic() + SECONDS_TO_WAIT
    while run.lock_owner() and time.monotonic() < deadline:
        time.sleep(0.2)


def main() -> None:
    path, task, variant, seed, driver = sys.argv[1:]
    set_parent_death_signal(int(driver), signal.SIGTERM)  # which saves
    try:
        run_cell(Path(path), Cell(task, variant, int(seed)))
    except SpoError as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        sys.exit(getattr(interrupt, "code", 130))


if __name__ == "__main__":
    main()
