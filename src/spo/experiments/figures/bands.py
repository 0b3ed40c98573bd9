"""A line with a band around it, as every figure and the report draw it."""

from dataclasses import dataclass

import numpy as np

from spo.experiments.figures.style import LineStyle, plot_options


@dataclass(frozen=True)
class Band:
    """A line over x and the band from `low` to `high` around it."""

    x: np.ndarray
    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray


def mean_and_range(x: np.ndarray, runs: np.ndarray) -> Band:
    """The mean of runs (runs, points), between the lowest and the highest of them."""
    return Band(x, runs.mean(0), runs.min(0), runs.max(0))


def mean_and_std(x: np.ndarray, runs: np.ndarray) -> Band:
    """The mean of runs (runs, points), with one standard deviation to both sides."""
    mean, std = runs.mean(0), runs.std(0, ddof=1) if len(runs) > 1 else 0 * runs[0]
    return Band(x, mean, mean - std, mean + std)


def draw_band(axis, band: Band, style: LineStyle, number: int = 0, marks: int = 4, **options: object) -> None:
    """Draw the line and its band; the markers of each line of a panel, by its number, stand at other places."""
    distance = max(1, len(band.x) // marks)
    first = min(len(band.x) - 1, distance * (number + 1) // 6)
    line = {"markevery": (first, distance), "label": style.label, "zorder": 3} | plot_options(style) | options
    axis.plot(band.x, band.middle, **line)
    axis.fill_between(band.x, band.low, band.high, color=style.colour, alpha=0.15, linewidth=0, zorder=2)
