"""Fig. 4: SPO and its baselines aggregated over the tasks; beside it, what one number each cannot tell."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spo.experiments import statistics
from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.bands import Band, draw_band
from spo.experiments.figures.score_bars import aggregates, comparison_of, draw_aggregates, draw_intervals, scores_note
from spo.experiments.figures.style import (
    PAGE,
    SMALL,
    TITLE,
    LineStyle,
    pyplot,
    save,
    short_number,
    styles_for,
    write_note,
)
from spo.experiments.figures.sweep_notes import ended_curve, open_results
from spo.experiments.results import Results
from spo.experiments.scores import Comparison
from spo.experiments.statistics import Interval, Scores

POINTS = 50
"""Of the curve over training: an interval is computed at each."""
THRESHOLDS = 101


@dataclass(frozen=True)
class Profiles:
    """All numbers of the second figure, by variant."""

    styles: dict[str, LineStyle]
    thresholds: np.ndarray
    profiles: dict[str, Interval]
    steps: np.ndarray
    efficiency: dict[str, Interval]  # the IQM over training
    improvement: dict[str, Interval]  # how likely a run beats one of the baseline
    baseline: str
    note: str


def make(arguments: FigureArguments) -> list[Path]:
    results = open_results(arguments, "fig4")
    paths = save(draw_aggregates(aggregates(results)), "fig4", arguments.out)
    return paths + save(draw_profiles(profiles(results)), "fig4-profiles", arguments.out)


# Numbers


def profiles(results: Results) -> Profiles:
    comparison = comparison_of(results)
    scores = comparison.scores()
    thresholds = _thresholds(scores)
    steps, curves = _normalized_curves(results, comparison)
    return Profiles(
        styles_for(results.plan.variants),
        thresholds,
        {name: statistics.profile(each, thresholds) for name, each in scores.items()},
        steps,
        {name: statistics.curve(statistics.iqm, each) for name, each in curves.items()},
        comparison.improvement(),
        comparison.baseline,
        scores_note(results, comparison),
    )


def _thresholds(scores: dict) -> np.ndarray:
    values = np.concatenate([runs for tasks in scores.values() for runs in tasks.values()])
    return np.linspace(min(0.0, values.min()), max(1.0, values.max()), THRESHOLDS)


def _normalized_curves(results: Results, comparison: Comparison) -> tuple[np.ndarray, dict[str, Scores]]:
    """Steps, and by variant and task the normalised curves (runs, points)."""
    raw = {
        name: {task: ended_curve(results, task, name, POINTS) for task in comparison.tasks}
        for name in comparison.returns
    }
    steps = raw[comparison.baseline][comparison.tasks[0]][0]
    runs = {name: {task: runs for task, (_, runs) in curves.items()} for name, curves in raw.items()}
    return steps, {name: comparison.normalize(each) for name, each in runs.items()}


# Drawing


def draw_profiles(data: Profiles):
    """Above, profiles and sample efficiency with their bands; below, the probability of improvement, and the legend."""
    figure, axes = pyplot().subplot_mosaic(
        [["profiles", "efficiency"], ["improvement", "legend"]],
        figsize=(PAGE, 3.3 + 0.19 * len(data.improvement)),
        height_ratios=[2.4, 0.6 + 0.19 * len(data.improvement)],
    )
    _draw_bands(axes["profiles"], data.thresholds, data.profiles, data.styles)
    axes["profiles"].set(xlabel="PPO-normalised score τ", ylabel="share of runs above τ", ylim=(0, 1.02))
    axes["profiles"].set_title("performance profiles", fontsize=TITLE)
    _draw_bands(axes["efficiency"], data.steps, data.efficiency, data.styles)
    axes["efficiency"].set(xlabel="steps", ylabel="IQM of the score", xlim=(0, data.steps[-1]))
    axes["efficiency"].locator_params(axis="x", nbins=5)
    axes["efficiency"].set_title("sample efficiency", fontsize=TITLE)
    axes["efficiency"].xaxis.set_major_formatter(short_number)
    _draw_improvement(axes["improvement"], data)
    lines, labels = axes["profiles"].get_legend_handles_labels()
    axes["legend"].legend(lines, labels, frameon=False, loc="center", ncols=2, fontsize=8, handlelength=3)
    axes["legend"].axis("off")
    figure.tight_layout(h_pad=1.2, w_pad=1.5)
    write_note(figure, f"bands and bars: 95 % intervals · {data.note}")
    return figure


def _draw_bands(axis, x: np.ndarray, bands: dict[str, Interval], styles: dict[str, LineStyle]) -> None:
    for number, (variant, band) in enumerate(bands.items()):
        draw_band(axis, Band(x, band.value, band.low, band.high), styles[variant], number, marks=6)
    axis.margins(x=0)
    axis.tick_params(labelsize=8)


def _draw_improvement(axis, data: Profiles) -> None:
    draw_intervals(axis, data.improvement, data.styles)
    axis.axvline(0.5, color="0.3", linewidth=0.9, linestyle=":")
    axis.set(xlim=(-0.02, 1.02), xticks=[0, 0.25, 0.5, 0.75, 1])
    axis.set_title(f"P(better than {data.styles[data.baseline].label})", fontsize=TITLE)
    axis.tick_params(axis="y", labelsize=SMALL)
