"""Carries out the runs of a sweep, each in a process of its own, and lets none be lost."""

import os
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from spo.bench.suites import Cell, Sweep

ATTEMPTS = 4
"""How often a run whose process dies is resumed before it is left for the next call."""
SECONDS_TO_STOP = 10.0
ONE_CORE = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
SECONDS_BETWEEN_LOOKS = 0.5


def worker_command(path: Path, cell: Cell) -> list[str]:
    """-P, because a file in the current directory must not pass for an installed package."""
    return [sys.executable, "-P", "-m", "spo.bench.worker", str(path), *map(str, cell), str(os.getpid())]


class Executor(Protocol):
    """Where runs are carried out."""

    slots: int  # how many at once

    def start(self, cell: Cell) -> None: ...

    def poll(self) -> dict[Cell, bool]:
        """The runs whose work has ended since the last look, and whether it died rather than ended by itself."""

    def stop(self) -> None:
        """Asks what still runs to save and end, and waits for that."""


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


def execute(cells: list[Cell], executor: Executor, on_look: Callable[[set[Cell]], None]) -> None:
    """Carries out all cells, in their order; one whose process dies is resumed, a few times."""
    waiting, running, attempts = deque(cells), set(), Counter()
    try:
        while waiting or running:
            while waiting and len(running) < executor.slots:
                cell = waiting.popleft()
                running.add(cell)
                attempts[cell] += 1
                executor.start(cell)
            for cell, has_died in executor.poll().items():
                running.discard(cell)
                if has_died and attempts[cell] < ATTEMPTS:
                    waiting.appendleft(cell)
            on_look(running)
            time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        executor.stop()
