"""Fig. 7: what becomes of surrogate and ratios while objectives are optimised on one batch."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.bands import draw_band, mean_and_range
from spo.experiments.figures.style import TITLE, pyplot, save, style_of

if TYPE_CHECKING:
    from spo.experiments.figure_data.one_batch import OneBatch

PANELS = {"surrogate": ("surrogate", "mean(r·A)"), "ratio_deviation": ("ratio deviation", "mean|r − 1|")}


def make(arguments: FigureArguments) -> list[Path]:
    from spo.experiments.figure_data.one_batch import one_batch_curves

    return save(draw_one_batch(one_batch_curves()), "fig7", arguments.out)


def draw_one_batch(data: "OneBatch"):
    """Two panels over the steps: mean and range over the seeds of every objective, and the bound on the deviation."""
    figure, axes = pyplot().subplots(1, len(PANELS), figsize=(6.8, 2.9))
    for axis, (key, (title, label)) in zip(axes, PANELS.items()):
        for name, curves in data.curves.items():
            runs = np.array(getattr(curves, key))
            band = mean_and_range(np.arange(runs.shape[1]), runs)
            draw_band(axis, band, style_of(name), marker="", linewidth=1.6)
        axis.set(xlabel="step of Adam on the whole batch", ylabel=label, ylim=(0, None))
        axis.set_title(title, fontsize=TITLE)
        axis.margins(x=0)
    axes[1].axhline(data.epsilon, color="0.3", linewidth=0.9, linestyle=":")
    bound = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": "right"}
    axes[1].annotate(f"ε = {data.epsilon:g}", (1, data.epsilon), xytext=(0, 3), **bound)
    lines, labels = axes[0].get_legend_handles_labels()
    seeds = max(len(curves.surrogate) for curves in data.curves.values())
    title = f"mean and range over {seeds} seeds" if seeds > 1 else None
    figure.tight_layout(rect=(0, 0, 1, 0.87))
    figure.legend(lines, labels, title=title, frameon=False, loc="upper center", ncols=len(labels))
    return figure
