"""Where runs of a sweep are executed, and the loop that keeps an executor busy."""

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

from spo.experiments.plan import Cell

ATTEMPTS = 4
"""How often a run whose process dies is resumed before it is left for the next call."""
SECONDS_BETWEEN_LOOKS = 0.5


class Executor(Protocol):
    """Where runs are carried out."""

    slots: int  # how many at once

    def start(self, cell: Cell) -> None: ...

    def poll(self) -> dict[Cell, bool]:
        """The runs whose work has ended since the last look, and whether it died rather than ended by itself."""

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
            for cell, has_died in executor.poll().items():
                running.discard(cell)
                if has_died and attempts[cell] < ATTEMPTS:
                    waiting.appendleft(cell)
            on_look(running)
            time.sleep(SECONDS_BETWEEN_LOOKS)
    finally:
        executor.stop()
