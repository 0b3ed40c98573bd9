"""Curves of many runs in little memory, and what those of the same kind come to together."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from spo.experiments import statistics
from spo.watch.catalogue import Catalogue
from spo.watch.glance import take_signature
from spo.watch.history import History

POINTS = 256
"""Along a run."""
RETURN = "return"
METRICS = {
    RETURN: "return",
    "ratio_deviation_max": "ratio deviation, largest minibatch",
    "ratio_deviation": "ratio deviation, mean",
    "clip_fraction": "share outside the bound",
    "zero_gradient_fraction": "share without gradient",
    "kl": "KL divergence",
    "entropy": "entropy",
    "explained_variance": "explained variance",
    "value_loss": "value loss",
    "steps_per_second": "steps per second",
}


@dataclass(frozen=True)
class Curve:
    """One run: its metrics at some places along it, in steps and in seconds."""

    places: dict[str, np.ndarray] = field(default_factory=dict)  # by metric, in steps
    values: dict[str, np.ndarray] = field(default_factory=dict)
    steps: np.ndarray = field(default_factory=lambda: np.empty(0))  # at which the time is known
    seconds: np.ndarray = field(default_factory=lambda: np.empty(0))

    def along(self, metric: str, by_time: bool) -> tuple[np.ndarray, np.ndarray]:
        """Give a metric along the steps or the time of the run."""
        place, values = self.places.get(metric, np.empty(0)), self.values.get(metric, np.empty(0))
        if by_time:
            place = np.interp(place, self.steps, self.seconds) if len(self.steps) else np.empty(0)
            values = values[: len(place)]
        return place, values


def reduce_history(history: History) -> Curve:
    """Keep of a run what a comparison shows."""
    steps, mean, _ = history.episodes.curve()
    places, values = {RETURN: steps}, {RETURN: mean}
    row_steps = history.metrics.column("env_steps")
    edges = np.unique(np.linspace(0, len(row_steps), min(POINTS, len(row_steps)) + 1).astype(int))
    for name in METRICS:
        if name != RETURN and len(row_steps):
            places[name], values[name] = _bin(row_steps, history.metrics.column(name), edges, name.endswith("_max"))
    times = history.metrics.column("wall_time")
    known = np.isfinite(times) & np.isfinite(row_steps)
    every = max(1, len(times) // POINTS)
    return Curve(places, values, row_steps[known][::every], times[known][::every])


def _bin(
    steps: np.ndarray, values: np.ndarray, edges: np.ndarray, takes_largest: bool
) -> tuple[np.ndarray, np.ndarray]:
    known = np.isfinite(values) & np.isfinite(steps)
    starts, ends = edges[:-1], edges[1:] - 1
    counts = np.add.reduceat(known.astype(float), starts)
    if takes_largest:
        found = np.maximum.reduceat(np.where(known, values, -np.inf), starts)
    else:
        found = np.add.reduceat(np.where(known, values, 0.0), starts) / np.maximum(counts, 1)
    return steps[ends][counts > 0], found[counts > 0]


class CurveKeeper:
    """The curves of the runs that are compared, read a few at a time and again only when they have changed."""

    def __init__(self, catalogue: Catalogue):
        self.catalogue = catalogue
        self.curves: dict[str, Curve] = {}
        self._signatures: dict[str, tuple] = {}

    def poll(self, keys: Sequence[str], seconds: float = 0.25) -> bool:
        """Read on for a while at most; whether anything is new."""
        deadline, is_new = time.monotonic() + seconds, False
        for key in set(self.curves) - set(keys):
            del self.curves[key], self._signatures[key]
        for key in keys:
            glance, place = self.catalogue.glances.get(key), self.catalogue.place(key)
            if glance is None or place is None or self._signatures.get(key) == (signature := take_signature(place)):
                continue
            # What still grows is followed; of what is over, no more than its curve is kept.
            follows = glance.state in ("running", "starting", "silent")
            history = self.catalogue.history(key) if follows else History(place, glance.total_steps)
            while history.poll() or history.is_more:
                pass
            self.curves[key], self._signatures[key], is_new = reduce_history(history), signature, True
            if time.monotonic() > deadline:
                break
        return is_new

    @property
    def count(self) -> int:
        return len(self.curves)


def combine(curves: Sequence[Curve], metric: str, by_time: bool) -> dict[str, np.ndarray]:
    """Take mean, lowest and highest of several runs at places that they share; each counts as far as it got."""
    known = [own for own in (curve.along(metric, by_time) for curve in curves) if len(own[0])]
    empty = {name: np.empty(0) for name in ("x", "mean", "low", "high", "runs")}
    if not known:
        return empty
    grid = np.linspace(min(own[0][0] for own in known), max(own[0][-1] for own in known), POINTS)
    values = np.stack([np.interp(grid, *own, left=np.nan, right=np.nan) for own in known])
    there = np.isfinite(values)
    counts = there.sum(0)
    seen = counts > 0
    mean = np.where(there, values, 0.0).sum(0)[seen] / counts[seen]
    low = np.where(there, values, np.inf).min(0)[seen]
    high = np.where(there, values, -np.inf).max(0)[seen]
    return {"x": grid[seen], "mean": mean, "low": low, "high": high, "runs": counts[seen].astype(float)}


def interval_of(values: Sequence[float]) -> statistics.Interval | None:
    """The mean of several runs with Student's 95 % interval; None for fewer than two."""
    return statistics.interval_of_mean(np.array(values)) if len(values) > 1 else None
