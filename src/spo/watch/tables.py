"""Rows of a run in bounded memory, whatever its length: metrics by iteration, and episodes in bins and as points."""

import json
from itertools import count

import numpy as np

NUMBERS = (
    "iteration", "env_steps", "wall_time", "steps_per_second", "learning_rate", "policy_loss", "value_loss", "entropy",
    "explained_variance", "grad_norm", "ratio_deviation", "ratio_deviation_max", "ratio_deviation_run_max",
    "ratio_deviation_sample_max", "clip_fraction", "zero_gradient_fraction", "rollback_fraction", "kl", "kl_max",
    "beta", "epsilon",
)  # fmt: skip
"""The metrics that are kept; whatever else a row has is left out."""
FORMER_NAMES = {"ratio_max": "ratio_deviation_sample_max", "outside_fraction": "clip_fraction"}
"""Metrics that rows of earlier versions have under another name."""
LARGEST = 1e100
"""No metric or return reaches it, and sums of smaller numbers are finite."""
MOST_ROWS, MOST_POINTS, BINS = 8192, 4096, 512
"""Beyond these, two neighbours become one."""
FEWEST, MOST_PARTS = 5, 160
"""Episodes in a part of a run, and parts of it, that a mean is drawn of."""


def parse_row(line: bytes) -> dict | None:
    """Parse a line of a log; None if it is no row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def to_number(value: object) -> float:
    """Take a finite number of sane size as it is, and NaN for everything else."""
    return float(value) if type(value) in (int, float) and abs(value) < LARGEST else np.nan


versions = count(1)
"""Numbers that are never given twice, so that a page knows what it has drawn from anything else."""


class MetricTable:
    """Metrics of at most `MOST_ROWS` places along the run; of a longer run each is made of several iterations."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.generation = next(versions)  # another number once rows that were there are not as they were
        self.merged = 1  # iterations in a row of the table
        self.count = 0
        self._values = np.empty((64, len(NUMBERS)))
        self._pending: list[list[float]] = []

    def add(self, row: dict) -> None:
        for old, new in FORMER_NAMES.items():
            if old in row:
                row.setdefault(new, row[old])
        self.add_numbers([to_number(row.get(name)) for name in NUMBERS])

    def add_numbers(self, numbers: list[float]) -> None:
        self._pending.append(numbers)
        if self.count == MOST_ROWS:
            self._halve()  # what is pending then waits for more
        if len(self._pending) < self.merged:
            return
        if self.count == len(self._values):
            self._values = np.concatenate([self._values, np.empty_like(self._values)])
        self._values[self.count] = merge_rows(np.array(self._pending)[None])[0] if self.merged > 1 else numbers
        self.count, self._pending = self.count + 1, []

    def _halve(self) -> None:
        self.generation, self.merged, self.count = next(versions), 2 * self.merged, self.count // 2
        self._values[: self.count] = merge_rows(self._values[: 2 * self.count].reshape(self.count, 2, -1))

    def column(self, name: str, start: int = 0) -> np.ndarray:
        """Copy a metric from a row on; NaN where a row has none."""
        return self._values[start : self.count, NUMBERS.index(name)].copy()

    def last(self, name: str) -> float:
        return float(self._values[self.count - 1, NUMBERS.index(name)]) if self.count else np.nan


def merge_rows(groups: np.ndarray) -> np.ndarray:
    """Make one row of each group (groups, rows, metrics): places are the last, maxima the largest, the rest means."""
    is_place = np.isin(NUMBERS, ("iteration", "env_steps", "wall_time"))
    is_largest = np.array([name.endswith("_max") for name in NUMBERS])
    known = np.isfinite(groups)
    counts = known.sum(1)
    sums = np.where(known, groups, 0.0).sum(1)
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    largest = np.where(known, groups, -np.inf).max(1)
    largest[counts == 0] = np.nan
    return np.where(is_place, groups[:, -1], np.where(is_largest, largest, means))


class EpisodeTable:
    """Returns of episodes: moments in bins of equal width over the steps, and some of the episodes as points."""

    def __init__(self) -> None:
        self.clear()

    def clear(self, total_steps: float = 0) -> None:
        self.count = 0
        self.width = max(1.0, total_steps / (BINS - 12))  # a run that is made longer finds some room
        self.moments = np.zeros((3, BINS))  # count, sum, sum of squares about the first return
        self.origin = 0.0
        self.every, self._points = 1, np.empty((0, 2))

    def add(self, steps: np.ndarray, returns: np.ndarray) -> None:
        known = np.isfinite(steps) & np.isfinite(returns) & (steps >= 0)
        steps, returns = steps[known], returns[known]
        if not len(steps):
            return
        self.origin = self.origin if self.count else float(returns[0])
        while steps.max() > self.width * BINS:
            self._widen()
        self._add_moments(self._bin_of(steps), np.ones_like(returns), returns - self.origin, 0.0)
        chosen = (self.count + np.arange(len(steps))) % self.every == 0
        self.count += len(steps)
        self._points = np.concatenate([self._points, np.stack([steps, returns], 1)[chosen]])
        while len(self._points) > MOST_POINTS:
            self._points, self.every = self._points[::2], 2 * self.every

    def add_bins(self, steps: np.ndarray, counts: np.ndarray, means: np.ndarray, stds: np.ndarray) -> None:
        """Add what is known of episodes in bins only; there are no points then."""
        known = (counts > 0) & np.isfinite(means) & np.isfinite(stds) & (np.abs(means) < LARGEST)
        steps, counts, means, stds = steps[known], counts[known], means[known], stds[known]
        if len(steps):
            self.origin = self.origin if self.count else float(means[0])
            self.count += int(counts.sum())
            self._add_moments(self._bin_of(steps), counts, means - self.origin, stds)

    def _bin_of(self, steps: np.ndarray) -> np.ndarray:
        """Find the bin of each step, which a bin's upper edge belongs to."""
        return np.clip(np.ceil(steps / self.width).astype(np.int64) - 1, 0, BINS - 1)

    def _add_moments(self, bins: np.ndarray, counts: np.ndarray, means: np.ndarray, stds: np.ndarray | float) -> None:
        for own, values in zip(self.moments, (counts, counts * means, counts * (means**2 + stds**2))):
            own += np.bincount(bins, values, BINS)

    def _widen(self) -> None:
        self.moments = np.concatenate([self.moments.reshape(3, -1, 2).sum(2), np.zeros((3, BINS // 2))], 1)
        self.width *= 2

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Steps and returns of single episodes: all of them, or every so many-th."""
        return self._points[:, 0].copy(), self._points[:, 1].copy()

    def curve(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Steps, mean and standard deviation of parts of the run in which enough episodes ended to average."""
        known = np.flatnonzero(self.moments[0] > 0)
        if not len(known):
            return np.empty(0), np.empty(0), np.empty(0)
        enough = max(FEWEST, self.count / MOST_PARTS)
        part = ((np.cumsum(self.moments[0, known]) - 1) // enough).astype(np.int64)
        starts = np.flatnonzero(np.diff(part, prepend=-1))
        count, sums, squares = np.add.reduceat(self.moments[:, known], starts, axis=1)
        mean = sums / count
        ends = known[np.append(starts[1:] - 1, len(known) - 1)]
        return (ends + 1) * self.width, mean + self.origin, np.sqrt(np.maximum(squares / count - mean**2, 0.0))
