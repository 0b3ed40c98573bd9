"""Several runs, or the variants of a sweep, over their seeds."""

from dataclasses import dataclass

import numpy as np
from bokeh.models import Column, ColumnDataSource, InlineStyleSheet, RadioButtonGroup, Select, UIElement
from bokeh.plotting import figure

from spo.experiments.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from spo.experiments.report.markup import Html, element, join
from spo.watch.curves import METRICS, RETURN, Curve, CurveKeeper, combine, interval_of
from spo.watch.glance import Glance
from spo.watch.page import Page, link_to
from spo.watch.plots import GREY, add_hover, make_figure, set_log_scale, show_part
from spo.watch.words import colour_of, list_differences, show_number

PALETTE = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY)
DASHES = ("solid", "dashed", "dotted", "dotdash")
MOST_RUNS, MOST_TASKS, MOST_GROUPS = 400, 24, 24
GRID = """:host {
  display: grid !important; grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); gap: 0 1.5rem;
}"""


@dataclass(frozen=True)
class Group:
    """The runs of one kind on one task."""

    task: str
    label: str
    runs: tuple[Glance, ...]


class ComparePage(Page):
    """Curves with bands, and what the runs have come to."""

    title, path = "Compare", "/compare"

    def build(self) -> list[UIElement]:
        self.keeper, self.plots, self.drawn = CurveKeeper(self.catalogue), {}, None
        style = {"stylesheets": [self.widget_style]}
        options = list(METRICS.items())
        self.metrics = [Select(name=f"metric-{i}", value=value, options=options, width=280, **style)
                        for i, value in enumerate((RETURN, "ratio_deviation_max"))]  # fmt: skip
        self.across = RadioButtonGroup(name="across", labels=["steps", "wall time"], active=0, **style)
        self.scale = RadioButtonGroup(name="scale", labels=["linear", "log right"], active=0, **style)
        for widget, name in ((self.metrics[0], "value"), (self.metrics[1], "value"), (self.across, "active"),
                             (self.scale, "active")):  # fmt: skip
            self.listen(widget, name, lambda value: self._redraw())
        self.facts, self.table = self.make_div("facts"), self.make_div("table")
        self.grid = Column(name="grid", sizing_mode="stretch_width", stylesheets=[InlineStyleSheet(css=GRID)])
        return [self.facts, *self.metrics, self.across, self.scale, self.grid, self.table]

    # Which runs

    def _choose(self) -> list[Glance]:
        """Take the sweep or the runs that the address names; else the newest sweep; else the newest runs."""
        glances = list(self.catalogue.glances.values())
        sweep, keys = self.argument("sweep"), self.arguments("run")
        if not sweep and not keys:
            newest = max(glances, key=lambda own: own.written, default=None)
            sweep = newest.sweep if newest else ""
        if sweep:
            return [own for own in glances if own.sweep == sweep][:MOST_RUNS]
        if keys:
            return [own for own in glances if own.key in set(keys)][:MOST_RUNS]
        return sorted((own for own in glances if not own.sweep), key=lambda own: -own.written)[:20]

    def _group(self, runs: list[Glance]) -> list[Group]:
        """Put runs that differ in their seed alone together."""
        differences = list_differences(runs)
        found: dict[tuple[str, str], list[Glance]] = {}
        for run in sorted(runs, key=lambda own: (own.task, own.name)):
            label = self.catalogue.label(run)
            label = label if run.sweep or not differences[run.key] else f"{label} · {differences[run.key]}"
            found.setdefault((run.task, label), []).append(run)
        return [Group(task, label, tuple(own)) for (task, label), own in found.items()]

    # Drawing

    def _redraw(self) -> None:
        self.drawn = None
        self.refresh()

    def refresh(self) -> None:
        runs = self._choose()
        is_new = self.keeper.poll([run.key for run in runs])
        self._note(runs)
        state = (self.catalogue.version, len(runs))
        if not is_new and state == self.drawn:
            return
        self.drawn = state
        groups = self._group(runs)
        looks = _choose_looks(groups)
        tasks = list(dict.fromkeys(group.task for group in groups))[:MOST_TASKS]
        self._make_plots(tasks, list(looks))
        for task in tasks:
            self._draw_task(task, [group for group in groups if group.task == task], looks)
        self._arrange()
        self.set_text(self.facts, self._draw_facts(runs, looks))
        self.set_text(self.table, _draw_table(groups, looks))
        for part in (self.grid, self.table):
            show_part(part, bool(groups))

    def _note(self, runs: list[Glance]) -> None:
        missing = len(runs) - self.keeper.count
        told = [f"{self.keeper.count} of {len(runs)} runs are read so far."] if missing > 0 else []
        self.show_notes(told or ([] if runs else ["There are no such runs here."]))

    def _make_plots(self, tasks: list[str], labels: list[str]) -> None:
        """Make the figures of each task, where they are not there already."""
        kept = {task: plots for task, plots in self.plots.items() if plots.labels == labels}
        self.plots = {task: kept.get(task) or TaskPlots(self, f"task-{i}", labels) for i, task in enumerate(tasks)}

    def _arrange(self) -> None:
        """Put figures on the page once there is something in them."""
        parts = []
        for task, plots in self.plots.items():
            if drawn := [plot for place, plot in enumerate(plots.figures) if plots.has_values(place)]:
                self.set_text(plots.heading, element("h2", task))
                parts += [plots.heading, *drawn]
        if [part.id for part in parts] != [part.id for part in self.grid.children]:
            self.grid.children = parts

    def _draw_task(self, task: str, groups: list[Group], looks: dict[str, tuple[str, str]]) -> None:
        plots, by_time = self.plots[task], self.across.active == 1
        for plot, metric in zip(plots.figures, self.metrics):
            plot.yaxis.axis_label = METRICS[metric.value]
        for group in groups:
            if group.label in looks:
                curves = [self.keeper.curves[run.key] for run in group.runs if run.key in self.keeper.curves]
                plots.show(group.label, looks[group.label], curves, [own.value for own in self.metrics], by_time)
        for place, metric in enumerate(self.metrics):
            plots.draw_bound(place, _shared_width(groups) if metric.value.startswith("ratio_deviation") else None)
        set_log_scale(plots.figures[1], self.scale.active == 1 and plots.has_values(1, above=0.0))

    def _draw_facts(self, runs: list[Glance], looks: dict[str, tuple[str, str]]) -> Html:
        plan = self.catalogue.plans.get(runs[0].sweep) if runs and len({run.sweep for run in runs}) == 1 else None
        unfinished = sum(run.state != "finished" for run in runs)
        words = [f"{len(runs)} runs"] + ([f"{unfinished} of them not finished"] if unfinished else [])
        words.append("mean over the seeds, and a band from the lowest to the highest")
        legend = [element("span", _swatch(look), label) for label, look in looks.items()]
        legend.append(element("span", _swatch((GREY, "dashed")), "bound ε, where they share one"))
        return element("section", element("h1", plan.title if plan else "Compare"),
                       element("p", "; ".join(words), class_="bar"), element("p", *legend, class_="above"),
                       class_="facts")  # fmt: skip


class TaskPlots:
    """The two figures of a task, with a line and a band for each kind of run."""

    def __init__(self, page: Page, name: str, labels: list[str]):
        self.labels = labels
        self.heading = page.make_div(f"{name}-heading", styles={"grid-column": "1 / -1", "margin-top": ".8rem"})
        shared = None
        self.figures: list[figure] = []
        for place in range(2):
            plot = make_figure(f"{name}-{place}", shared, height=260)
            shared = plot.x_range
            self.figures.append(plot)
        self.sources = {(label, place): ColumnDataSource() for label in labels for place in range(2)}
        self.drawn: set[tuple[str, int]] = set()
        self.bounds = [ColumnDataSource({"x": [], "y": []}) for _ in self.figures]
        for plot, source in zip(self.figures, self.bounds):
            plot.line("x", "y", source=source, color=GREY, line_dash="dashed", line_width=1.8)

    def has_values(self, place: int, above: float = -np.inf) -> bool:
        """Whether a figure has a line to draw, or one above a number."""
        return any((source.data.get("mean", np.empty(0)) > above).any()
                   for (_, own), source in self.sources.items() if own == place)  # fmt: skip

    def show(self, label: str, look: tuple[str, str], curves: list[Curve], metrics: list[str], by_time: bool) -> None:
        for place, (plot, metric) in enumerate(zip(self.figures, metrics)):
            source = self.sources[label, place]
            source.data = combine(curves, metric, by_time)
            if (label, place) not in self.drawn:
                self.drawn.add((label, place))
                self._draw(plot, source, *look)

    def draw_bound(self, place: int, epsilon: float | None) -> None:
        """Draw the width along all curves of a figure, or none."""
        curves = [source.data.get("x", ()) for (_, own), source in self.sources.items() if own == place]
        ends = [own[end] for own in curves if len(own) for end in (0, -1)]
        x = [min(ends), max(ends)] if ends and epsilon is not None else []
        self.bounds[place].data = {"x": x, "y": [epsilon] * len(x)}

    def _draw(self, plot: figure, source: ColumnDataSource, colour: str, dash: str) -> None:
        plot.varea("x", "low", "high", source=source, color=colour, alpha=0.14)
        line = plot.line("x", "mean", source=source, color=colour, line_width=2, line_dash=dash)
        tooltips = [("at", "@x{0,0}"), ("mean", "@mean{0.[000]}"), ("from", "@low{0.[000]}"), ("to", "@high{0.[000]}"),
                    ("runs", "@runs")]  # fmt: skip
        add_hover(plot, tooltips, renderers=[line], mode="mouse")


def _choose_looks(groups: list[Group]) -> dict[str, tuple[str, str]]:
    """Give every kind of run its objective's colour, and those that share one lines of different patterns."""
    looks: dict[str, tuple[str, str]] = {}
    for group in groups:
        if group.label not in looks and len(looks) < MOST_GROUPS:
            colours = (colour_of(group.runs[0].objective), *PALETTE)
            free = ((colour, dash) for colour in colours for dash in DASHES)
            looks[group.label] = next(look for look in free if look not in looks.values())
    return looks


def _shared_width(groups: list[Group]) -> float | None:
    """Find the width that all runs have; None if they differ, or adapt it."""
    runs = [run for group in groups for run in group.runs]
    widths = {run.epsilon for run in runs if np.isfinite(run.epsilon)}
    return widths.pop() if len(widths) == 1 and not any(run.adapts_epsilon for run in runs) else None


def _swatch(look: tuple[str, str]) -> Html:
    """Draw a piece of a line."""
    dash = {"solid": None, "dashed": "7 4", "dotted": "2 3", "dotdash": "7 3 2 3"}[look[1]]
    line = element("line", x1=1, x2=27, y1=5, y2=5, stroke=look[0], stroke_width=3, stroke_dasharray=dash)
    return element("svg", line, viewBox="0 0 28 10", class_="sample", aria_hidden="true")


def _draw_table(groups: list[Group], looks: dict[str, tuple[str, str]]) -> Html:
    if not groups:
        return Html()
    head = ["task", "", "runs", "return", "95 % interval", "largest ratio deviation", "steps/s"]
    heads = [element("th", name, class_="number" if place > 1 else None) for place, name in enumerate(head)]
    rows = [_draw_row(group, looks, is_best=_is_best(group, groups)) for group in groups]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows), class_="groups")
    return element("div", table, class_="scroll")


def _known(group: Group, name: str) -> list[float]:
    """List what is known of a number of the group's runs."""
    return [value for run in group.runs if np.isfinite(value := getattr(run, name))]


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else np.nan


def _is_best(group: Group, groups: list[Group]) -> bool:
    """Whether no other kind of run on the same task has a higher mean return."""
    own, *others = (_mean(_known(one, "last_return")) for one in (group, *groups) if one.task == group.task)
    return bool(np.isfinite(own)) and own == np.nanmax(others)


def _draw_row(group: Group, looks: dict[str, tuple[str, str]], is_best: bool) -> Html:
    returns = _known(group, "last_return")
    interval = interval_of(returns)
    ends = f"{show_number(float(interval.low))} to {show_number(float(interval.high))}" if interval else "–"
    finished = sum(run.state == "finished" for run in group.runs)
    count = f"{finished}" if finished == len(group.runs) else f"{finished} of {len(group.runs)} finished"
    runs = join([" ", *(join([link_to("/run", f"seed {run.seed}", run=run.key), " "]) for run in group.runs[:12])])
    numbers = [
        count,
        element("b", show_number(_mean(returns)), class_="best" if is_best else None),
        ends,
        show_number(max(_known(group, "deviation_max"), default=np.nan)),
        show_number(_mean(_known(group, "speed"))),
    ]
    name = [_swatch(looks.get(group.label, (GREY, "solid"))), group.label, element("small", runs)]
    cells = [element("td", group.task, class_="task"), element("th", *name, scope="row")]
    return element("tr", *cells, *(element("td", number, class_="number") for number in numbers))
