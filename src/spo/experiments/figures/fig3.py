"""Fig. 3: samples with and without a gradient, and where those with one are pulled."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.style import GREEN, TITLE, pyplot, save, style_of

if TYPE_CHECKING:
    from spo.experiments.figure_data.objective_curves import GradientPoints

ARROW = 0.025
"""The length of an arrow, in units of the ratio, where the slope is 1."""


def make(arguments: FigureArguments) -> list[Path]:
    from spo.experiments.figure_data.objective_curves import gradient_points

    return save(draw_gradients(gradient_points()), "fig3", arguments.out)


def draw_gradients(data: "GradientPoints"):
    """A panel for each objective: filled samples with arrows along ∂f/∂r, hollow ones where it is exactly zero."""
    names = list(data.slope)
    figure, axes = pyplot().subplots(1, len(names), figsize=(3.6 * len(names), 3.4), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names):
        _draw_bounds(axis, data.epsilon)
        _draw_samples(axis, *(np.array(values) for values in (data.ratio, data.advantage, data.slope[name])))
        without = data.slope[name].count(0)
        title = f"{style_of(name).label}: {without} of {len(data.ratio)} without gradient"
        axis.set_title(title, fontsize=TITLE)
        axis.set_xlabel("ratio r")
    axes[0][0].set_ylabel("advantage A")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.legend(*axes[0][0].get_legend_handles_labels(), frameon=False, loc="lower center", ncols=3)
    return figure


def _draw_samples(axis, ratio: np.ndarray, advantage: np.ndarray, slope: np.ndarray) -> None:
    is_zero = slope == 0
    pulled, left = (ratio[~is_zero], advantage[~is_zero]), (ratio[is_zero], advantage[is_zero])
    arrows = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.005, "headwidth": 4, "headlength": 5}
    axis.quiver(*pulled, ARROW * slope[~is_zero], 0 * slope[~is_zero], color=GREEN, **arrows)
    axis.plot(*pulled, "o", color=GREEN, markersize=2.8, label="pulled along the arrow, ∂f/∂r")
    axis.plot(*left, "o", color="0.55", markerfacecolor="white", markersize=3.8, label="no gradient")


def _draw_bounds(axis, epsilon: float) -> None:
    """The bounds 1 ± ε, and on them, for each sign of A, the ratio that is aimed at."""
    for side in (-1, 1):
        axis.axvline(1 + side * epsilon, color="0.6", linewidth=0.8, linestyle=":", zorder=0)
        label = "r = 1 + sign(A)·ε" if side > 0 else None
        axis.plot([1 + side * epsilon] * 2, [0, 2.1 * side], color="0.2", linewidth=1.2, label=label)
    axis.axhline(0, color="0.85", linewidth=0.8, zorder=0)
