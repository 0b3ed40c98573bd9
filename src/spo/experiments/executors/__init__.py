"""Where runs of a sweep and trials of a search are executed, and the loop that keeps an executor busy."""

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Protocol

from spo.experiments.plan import Cell

ATTEMPTS = 4
"""How often a run whose process dies is resumed before it is left for the next call."""
SECONDS_BETWEEN_LOOKS = 0.5


class Executor(Protocol):
    """Where jobs are carried out: runs of a sweep, or the processes of a search by their numbers."""

    slots: int  # how many at once

    def start(self, job: Any) -> None: ...

    def poll(self) -> dict[Any, int]:
        """The jobs that have ended since the last look, with their exit codes."""

    def stop(self) -> None:
        """Ask what still runs to save and end, and wait for that."""


def execute(cells: list[Cell], executor: Executor, on_look: Callable[[set[Cell]], None]) -> None:
    """Carry out all cells, in their order; one whose process dies is resumed, a few times."""
    waiting, running, attempts = deque(cells), set(), Counter()
    try:
        while waiting or running:
            while waiting and len(running) < executor.slots:
                cell = waiting.popleft()
                running.add(cell)
                attempts[cell] += 1
                executor.start(cell)
            for cell, code in executor.poll().items():
                running.discard(cell)
                if code not in (0, 2) and attempts[cell] < ATTEMPTS:
                    waiting.appendleft(cell)
            on_look(running)
            time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        executor.stop()
