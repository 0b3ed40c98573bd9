"""Fig. 2: the losses of SPO and PPO, and what becomes of every sample's ratio while they are optimised.

Two forms: the cloud of all samples in each epoch, and, with --follow, the paths of some dozens of them, which is how
the authors drew it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spo.errors import SpoError
from spo.experiments.figure_data.recorded_ratios import RecordedRatios, follow_command, read_ratios, record_command
from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.style import NEGATIVE, POSITIVE, TITLE, pyplot, save, style_of
from spo.runtime.seeding import generator

if TYPE_CHECKING:
    from spo.experiments.figure_data.objective_curves import ObjectiveCurves

MOST_POINTS = 1000
"""Of one epoch: enough to see the cloud, and few enough for a small file."""
MOST_FOLLOWED = 64
"""Paths in one panel: more would hide each other."""
LARGEST_DRAWN = 1e4
"""A ratio further from 1 is drawn here, at the edge."""


def make(arguments: FigureArguments) -> list[Path]:
    from spo.experiments.figure_data.objective_curves import objective_curves

    if not arguments.runs:
        command = follow_command if arguments.follow else record_command
        commands = " and ".join(command("Humanoid-v4", name) for name in ("ppo-clip", "spo"))
        raise SpoError(f"figure fig2 needs --runs, a directory of PPO's and one of SPO's; {commands} make them")
    recorded = read_ratios(arguments.runs, arguments.iteration)
    name, draw = ("fig2-follow", _draw_paths) if arguments.follow else ("fig2", _draw_scatter)
    return save(draw_ratios(objective_curves(), recorded, draw), name, arguments.out)


def draw_ratios(curves: "ObjectiveCurves", recorded: list[RecordedRatios], draw: Callable):
    """Left f over r for both signs of A; right, for each run, its ratios over the epochs, coloured by advantage."""
    runs = [f"run {i}" for i in range(len(recorded))]
    figure, axes = pyplot().subplot_mosaic(
        [["A = +1", *runs], ["A = −1", *runs]],
        width_ratios=[1, *[1.4] * len(runs)],
        gridspec_kw={"wspace": 0.4, "hspace": 0.5},
        figsize=(2.2 + 2.9 * len(runs), 3.6),
    )
    for sign, label in ((1.0, "A = +1"), (-1.0, "A = −1")):
        _draw_losses(axes[label], curves, sign)
        axes[label].set_title(label, fontsize=TITLE)
    panels = [axes[run] for run in runs]
    colour = _colours(recorded)
    for axis, each in zip(panels, recorded):
        _draw_frame(axis, each, draw(axis, each, colour))
    _scale_ratios(panels, recorded)
    label = "raw advantage" if any(each.is_raw for each in recorded) else "advantage A"
    figure.colorbar(colour, cax=panels[-1].inset_axes([1.04, 0, 0.05, 1]), label=label, extend="both")
    return figure


def _draw_losses(axis, curves: "ObjectiveCurves", sign: float) -> None:
    for name in ("ppo-clip", "spo"):
        style, f = style_of(name), curves.curves[name][sign].f
        axis.plot(curves.ratios, f, color=style.colour, linestyle=style.line, linewidth=1.6, label=style.label)
    for side in (-1, 1):
        axis.axvline(1 + side * curves.bounds["spo"], color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    axis.set(xlim=(0.4, 1.6), ylim=(0, 1.4) if sign > 0 else (-2, -0.6), ylabel="f")
    if sign > 0:
        axis.legend(frameon=False, loc="lower right", fontsize=8, handlelength=1.8, borderpad=0)
    else:
        axis.set_xlabel("ratio r")


def _draw_scatter(axis, recorded: RecordedRatios, colour) -> str:
    """Every epoch's samples side by side in its column; as pixels, also in files of lines."""
    epoch, deviation, advantage = scatter_samples(recorded)
    axis.scatter(
        epoch, deviation, c=advantage, cmap=colour.cmap, norm=colour.norm, s=1.5, linewidths=0, rasterized=True
    )
    return last_epoch(recorded)


def _draw_paths(axis, recorded: RecordedRatios, colour) -> str:
    """The way of each followed sample from r = 1 on, and a dot after every epoch in the colour of its advantage."""
    deviation, advantage = follow_samples(recorded)
    epoch = np.arange(len(deviation))
    for path, seen in zip(deviation.T, advantage.T):
        axis.plot(epoch, path, color=colour.to_rgba(seen.mean()), linewidth=0.5, alpha=0.6)
    epochs = np.repeat(epoch[1:], deviation.shape[1])
    colours = {"c": advantage.ravel(), "cmap": colour.cmap, "norm": colour.norm}
    axis.scatter(epochs, deviation[1:].ravel(), s=2.5, linewidths=0, rasterized=True, zorder=2.5, **colours)
    last = np.abs(recorded.ratio[-1] - 1)
    return f"last epoch: mean |r − 1| {last.mean():.3g}\nlargest |r − 1|: {last.max():.3g}"


def follow_samples(recorded: RecordedRatios) -> tuple[np.ndarray, np.ndarray]:
    """Of some samples r − 1 from the start on (1 + epochs, samples), and their advantages (epochs, samples)."""
    chosen = generator(0, "scatter").permutation(recorded.ratio.shape[1])[:MOST_FOLLOWED]
    deviation = np.minimum(recorded.ratio[:, chosen] - 1, LARGEST_DRAWN)
    return np.vstack([np.zeros(len(chosen)), deviation]), recorded.advantage[:, chosen]


def _draw_frame(axis, recorded: RecordedRatios, caption: str) -> None:
    """The bounds, the title, and what the numbers of all samples say."""
    for bound in (-recorded.epsilon, recorded.epsilon):
        axis.axhline(bound, color="black", linewidth=0.9, linestyle="--")
    axis.set_title(f"{style_of(recorded.objective).label}, {recorded.env}", fontsize=TITLE)
    axis.set_xlabel(f"epoch of iteration {recorded.iteration}")
    if len(recorded.ratio) <= 12:
        axis.set_xticks(range(1, len(recorded.ratio) + 1))
    axis.text(0.02, 0.98, caption, transform=axis.transAxes, va="top", fontsize=8)


def scatter_samples(recorded: RecordedRatios) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The points: place in the epoch's column, r − 1, and advantage; the same samples in every epoch."""
    draw = generator(0, "scatter")
    epochs, samples = recorded.ratio.shape
    chosen = draw.permutation(samples)[:MOST_POINTS]
    epoch = np.arange(1, epochs + 1)[:, None] + draw.uniform(-0.42, 0.42, (epochs, len(chosen)))
    deviation = np.minimum(recorded.ratio[:, chosen] - 1, LARGEST_DRAWN)
    return epoch.ravel(), deviation.ravel(), recorded.advantage[:, chosen].ravel()


def last_epoch(recorded: RecordedRatios) -> str:
    """The numbers beside the cloud, of all samples."""
    deviation = np.abs(recorded.ratio[-1] - 1)
    outside = (deviation > recorded.epsilon).mean()
    return f"last epoch: {outside:.0%} outside ±ε\nlargest |r − 1|: {deviation.max():.3g}"


def _colours(recorded: list[RecordedRatios]):
    """One scale for all runs: vermilion over grey to blue, saturated where only a twentieth of the samples lie."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    limit = max(np.quantile(np.abs(each.advantage), 0.95) for each in recorded) or 1.0
    cmap = LinearSegmentedColormap.from_list("advantage", [NEGATIVE, "#CCCCCC", POSITIVE])
    return ScalarMappable(Normalize(-limit, limit), cmap)


def _scale_ratios(axes: list, recorded: list[RecordedRatios]) -> None:
    """One axis for all runs, linear near r = 1 and logarithmic far from it, because PPO's ratios run to thousands."""
    epsilon = max(each.epsilon for each in recorded)
    bottom = 1.2 * min(-2 * epsilon, *(each.ratio.min() - 1 for each in recorded))
    top = 2.5 * max(2 * epsilon, *(min(each.ratio.max() - 1, LARGEST_DRAWN) for each in recorded))
    ticks = (-1, -epsilon, 0, epsilon, 1, 10, 100, 1000, 10000)
    for axis in axes:
        axis.set_yscale("asinh", linear_width=epsilon)
        axis.set_ylim(bottom, top)
        axis.set_yticks([tick for tick in ticks if bottom <= tick <= top])
        axis.set_yticks([], minor=True)
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
        axis.tick_params(labelleft=axis is axes[0])
    axes[0].set_ylabel("r − 1", labelpad=1)
