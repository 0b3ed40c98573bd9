"""Runs of a sweep as processes of this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

from spo.experiments.plan import Cell
from spo.experiments.sweep import Sweep

SECONDS_TO_STOP = 10.0
ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def worker_command(path: Path, cell: Cell) -> list[str]:
    """-P, because a file in the current directory must not pass for an installed package."""
    return [sys.executable, "-P", "-m", "spo.experiments.worker", str(path), *map(str, cell), str(os.getpid())]


class Local:
    """Processes of this machine."""

    def __init__(self, sweep: Sweep, slots: int):
        self.sweep, self.slots = sweep, slots
        self.processes: dict[Cell, subprocess.Popen] = {}

    def start(self, cell: Cell) -> None:
        run = self.sweep.run(cell)
        run.path.mkdir(parents=True, exist_ok=True)
        worker = worker_command(self.sweep.path, cell)
        environment = os.environ | ONE_CORE
        # A file, because a pipe that nobody reads would block a process with much to say. A process group of its
        # own, because Ctrl-C is ours to pass on: a worker that got two signals would not save. Not a session of its
        # own: Linux shares the cores between sessions, and there `nice spo bench` would mean nothing to its workers.
        with (run.path / "output.txt").open("a") as output:
            self.processes[cell] = subprocess.Popen(
                worker, stdout=output, stderr=subprocess.STDOUT, env=environment, process_group=0
            )

    def poll(self) -> dict[Cell, bool]:
        ended = {cell: process.returncode for cell, process in self.processes.items() if process.poll() is not None}
        for cell in ended:
            del self.processes[cell]
        return {cell: code not in (0, 2) for cell, code in ended.items()}

    def stop(self) -> None:
        stop_processes(list(self.processes.values()))
        self.processes.clear()


def search_command(directory: Path, number: int) -> list[str]:
    """The command of one of the processes that carry out the trials of a search."""
    return [sys.executable, "-P", "-m", "spo.experiments.tune_worker", str(directory), str(number), str(os.getpid())]


class LocalSearchers:
    """The processes of a search on this machine."""

    def __init__(self, directory: Path, count: int):
        with (directory / "output.txt").open("a") as output:
            quiet = {"stdout": output, "stderr": subprocess.STDOUT, "env": os.environ | ONE_CORE, "process_group": 0}
            self.processes = [subprocess.Popen(search_command(directory, n), **quiet) for n in range(count)]

    def codes(self) -> list[int | None]:
        """The exit code of each process, and None of those that still run."""
        return [process.poll() for process in self.processes]

    def stop(self) -> None:
        stop_processes(self.processes)


def stop_processes(processes: list[subprocess.Popen]) -> None:
    """Ask every process that still runs to save and end, and end it if it does not."""
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + SECONDS_TO_STOP
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
