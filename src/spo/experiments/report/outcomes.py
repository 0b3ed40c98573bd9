"""What came of the runs: the table of tasks and variants, and their curves."""

import base64
from collections.abc import Callable
from functools import partial

import numpy as np

from spo.experiments.figures.bands import Band
from spo.experiments.figures.panels import WIDE_PANEL, Curve, draw_panel, draw_swatch
from spo.experiments.figures.style import make_distinct, styles_for
from spo.experiments.report.markup import Html, element, join, label, number, section, table
from spo.experiments.results import Entry, Result, Results
from spo.runtime.formatting import percent, plural, short

LONGEST_REASON = 160
"""Letters of a reason that a cell shows; the whole of it stands with the other failures."""


def outcome_section(results: Results) -> Html:
    plan = results.plan
    head = ["task", *(_variant_heading(results, variant) for variant in plan.variants)]
    rows = [[task, *_task_cells(results, task)] for task in plan.tasks]
    return section("results", "Results", table(head, rows, _table_caption(results), class_="outcomes"))


def _variant_heading(results: Results, variant: str) -> Html:
    style = make_distinct(styles_for(results.plan.variants))[variant]
    return join([picture(draw_swatch(style), "", "swatch"), element("br"), results.plan.label(variant)])


def _table_caption(results: Results) -> Html:
    plan = results.plan
    entries = [results.entry(task, variant) for task in plan.tasks for variant in plan.variants]
    parts = [
        f"Return over the last {percent(plan.final_fraction)} of the steps: mean ± standard deviation over the seeds,"
        " the highest mean of each task in bold, however small its lead. Below it the maximum ratio deviation of"
        " the run, the largest of all seeds."
    ]
    if any(entry.paper for entry in entries):
        length = " at its own length" if plan.reductions else ""
        parts.append(f" Grey: the paper’s return and ratio deviation{length}.")
    if any(entry.from_last_episodes for entry in entries):
        parts.append(" †: in some run fewer than 8 episodes ended in that share, so its last 8 were taken.")
    return join([*parts, " ", label(plan.note)])


def _task_cells(results: Results, task: str) -> list[Html]:
    entries = {variant: results.entry(task, variant) for variant in results.plan.variants}
    best = max((entry.mean for entry in entries.values() if entry.mean is not None), default=None)
    return [
        element("td", *_entry(entry, best, results.plan.seeds), *_troubles(results.runs_of(task, variant)))
        for variant, entry in entries.items()
    ]


def _entry(entry: Entry, best: float | None, seeds: int) -> list[Html]:
    """The lines of a cell."""
    count = len(entry.returns)
    lines = []
    if count:
        mean = element("strong", number(entry.mean)) if entry.mean == best else number(entry.mean)
        spread = [" ± ", number(entry.std, short(entry.std, entry.mean))] if count > 1 else []
        lines.append(element("div", mean, *spread, " †" if entry.from_last_episodes else "", class_="return"))
        lines.append(element("div", "deviation ", number(entry.deviation)))
    if entry.paper:
        lines.append(element("div", "paper ", short(entry.paper[0]), " · ", short(entry.paper[1]), class_="paper"))
    if 0 < count < seeds:
        lines.append(element("div", f"{count} of {plural(seeds, 'seed')}", class_="trouble"))
    return lines


def _troubles(runs: list[Result]) -> list[Html]:
    """The runs that have no return: seeds that share a state and a reason, in one line."""
    seeds: dict[str, list[str]] = {}
    for run in runs:
        if not run.has_return:
            seeds.setdefault(run.state_text, []).append(str(run.cell.seed))
    return [
        element("div", f"seed{'s' if len(own) > 1 else ''} {', '.join(own)} {_shorten(outcome)}", class_="trouble")
        for outcome, own in seeds.items()
    ]


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + "…"


# Curves


def curve_section(results: Results) -> Html:
    words = "Raw returns of the episodes that ended in each hundredth of the run, with the stochastic policy: {}."
    return _curve_section(results, ("curves", "Learning curves", "return"), words, results.curve, np.mean)


def deviation_section(results: Results) -> Html:
    words = (
        "Largest mean |r − 1| of a minibatch in each hundredth of the run: {}, on a logarithmic axis. The dotted"
        " line is the bound ε of the objectives."
    )
    named, draw = ("deviations", "Ratio deviation", "ratio deviation"), {"bounds": epsilons(results), "is_log": True}
    return _curve_section(results, named, words, results.deviation_curve, np.median, **draw)


def width_section(results: Results) -> Html:
    """Nothing where no run adapts its width."""
    finished = [run for run in results.runs.values() if run.state == "finished"]
    if not any("epsilon" in run.history.metrics for run in finished):
        return Html()
    words = "The width ε in force, of objectives that adapt it, in each hundredth of the run: {}."
    curve_of = partial(results.metric_curve, name="epsilon")
    return _curve_section(results, ("widths", "Width", "ε"), words, curve_of, np.median)


def epsilons(results: Results) -> tuple[float, ...]:
    """The bounds of the objectives that were run; one that is adapted is no line."""
    return tuple(sorted({run.epsilon for run in results.runs.values() if run.epsilon}))


def _curve_section(
    results: Results, named: tuple[str, str, str], words: str, curve_of: Callable, middle: Callable, **draw
) -> Html:
    """A panel for each task; `named` are the anchor, the title and what is drawn, `words` has a place for the seeds."""
    anchor, title, what = named
    seeds = f"{middle.__name__} and range over the seeds" if results.plan.seeds > 1 else "one seed"
    curves = {task: _curves(results, partial(curve_of, task), middle) for task in results.plan.tasks}
    panels = [_panel(results, task, own, what, **draw) for task, own in curves.items()]
    return section(anchor, title, _panels(results, panels, words.format(seeds)))


def _panels(results: Results, panels: list[Html], words: str) -> Html:
    styles = make_distinct(styles_for(results.plan.variants))
    legend = [
        element("li", picture(draw_swatch(style), "", "swatch"), " ", results.plan.label(variant))
        for variant, style in styles.items()
    ]
    caption = element("p", words, " ", label(results.plan.note), class_="caption")
    return join(
        [
            caption,
            element("ul", *legend, class_="legend"),
            element("div", *panels, class_="panels" if len(panels) > 1 else "panel"),
        ]
    )


def _panel(results: Results, task: str, curves: dict[str, Curve], what: str, **options) -> Html:
    heading = element("figcaption", task)
    if not curves:
        return element("figure", heading, element("p", "No finished run has a curve here.", class_="trouble"))
    ends = "; ".join(f"{results.plan.label(name)} {short(band.middle[-1])}" for name, (_, band) in curves.items())
    steps = int(max(band.x[-1] for _, band in curves.values()))
    alternative = f"{task}: {what} over {steps:,} environment steps. At the end: {ends}."
    draw = partial(draw_panel, list(curves.values()), what, steps, **options)
    if len(results.plan.tasks) > 1:
        return element("figure", heading, picture(draw(), alternative))
    # One task has the width to itself; where there is none, its picture is that of one among several.
    pictures = [picture(draw(size=WIDE_PANEL), alternative, "wide"), picture(draw(), alternative, "narrow")]
    return element("figure", heading, *pictures)


def _curves(results: Results, curve_of: Callable, middle: Callable) -> dict[str, Curve]:
    found = {}
    for variant, style in make_distinct(styles_for(results.plan.variants)).items():
        steps, values = curve_of(variant)
        values = values[~np.isnan(values).any(1)]  # a run in which no episode ended has no curve
        if len(values):
            found[variant] = (style, Band(steps, middle(values, 0), values.min(0), values.max(0)))
    return found


def picture(svg: str, alternative: str, kind: str | None = None) -> Html:
    """An image that is part of the page."""
    source = "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
    return element("img", src=source, alt=alternative, class_=kind)
