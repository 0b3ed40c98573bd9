"""One run: its return, its ratios and everything else that it measures, along its steps."""

from dataclasses import dataclass

import numpy as np
from bokeh.models import ColumnDataSource, DataRange1d, RadioButtonGroup, UIElement
from bokeh.plotting import figure

from spo.experiments.figures.style import BLUE, GREEN, ORANGE, PURPLE, VERMILION
from spo.experiments.report.markup import Html, element, join
from spo.runtime.formatting import clock_or_days
from spo.watch.glance import Glance
from spo.watch.history import History
from spo.watch.page import Page, badge, chip, link_to
from spo.watch.pages.runs import draw_progress
from spo.watch.plots import GREY, add_hover, hide_figure, make_figure, set_log_scale, show_figure
from spo.watch.tables import NUMBERS
from spo.watch.words import leaves_bound, show_number, show_progress

WINDOWS = (1, 5, 20, 100)
"""Iterations that a curve is averaged over."""


@dataclass(frozen=True)
class Line:
    """A metric in a panel; one that is a bound is dashed."""

    column: str
    label: str
    colour: str = BLUE
    is_bound: bool = False


@dataclass(frozen=True)
class Panel:
    """Metrics that share a figure."""

    name: str
    title: str
    lines: tuple[Line, ...] = ()
    can_be_log: bool = True


PANELS = (
    Panel("return", "Return", can_be_log=False),
    Panel("deviation", "Ratio deviation", (
        Line("ratio_deviation", "mean |r − 1|", BLUE), Line("ratio_deviation_max", "largest minibatch", ORANGE),
        Line("ratio_deviation_run_max", "largest so far", VERMILION), Line("epsilon", "bound ε", GREY, True))),
    Panel("outside", "Samples", (
        Line("clip_fraction", "outside the bound", VERMILION), Line("zero_gradient_fraction", "without gradient", GREY),
        Line("rollback_fraction", "pulled back", GREEN))),
    Panel("kl", "KL divergence", (Line("kl", "mean", BLUE), Line("kl_max", "largest state", ORANGE))),
    Panel("entropy", "Entropy", (Line("entropy", "entropy", GREEN),), False),
    Panel("explained", "Explained variance", (Line("explained_variance", "explained variance", PURPLE),), False),
    Panel("policy-loss", "Policy loss", (Line("policy_loss", "policy loss", BLUE),), False),
    Panel("value-loss", "Value loss", (Line("value_loss", "value loss", ORANGE),)),
    Panel("gradient", "Gradient norm", (Line("grad_norm", "before clipping", GREY),)),
    Panel("rate", "Learning rate", (Line("learning_rate", "learning rate", BLUE),)),
    Panel("width", "Width and penalty", (Line("epsilon", "ε", GREEN), Line("beta", "β", PURPLE))),
    Panel("speed", "Steps per second", (Line("steps_per_second", "steps/s", GREY),)),
)  # fmt: skip


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Average over the last so many values that are known."""
    if window <= 1:
        return values
    known = np.isfinite(values)
    sums, counts = (np.concatenate([[0.0], np.cumsum(part)]) for part in (np.where(known, values, 0.0), known))
    starts = np.maximum(np.arange(1, len(values) + 1) - window, 0)
    total, count = sums[1:] - sums[starts], counts[1:] - counts[starts]
    return np.divide(total, count, out=np.full(len(values), np.nan), where=(count > 0) & known)


class RunPage(Page):
    """A run's curves, which grow while it trains."""

    title, path = "Run", "/run"

    def build(self) -> list[UIElement]:
        run = self.find_run()
        self.key = run.key if run else self.argument("run")
        self.sent: tuple = ()
        self.drawn: int | None = None
        self.rows, self.points, self.band, self.evaluations = (ColumnDataSource() for _ in range(4))
        self._clear_sources()
        self.smoothing = self._make_choice("smoothing", ["no smoothing", "5", "20", "100"], "iterations averaged")
        self.scale = self._make_choice("scale", ["linear", "log"], "upright axis")
        self.across = self._make_choice("across", ["steps", "wall time"], "along")
        self.facts, self.settings = self.make_div("facts"), self.make_div("settings")
        self.x_range = DataRange1d(range_padding=0.02)
        self.figures = {panel.name: self._make_panel(panel) for panel in PANELS}
        for plot in self.figures.values():
            hide_figure(plot)
        return [self.facts, self.smoothing, self.scale, self.across, *self.figures.values(), self.settings]

    def describe(self) -> dict[str, object]:
        return {"figures": [self._describe_panel(panel) for panel in PANELS]}

    def _describe_panel(self, panel: Panel) -> dict[str, object]:
        return {"parts": [panel.name], "title": panel.title, "lines": self._legend(panel)}

    def _legend(self, panel: Panel) -> list[dict[str, object]]:
        own = [{"label": line.label, "colour": line.colour, "is_bound": line.is_bound} for line in panel.lines]
        if panel.name == "return":
            return [
                {"label": "episodes", "colour": GREY, "kind": "point"},
                {"label": "mean and standard deviation", "colour": BLUE},
                *([{"label": "evaluations", "colour": VERMILION, "kind": "point"}] if self._evaluates() else []),
            ]
        return own if len(own) > 1 else []

    def _evaluates(self) -> bool:
        run = self.catalogue.glances.get(self.key)
        return run is not None and run.settings.get("eval_every", "0") != "0"

    def _make_choice(self, name: str, labels: list[str], title: str) -> RadioButtonGroup:
        choice = RadioButtonGroup(name=name, labels=labels, active=0, stylesheets=[self.widget_style])
        self.listen(choice, "active", lambda active: self._redraw())
        return choice

    # Figures

    def _make_panel(self, panel: Panel) -> figure:
        if panel.name == "return":
            return self._make_return()
        tooltips = [("step", "@env_steps{0,0}"), *((line.label, f"@{line.column}{{0.[0000]}}") for line in panel.lines)]
        plot = make_figure(panel.name, self.x_range)
        for number, line in enumerate(panel.lines):
            dash = {"line_dash": "dashed"} if line.is_bound else {}
            raw = {"line_alpha": 0.25, "line_width": 1, "color": line.colour}
            if not line.is_bound:
                plot.line("x", f"{line.column}_raw", source=self.rows, **raw)
            drawn = plot.line("x", line.column, source=self.rows, color=line.colour, line_width=1.8, **dash)
            if number == 0:
                add_hover(plot, tooltips, renderers=[drawn])
        return plot

    def _make_return(self) -> figure:
        plot = make_figure("return", self.x_range)
        plot.scatter("x", "y", source=self.points, size=3, color=GREY, alpha=0.35, line_color=None)
        plot.varea("x", "low", "high", source=self.band, color=BLUE, alpha=0.18)
        mean = plot.line("x", "mean", source=self.band, color=BLUE, line_width=2)
        plot.scatter("x", "y", source=self.evaluations, marker="diamond", size=9, color=VERMILION)
        tooltips = [("step", "@steps{0,0}"), ("mean", "@mean{0,0.[00]}"), ("standard deviation", "@std{0,0.[00]}")]
        add_hover(plot, tooltips, renderers=[mean])
        return plot

    def _clear_sources(self) -> None:
        names = [*NUMBERS, *(f"{name}_raw" for name in NUMBERS), "x"]
        self.rows.data = {name: np.empty(0) for name in names}
        self.points.data = self.evaluations.data = {"x": np.empty(0), "y": np.empty(0)}
        self.band.data = {name: np.empty(0) for name in ("x", "steps", "mean", "std", "low", "high")}

    # Drawing what is new

    def _redraw(self) -> None:
        self.sent, self.drawn = (), None
        self.refresh()

    def refresh(self) -> None:
        run = self.catalogue.glances.get(self.key)
        history = self.catalogue.history(self.key)
        if run is None or history is None:
            self._show_missing()
            return
        history.poll()
        self.show_notes([*run.problems, *history.problems.values(), *self._list_hints(run, history)])
        self.set_text(self.facts, self._draw_facts(run))
        self.set_text(self.settings, _draw_settings(run))
        is_gone = bool(self.drawn) and not history.metrics.count  # of a run that is deleted the curves stay
        if self.drawn != history.version and not is_gone:
            self.drawn = history.version
            self._send_rows(run, history)
            self._send_episodes(history)
            with self.document.models.freeze():  # as several figures may get another axis
                self._fit_panels(history)

    def _show_missing(self) -> None:
        asked = self.argument("run")
        self.show_notes(
            [f"There is no run {asked} here; it may have been deleted." if asked else "There is no run yet."]
        )
        if not self.key and not asked and (run := self.find_run()):
            self.key = run.key

    def _list_hints(self, run: Glance, history: History) -> list[str]:
        if history.is_packed:
            return ["This run is packed: its curves are means of parts of the run, and single episodes are not kept."]
        return (
            ["No iteration is over yet."] if not history.metrics.count and run.state in ("starting", "running") else []
        )

    def _send_rows(self, run: Glance, history: History) -> None:
        """Send the rows that came since the last time, or all of them if what was sent is not so any more."""
        table, window = history.metrics, WINDOWS[self.smoothing.active]
        state, start = (table.generation, window, self.across.active), 0
        if self.sent[:3] == state:
            start = self.sent[3]
        columns = {name: table.column(name) for name in NUMBERS}
        if not np.isfinite(columns["epsilon"]).any():
            columns["epsilon"] = np.full(table.count, run.epsilon)
        data = {f"{name}_raw": values[start:] for name, values in columns.items()}
        data |= {name: smooth(values, window)[start:] for name, values in columns.items() if name not in AS_THEY_ARE}
        data |= {name: columns[name][start:] for name in AS_THEY_ARE}
        data["x"] = columns["wall_time" if self.across.active else "env_steps"][start:]
        if start:
            self.rows.stream(data)
        else:
            self.rows.data = data
        self.sent = (*state, table.count)

    def _send_episodes(self, history: History) -> None:
        across = self._place_along(history)
        steps, mean, std = history.episodes.curve()
        band = {"x": across(steps), "steps": steps, "mean": mean, "std": std, "low": mean - std, "high": mean + std}
        self.band.data = band
        steps, returns = history.episodes.points()
        self.points.data = {"x": across(steps), "y": returns}
        pairs = np.array(history.evaluations).reshape(-1, 2)
        self.evaluations.data = {"x": across(pairs[:, 0]), "y": pairs[:, 1]}

    def _fit_panels(self, history: History) -> None:
        """Show the figures that have something to show, and by powers those that have something above zero."""
        show_figure(self.figures["return"], history.episodes.count > 0 or bool(history.evaluations))
        for panel in PANELS:
            if panel.lines:
                values = [history.metrics.column(line.column) for line in panel.lines if not line.is_bound]
                show_figure(self.figures[panel.name], any(np.isfinite(own).any() for own in values))
                is_positive = any((own > 0).any() for own in values)
                set_log_scale(self.figures[panel.name], self.scale.active == 1 and panel.can_be_log and is_positive)

    def _place_along(self, history: History):
        """Make what turns steps into the page's axis."""
        if not self.across.active or not history.metrics.count:
            return lambda steps: steps
        known, times = history.metrics.column("env_steps"), history.metrics.column("wall_time")
        return lambda steps: np.interp(steps, known, times)

    # Words

    def _draw_facts(self, run: Glance) -> Html:
        kind = "outside" if leaves_bound(run) else None
        facts = {
            "return": show_number(run.last_return),
            "ratio deviation": show_number(run.deviation),
            "largest so far": element("span", show_number(run.deviation_max), class_=kind),
            "steps/s": show_number(run.speed),
            "time": clock_or_days(run.wall_time),
            "time left": clock_or_days(run.seconds_left),
        }
        plan = self.catalogue.plans.get(run.sweep)
        above = [badge(run.state), " ", chip(run.objective), f" seed {run.seed} "]
        above += [link_to("/compare", plan.title, sweep=run.sweep)] if plan else []
        parts = [
            element("h1", run.task),
            element("p", *above, class_="above"),
            element("p", element("code", run.name), class_="where"),
            element("p", draw_progress(run.share), f" {show_progress(run)} steps", class_="bar"),
            element("dl", *(element("div", element("dt", k), element("dd", v)) for k, v in facts.items())),
        ]
        parts += [element("p", run.reason, class_="trouble")] if run.reason else []
        return element("section", *parts, class_="facts")


AS_THEY_ARE = ("iteration", "env_steps", "wall_time", "learning_rate", "epsilon", "beta", "ratio_deviation_run_max")
"""Columns that are not averaged."""


def _draw_settings(run: Glance) -> Html:
    rows = [element("div", element("dt", name.replace("_", " ")), element("dd", value))
            for name, value in run.settings.items()]  # fmt: skip
    return join([element("h2", "Settings"), element("dl", *rows, class_="settings")])
