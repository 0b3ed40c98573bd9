"""Every objective over the ratio: f and its slope."""

from pathlib import Path
from typing import TYPE_CHECKING

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.style import NEGATIVE, POSITIVE, pyplot, save

if TYPE_CHECKING:
    from spo.experiments.figure_data.objective_curves import ObjectiveCurves


def make(arguments: FigureArguments) -> list[Path]:
    """SPO beside PPO-Clip, and each objective alone."""
    from spo.experiments.figure_data.objective_curves import objective_curves

    data = objective_curves()
    paths = save(draw_objectives(data, ["spo", "ppo-clip"]), "spo-and-ppo", arguments.out)
    for name in data.curves:
        paths += save(draw_objectives(data, [name]), f"objective-{name}", arguments.out, ("svg",))
    return paths


def draw_objectives(data: "ObjectiveCurves", names: list[str] | None = None):
    """Two rows: f over r, and its slope, for A = 1 and A = −1; the bound is a grey line."""
    plt = pyplot()
    names = names or list(data.curves)
    figure, axes = plt.subplots(2, len(names), figsize=(max(2.8, 2.3 * len(names)), 4.4), sharex=True, squeeze=False)
    for column, name in enumerate(names):
        _draw_objective(axes[:, column], data, name)
    for row, label in enumerate(("f", "∂f/∂r")):
        axes[row][0].set_ylabel(label)
    lines, labels = axes[0][0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.legend(lines, labels, frameon=False, loc="upper center", ncols=2)
    return figure


def _draw_objective(axes, data: "ObjectiveCurves", name: str) -> None:
    for advantage, colour, style in ((1.0, POSITIVE, "-"), (-1.0, NEGATIVE, "--")):
        for axis, curve in zip(axes, data.curves[name][advantage]):
            axis.plot(data.ratios, curve, style, color=colour, label=f"A = {advantage:+.0f}", linewidth=1.6)
    for axis, limits in zip(axes, ((-2.6, 2.6), (-3.2, 3.2))):
        axis.set_ylim(*limits)
        axis.axhline(0, color="0.85", linewidth=0.8, zorder=0)
        axis.axvline(1, color="0.85", linewidth=0.8, zorder=0)
        for side in (-1, 1) if data.bounds[name] else ():
            axis.axvline(1 + side * data.bounds[name], color="0.6", linewidth=0.8, linestyle=":", zorder=0)
    axes[0].set_title(" ".join([name, *(f"--{key} {value:g}" for key, value in data.shown.get(name, {}).items())]))
    axes[1].set_xlabel("ratio r")
