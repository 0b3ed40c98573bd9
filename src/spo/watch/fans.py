"""How the kept ratios of a run spread, iteration by iteration."""

import time
from dataclasses import dataclass

import numpy as np

from spo.watch.samples import RatioSample, SampleReader

SHARES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
NAMES = ("lowest", "low", "lower", "middle", "upper", "high", "highest")


@dataclass(frozen=True)
class Spread:
    """Quantiles of the ratios in the last epoch of an iteration, and the shares outside and without gradient."""

    iteration: int
    quantiles: tuple[float, ...]
    outside: float
    left_alone: float
    advantage: float  # almost all are smaller


class Fan:
    """The spreads of all kept iterations, read a few at a time."""

    def __init__(self, reader: SampleReader, epsilon: float):
        self.reader, self.epsilon = reader, epsilon
        self.spreads: dict[int, Spread | None] = {}
        self.iterations: list[int] = []

    def poll(self, seconds: float = 0.15) -> bool:
        """Read on for a while at most; whether anything is new."""
        deadline = time.monotonic() + seconds
        self.iterations = self.reader.list_iterations()
        gone = set(self.spreads) - set(self.iterations)
        for iteration in gone:
            del self.spreads[iteration]
        is_new = bool(gone)
        for iteration in self.iterations:
            if iteration not in self.spreads:
                sample = self.reader.read(iteration)
                self.spreads[iteration] = measure(sample, self.epsilon) if sample else None
                is_new = True
                if time.monotonic() > deadline:
                    break
        return is_new

    def columns(self) -> dict[str, np.ndarray]:
        known = [spread for _, spread in sorted(self.spreads.items()) if spread]
        quantiles = np.array([spread.quantiles for spread in known]).reshape(len(known), len(NAMES))
        found = {name: quantiles[:, place] for place, name in enumerate(NAMES)}
        for name in ("iteration", "outside", "left_alone"):
            found[name] = np.array([getattr(spread, name) for spread in known], dtype=float)
        return found

    def reach(self) -> tuple[float, float, float]:
        """Find the lowest and the highest ratio that a frame should show, and the largest advantage."""
        known = [spread for spread in self.spreads.values() if spread]
        if not known:
            return 1.0, 1.0, 0.0
        lows, highs = ([spread.quantiles[place] for spread in known] for place in (0, -1))
        return float(np.quantile(lows, 0.02)), float(np.quantile(highs, 0.98)), max(own.advantage for own in known)


def measure(sample: RatioSample, epsilon: float) -> Spread | None:
    """Measure the last epoch; None if no ratio is known."""
    ratio = sample.ratio[-1]
    ratio = ratio[np.isfinite(ratio)]
    if not len(ratio):
        return None
    outside, left_alone = share_of(sample, len(sample.ratio) - 1, epsilon)
    advantage = np.abs(sample.advantage[np.isfinite(sample.advantage)])
    largest = float(np.quantile(advantage, 0.995)) if len(advantage) else 0.0
    return Spread(sample.iteration, tuple(np.quantile(ratio, SHARES)), outside, left_alone, largest)


def share_of(sample: RatioSample, epoch: int, epsilon: float) -> tuple[float, float]:
    """Find the shares of an epoch's samples outside the bound and without gradient; NaN where that was not kept."""
    width = sample.epsilon if np.isfinite(sample.epsilon) else epsilon
    ratio = sample.ratio[epoch]
    known = np.isfinite(ratio)
    if not known.any():
        return np.nan, np.nan
    outside = float((np.abs(ratio[known] - 1) > width).mean()) if np.isfinite(width) else np.nan
    left_alone = np.nan if sample.is_left_alone is None else float(sample.is_left_alone[epoch][known].mean())
    return outside, left_alone
