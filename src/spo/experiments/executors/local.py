"""Runs of a sweep, and the processes of a search, on this machine."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spo.experiments.plan import Cell
from spo.experiments.sweep import Sweep

SECONDS_TO_STOP = 10.0
ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
OUTPUT = "output.txt"


def worker_command(path: Path, cell: Cell) -> list[str]:
    """-P, because a file in the current directory must not pass for an installed package."""
    return [sys.executable, "-P", "-m", "spo.experiments.worker", str(path), *map(str, cell), str(os.getpid())]


def search_command(directory: Path, number: int) -> list[str]:
    """The command of one of the processes that carry out the trials of a search."""
    return [sys.executable, "-P", "-m", "spo.experiments.tune_worker", str(directory), str(number), str(os.getpid())]


class Local:
    """Processes of this machine: `command` carries out a job, and what it says goes to a file in its `folder`."""

    def __init__(self, slots: int, command: Callable[[Any], list[str]], folder: Callable[[Any], Path]):
        self.slots, self.command, self.folder = slots, command, folder
        self.processes: dict[Any, subprocess.Popen] = {}

    def start(self, job: Any) -> None:
        folder = self.folder(job)
        folder.mkdir(parents=True, exist_ok=True)
        environment = os.environ | ONE_CORE
        # A file, because a pipe that nobody reads would block a process with much to say. A process group of its
        # own, because Ctrl-C is ours to pass on: a worker that got two signals would not save. Not a session of its
        # own: Linux shares the cores between sessions, and there `nice spo bench` would mean nothing to its workers.
        with (folder / OUTPUT).open("a") as output:
            self.processes[job] = subprocess.Popen(
                self.command(job), stdout=output, stderr=subprocess.STDOUT, env=environment, process_group=0
            )

    def poll(self) -> dict[Any, int]:
        ended = {job: process.returncode for job, process in self.processes.items() if process.poll() is not None}
        for job in ended:
            del self.processes[job]
        return ended

    def stop(self) -> None:
        """Ask every process that still runs to save and end, and end it if it does not."""
        for process in self.processes.values():
            process.terminate()
        deadline = time.monotonic() + SECONDS_TO_STOP
        for process in self.processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()


def run_here(sweep: Sweep, slots: int) -> Local:
    return Local(slots, lambda cell: worker_command(sweep.path, cell), lambda cell: sweep.run(cell).path)


def search_here(directory: Path, slots: int) -> Local:
    return Local(slots, lambda number: search_command(directory, number), lambda number: directory)
