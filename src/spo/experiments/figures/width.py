"""The study of widths: how far each rule lets the ratios move, and what return it reaches, at each depth."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.style import (
    DOTTED,
    PAGE,
    SMALL,
    LineStyle,
    add_legend,
    pyplot,
    save,
    short_number,
    styles_for,
    write_note,
)
from spo.experiments.figures.sweep_notes import last_share, note_of, open_results
from spo.experiments.results import Results
from spo.experiments.verdict import DEPTHS, SUITE, conclusion, verdicts

Points = tuple[np.ndarray, np.ndarray]
"""Of each run: the realised deviation (the median iteration's mean |r − 1|), and the return."""


@dataclass(frozen=True)
class Widths:
    """All numbers of the figure."""

    tasks: tuple[str, ...]
    styles: dict[str, LineStyle]  # by variant
    points: dict[str, dict[str, dict[str, Points]]]  # by depth, task and variant
    note: str


def make(arguments: FigureArguments) -> list[Path]:
    return save(draw_widths(widths(open_results(arguments, SUITE))), "width", arguments.out)


# Numbers


def widths(results: Results) -> Widths:
    plan = results.plan
    points = {
        depth: {
            task: {name: _points(results, task, name) for name in plan.variants if name.endswith(f"-{depth}")}
            for task in plan.tasks
        }
        for depth in DEPTHS
    }
    legend = "small: runs (x: the median iteration's), large: their mean"
    note = note_of(results, legend, last_share(results), conclusion(verdicts(results)))
    shown = {depth: rows for depth, rows in points.items() if any(map(_has_points, rows.values()))}
    return Widths(plan.tasks, styles_for(plan.variants), shown, note)


def _points(results: Results, task: str, variant: str) -> Points:
    finished = [run for run in results.finished_runs(task, variant) if run.has_return]
    runs = [run for run in finished if "ratio_deviation" in run.history.metrics]
    deviations = np.array([run.history.numbers["metrics"]["ratio_deviation"]["median"] for run in runs])
    return deviations, np.array([run.summary["return"] for run in runs])


def _has_points(row: dict[str, Points]) -> bool:
    return any(len(returns) for _, returns in row.values())


# Drawing


def draw_widths(data: Widths):
    """A row for each depth, a panel for each task."""
    rows, columns = max(1, len(data.points)), len(data.tasks)
    figure, axes = pyplot().subplots(rows, columns, figsize=(PAGE, 0.7 + 1.9 * rows), squeeze=False, sharex=True)
    for row, (depth, tasks) in zip(axes, data.points.items()):
        for axis, (task, points) in zip(row, tasks.items()):
            _draw_panel(axis, points, data.styles)
            axis.set_title(task, fontsize=SMALL + 1, pad=3)
        row[0].set_ylabel(f"{depth} layers: return", fontsize=SMALL)
    for axis in axes[-1]:
        axis.set_xlabel("realised mean |r − 1|", fontsize=SMALL)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.45 / figure.get_figheight()))
    add_legend(figure, _legend_entries(data), (0.5, 1), loc="upper center", ncols=4, fontsize=SMALL, borderaxespad=0)
    write_note(figure, data.note)
    return figure


def _draw_panel(axis, points: dict[str, Points], styles: dict[str, LineStyle]) -> None:
    for variant, (deviations, returns) in points.items():
        if len(returns):
            style = _marker(styles[variant])
            axis.plot(deviations, returns, markersize=2.5, alpha=0.55, **style)
            axis.plot([deviations.mean()], [returns.mean()], markersize=6.5, label=variant, **style)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(short_number)
    axis.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    axis.yaxis.set_major_formatter(short_number)
    axis.tick_params(which="both", labelsize=SMALL, length=2.5, pad=2)
    axis.grid(color="0.92", linewidth=0.6)


def _marker(style: LineStyle) -> dict[str, object]:
    """Full for the first variant of an objective, hollow for one of another width; the depth is the panel's."""
    face = "white" if style.line == DOTTED else style.colour
    return {"color": style.colour, "marker": style.marker, "markerfacecolor": face, "linestyle": ""}


def _legend_entries(data: Widths) -> list:
    """One for each rule: the label without the depth."""
    from matplotlib.lines import Line2D

    rows = [row for tasks in data.points.values() for row in tasks.values()]
    styles = [data.styles[name] for row in rows for name, (_, returns) in row.items() if len(returns)]
    rules = {style.label.rpartition(",")[0]: style for style in styles}
    return [Line2D([], [], label=label, markersize=5, **_marker(style)) for label, style in rules.items()]
