"""Scores of a sweep's variants aggregated over its tasks, drawn as intervals, one row for each variant."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from spo.errors import SpoError
from spo.experiments import statistics
from spo.experiments.command_lines import sweep_command
from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.style import PAGE, SMALL, LineStyle, add_legend, pyplot, save, styles_for, write_note
from spo.experiments.figures.sweep_notes import last_share, note_of, open_results, seed_count
from spo.experiments.plan import read_suite
from spo.experiments.results import Results
from spo.experiments.scores import Comparison, compare_variants
from spo.experiments.statistics import Interval

TITLES = {"median": "median", "iqm": "IQM", "mean": "mean", "optimality_gap": "optimality gap"}
ESTIMATE, OTHER = "estimate and 95 % interval", "estimate by each seed's own bounds"


@dataclass(frozen=True)
class Aggregates:
    """All numbers of a figure of aggregates, by variant and metric."""

    styles: dict[str, LineStyle]
    intervals: dict[str, dict[str, Interval]]
    others: dict[str, dict[str, float]]  # the same estimates where scores are normalised by each seed's own bounds
    note: str


def make(arguments: FigureArguments) -> list[Path]:
    """Draw the aggregates over layers × minibatches: Appendix C."""
    return save(draw_aggregates(aggregates(open_results(arguments, "layers-minibatches"))), "appendix-c", arguments.out)


# Numbers


def aggregates(results: Results) -> Aggregates:
    """Median, IQM, mean and optimality gap of all variants that can be compared."""
    comparison = comparison_of(results)
    own = comparison.scores("per-seed")
    others = {name: {key: float(f(own[name])) for key, f in statistics.AGGREGATES.items()} for name in own}
    intervals = {name: statistics.aggregates(scores) for name, scores in comparison.scores().items()}
    return Aggregates(styles_for(results.plan.variants), intervals, others, scores_note(results, comparison))


def comparison_of(results: Results) -> Comparison:
    """What the report compares too; a figure without any task is refused."""
    _check_baseline(results)
    comparison = compare_variants(results)
    if not comparison.tasks:
        path, why = results.sweep.path, "; ".join(comparison.left_out)
        command = sweep_command(results.plan, str(path))
        raise SpoError(
            f"--sweep {path} has no task on which all variants have scores ({why}); {command} goes on with it"
        )
    return comparison


def _check_baseline(results: Results) -> None:
    """Scores are told in terms of one variant's returns, so that one must have been run."""
    plan, path, full = results.plan, results.sweep.path, read_suite(results.plan.suite)
    variant = full.baseline
    if plan.baseline is None or not results.scores(variant):
        command = sweep_command(dataclasses.replace(plan, variants={variant: full.variants[variant]}), str(path))
        scale = f"{full.label(variant)}, by which scores are normalised"
        raise SpoError(f"--sweep {path} has no finished run of {scale}; {command} makes them")


def scores_note(results: Results, comparison: Comparison) -> str:
    """Of what the scores are, and which variants and tasks are missing among them."""
    label, counts = results.plan.label(comparison.baseline), comparison.seed_counts
    narrow = " (fewer than ten: the intervals are too narrow)" if min(counts) < 10 else ""
    return note_of(
        results,
        f"left out: {'; '.join(comparison.left_out)}" if comparison.left_out else "",
        f"{len(comparison.tasks)} task{'s' if len(comparison.tasks) > 1 else ''}, {seed_count(counts)}{narrow}",
        f"scores: 0 and 1 are the lowest and highest iteration mean of {label}, of all its seeds",
        last_share(results),
    )


# Drawing


def draw_aggregates(data: Aggregates):
    """A panel for each metric, a row for each variant: a bar over the interval, a stroke at the estimate."""
    height = 0.75 + 0.21 * len(data.intervals)
    figure, axes = pyplot().subplots(1, len(TITLES), figsize=(PAGE, height), sharey=True)
    for axis, (metric, title) in zip(axes, TITLES.items()):
        draw_intervals(axis, {name: each[metric] for name, each in data.intervals.items()}, data.styles)
        axis.plot([each[metric] for each in data.others.values()], range(len(data.others)), **_other_style())
        axis.set_title(f"{title} {'↓' if metric == 'optimality_gap' else '↑'}", fontsize=9, pad=4)
    figure.tight_layout(rect=(0, 0.25 / height, 1, 1), w_pad=0.8)
    figure.text(0, 0.09 / height, "PPO-normalised score", fontsize=8)
    add_legend(figure, _legend_entries(), (1, 0), loc="lower right", ncols=2, fontsize=SMALL, handletextpad=0.1)
    write_note(figure, data.note)
    return figure


def draw_intervals(axis, intervals: dict[str, Interval], styles: dict[str, LineStyle]) -> None:
    for row, (variant, interval) in enumerate(intervals.items()):
        axis.barh(row, interval.high - interval.low, 0.62, interval.low, color=styles[variant].colour, alpha=0.65)
        axis.plot([interval.value] * 2, [row - 0.31, row + 0.31], color="black", linewidth=1.4, solid_capstyle="butt")
    axis.set_yticks(range(len(intervals)), [styles[name].label for name in intervals])
    axis.set_ylim(max(1, len(intervals)) - 0.5, -0.5)
    axis.tick_params(labelsize=SMALL, length=2.5, pad=2)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="0.88", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.locator_params(axis="x", nbins=4)
    axis.use_sticky_edges = False  # an interval without width at 0 would lie on the frame
    axis.margins(x=0.08)


def _other_style() -> dict[str, object]:
    return {"marker": "D", "markersize": 3, "markerfacecolor": "white", "color": "black", "linestyle": "", "zorder": 4}


def _legend_entries() -> list:
    from matplotlib.lines import Line2D

    estimate = {"color": "black", "marker": "|", "markersize": 7, "linestyle": "", "markeredgewidth": 1.4}
    return [Line2D([], [], label=ESTIMATE, **estimate), Line2D([], [], label=OTHER, **_other_style())]
