"""Where the time of a run goes: a clock around its named parts, for `--profile`."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

PARTS = ("stepping", "acting", "normalising", "advantage", "update", "logging", "checkpoint")
UNNAMED = "the rest"
_IDLE = nullcontext()


class Timer:
    """Seconds spent in each part, as in `with timer("update"):`, from the moment that it is started.

    A part within another counts for the outer one alone.
    """

    def __init__(self):
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.is_running = self.is_inside = False
        self.started = 0.0

    def start(self) -> None:
        """Begin to measure; until then a part costs one call."""
        self.is_running, self.started = True, time.perf_counter()

    def __call__(self, part: str) -> AbstractContextManager:
        return self._measure(part) if self.is_running and not self.is_inside else _IDLE

    @contextmanager
    def _measure(self, part: str) -> Iterator[None]:
        self.is_inside, started = True, time.perf_counter()
        try:
            yield
        finally:
            self.is_inside = False
            self.seconds[part] += time.perf_counter() - started

    def shares(self) -> dict[str, float]:
        """Each part's share of all the time since the start, in the order of the parts."""
        total = time.perf_counter() - self.started
        shares = {part: seconds / total for part, seconds in self.seconds.items()}
        return shares | {UNNAMED: max(0.0, 1 - sum(shares.values()))}
