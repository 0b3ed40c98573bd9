"""Training curves of a sweep: for each task a panel of returns and, if asked for, one of ratio deviations below it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.bands import draw_band, mean_and_range, mean_and_std
from spo.experiments.figures.style import (
    COLUMN,
    PAGE,
    SMALL,
    LineStyle,
    add_legend,
    make_distinct,
    plot_options,
    pyplot,
    save,
    short_number,
    styles_for,
    write_note,
)
from spo.experiments.figures.sweep_notes import Drawn, ended_curve, last_share, note_of, open_results, seed_count
from spo.experiments.plan import Plan
from spo.experiments.results import Results

POINTS = 100
"""Of a curve: bins of the steps."""
BOUND = {"color": "0.2", "linewidth": 0.9, "linestyle": (0, (7, 2, 1, 2, 1, 2)), "zorder": 1}
LEFT, BOTTOM, TOP, GAP = 0.5, 0.38, 0.22, (0.42, 0.42)
"""Inches: beside and under the panels for their labels, above them for a title, and between two panels. Fixed, because
panels inside a grid's cells are beyond a tight layout."""
ENTRY, ROW = 1.35, 0.19
"""Inches that an entry of the legend is wide and high."""


@dataclass(frozen=True)
class Curves:
    """All numbers of a figure of training curves, by task and variant."""

    steps: int  # of the plan, which may be a few more than those of its whole iterations
    styles: dict[str, LineStyle]
    returns: dict[str, dict[str, Drawn]]
    deviations: dict[str, dict[str, Drawn]]  # empty: there are no such panels
    bounds: tuple[float, ...]  # every ε that a drawn variant has
    references: dict[str, dict[str, float]]  # returns shown as a horizontal line
    note: str


def make_training(
    arguments: FigureArguments,
    suite: str,
    has_deviations: bool = False,
    referred: tuple[str, ...] = (),
    **layout: float,
) -> list[Path]:
    """Draw the curves of a suite's sweep under the figure's own name, with `layout` as `draw_training` takes it."""
    results = open_results(arguments, suite)
    known = tuple(variant for variant in referred if variant in results.plan.variants)
    curves = training_curves(results, has_deviations, known)
    return save(draw_training(curves, **layout), arguments.name, arguments.out)


def make_curves(arguments: FigureArguments) -> list[Path]:
    return save(draw_sweep(open_results(arguments)), "curves", arguments.out)


def draw_sweep(results: Results):
    """Returns and ratio deviations for each task of any sweep, its variants told apart by more than colour."""
    curves = training_curves(results, has_deviations=True)
    curves = replace(curves, styles=make_distinct(curves.styles))
    return draw_training(curves, columns=min(3, len(curves.returns)), height=2.3)


# Numbers


def training_curves(results: Results, has_deviations: bool = False, referred: tuple[str, ...] = ()) -> Curves:
    """The curves of every variant; those `referred` to are no curves, but lines at the height of their last returns."""
    plan, drawn = results.plan, [variant for variant in results.plan.variants if variant not in referred]
    returns = _by_cell(plan, drawn, lambda *cell: ended_curve(results, *cell, POINTS))
    horizontal = f"horizontal: {last_share(results)}" if referred else ""
    deviations = _by_cell(plan, drawn, lambda *cell: results.deviation_curve(*cell, POINTS)) if has_deviations else {}
    return Curves(
        steps=plan.steps,
        styles=styles_for(plan.variants),
        returns=returns,
        deviations=deviations,
        bounds=_bounds(results, drawn) if has_deviations else (),
        references={task: _last_returns(results, task, referred) for task in plan.tasks},
        note=note_of(results, _bands(returns, has_deviations), horizontal),
    )


def _by_cell(plan: Plan, variants: list[str], curve: Callable[[str, str], Drawn]) -> dict[str, dict[str, Drawn]]:
    """By task, the curves of those variants that have runs to show."""
    curves = {task: {variant: curve(task, variant) for variant in variants} for task in plan.tasks}
    return {task: {name: each for name, each in row.items() if len(each[1])} for task, row in curves.items()}


def _last_returns(results: Results, task: str, variants: tuple[str, ...]) -> dict[str, float]:
    means = {variant: results.entry(task, variant).mean for variant in variants}
    return {variant: mean for variant, mean in means.items() if mean is not None}


def _bounds(results: Results, variants: list[str]) -> tuple[float, ...]:
    """Every ε of the variants' finished runs; one that is adapted is no line."""
    finished = [run for cell, run in results.runs.items() if cell.variant in variants and run.state == "finished"]
    return tuple(sorted({run.epsilon for run in finished if run.epsilon}))


def _bands(returns: dict[str, dict[str, Drawn]], has_deviations: bool) -> str:
    counts = [len(runs) for drawn in returns.values() for _, runs in drawn.values()]
    bands = "standard deviation of returns, range of ratio deviations" if has_deviations else "standard deviation"
    means = f"mean over {seed_count(counts)} (bands: {bands})" if max(counts, default=0) > 1 else "one seed"
    return f"{means}; ratio deviations are those of the largest minibatch" if has_deviations else means


# Drawing


def draw_training(curves: Curves, columns: int, width: float = PAGE, height: float = 1.3):
    """Panels task by task, so many of them side by side in a width, and fewer in less; `height` inches for each row."""
    panel = (width - LEFT - (columns - 1) * GAP[0]) / columns
    columns = min(columns, len(curves.returns))
    rows = math.ceil(len(curves.returns) / columns)
    width = max(COLUMN, LEFT + columns * panel + (columns - 1) * GAP[0])
    entries = _legend_entries(curves)
    legend_rows = max(1, math.ceil(len(entries) * ENTRY / width))
    top = TOP + ROW * legend_rows
    figure = pyplot().figure(figsize=(width, top + rows * height + (rows - 1) * GAP[1] + BOTTOM))
    grid = _grid(figure, rows, columns, top, height)
    for number, task in enumerate(curves.returns):
        _draw_task(figure, grid[number // columns, number % columns], curves, task, number % columns == 0)
        figure.axes[-1].set_xlabel("steps" if number == (rows - 1) * columns else "", fontsize=SMALL, labelpad=1)
    ncols = max(1, math.ceil(len(entries) / legend_rows))
    add_legend(figure, entries, (0.5, 1), loc="upper center", ncols=ncols, fontsize=8, borderaxespad=0)
    write_note(figure, curves.note)
    return figure


def _grid(figure, rows: int, columns: int, top: float, height: float):
    width, full = figure.get_size_inches()
    panel = (width - LEFT - (columns - 1) * GAP[0]) / columns
    edges = {"left": LEFT / width, "right": 1, "bottom": BOTTOM / full, "top": 1 - top / full}
    return figure.add_gridspec(rows, columns, wspace=GAP[0] / panel, hspace=GAP[1] / height, **edges)


def _draw_task(figure, cell, curves: Curves, task: str, is_first: bool) -> None:
    inner = cell.subgridspec(2, 1, height_ratios=(3, 2), hspace=0.12) if curves.deviations else [cell]
    axis = figure.add_subplot(inner[0])
    _draw_returns(axis, curves, task)
    axes = [axis]
    if curves.deviations:
        axes.append(figure.add_subplot(inner[1], sharex=axis))
        _draw_deviations(axes[1], curves, task)
        axis.tick_params(labelbottom=False)
    for each, label in zip(axes, ("return", "ratio deviation")):
        each.set_ylabel(label if is_first else "", fontsize=SMALL)
        each.tick_params(labelsize=SMALL, length=2.5, pad=2)


def _draw_returns(axis, curves: Curves, task: str) -> None:
    """Mean and standard deviation over the seeds, and the references as horizontal lines."""
    for number, (variant, (steps, runs)) in enumerate(curves.returns[task].items()):
        draw_band(axis, mean_and_std(steps, runs), curves.styles[variant], number)
    for variant, mean in curves.references[task].items():
        steps = np.linspace(0, curves.steps, 4)
        axis.plot(steps, [mean] * 4, markevery=[1, 2], zorder=1.5, **plot_options(curves.styles[variant]))
    if not axis.lines:
        axis.text(0.5, 0.5, "no returns yet", transform=axis.transAxes, ha="center", fontsize=SMALL, color="0.4")
    axis.set_title(task, fontsize=SMALL + 1, pad=3)
    axis.set_xlim(0, curves.steps)
    axis.locator_params(axis="x", nbins=2)
    axis.locator_params(axis="y", nbins=4)
    axis.xaxis.set_major_formatter(short_number)
    axis.yaxis.set_major_formatter(short_number)


def _draw_deviations(axis, curves: Curves, task: str) -> None:
    """Mean and range over the seeds on a logarithmic axis, the same for all tasks, with every ε as a line."""
    for number, (variant, (steps, runs)) in enumerate(curves.deviations[task].items()):
        draw_band(axis, mean_and_range(steps, runs), curves.styles[variant], number)
    for bound in curves.bounds:
        axis.axhline(bound, **BOUND)
    axis.set_yscale("log", nonpositive="clip")
    axis.set_ylim(_deviation_range(curves))
    axis.minorticks_off()


def _deviation_range(curves: Curves) -> tuple[float, float]:
    """Whole powers of ten, so that at least two are on the axis."""
    values = [runs.ravel() for drawn in curves.deviations.values() for _, runs in drawn.values()]
    positive = [value for value in np.concatenate([*values, curves.bounds]) if value > 0] or [0.1]
    return 10.0 ** math.floor(math.log10(0.99 * min(positive))), 10.0 ** math.ceil(math.log10(1.01 * max(positive)))


def _legend_entries(curves: Curves) -> list:
    """A line for every variant that is drawn somewhere, and one for ε."""
    from matplotlib.lines import Line2D

    panels = [*curves.returns.values(), *curves.deviations.values(), *curves.references.values()]
    shown = {name for panel in panels for name in panel}
    styles = [style for name, style in curves.styles.items() if name in shown]
    lines = [Line2D([], [], label=style.label, **plot_options(style)) for style in styles]
    if curves.bounds:
        lines.append(Line2D([], [], label=f"ε = {' and '.join(f'{bound:g}' for bound in curves.bounds)}", **BOUND))
    return lines
