"""One run's trust region as a picture: the cloud of an epoch, and the fan of all iterations."""

import numpy as np
from bokeh.models import BoxAnnotation, ColumnDataSource, Range1d, Span
from bokeh.plotting import figure

from spo.experiments.figures.style import ORANGE, VERMILION
from spo.experiments.report.markup import Html, element, join
from spo.watch.fans import NAMES, Fan, share_of
from spo.watch.glance import Glance
from spo.watch.page import Page, badge, chip, link_to
from spo.watch.plots import GREY, add_hover, make_figure
from spo.watch.samples import RatioSample, SampleReader
from spo.watch.words import show_number

INSIDE, OUTSIDE, ALONE = "#2b8cc8", VERMILION, ORANGE
USUAL_EPSILON = 0.2
"""The width that is drawn where an objective has none, as metrics take it."""
LEGEND = [
    {"label": "inside", "colour": INSIDE, "kind": "point"},
    {"label": "outside the bound", "colour": OUTSIDE, "kind": "point"},
    {"label": "without gradient", "colour": ALONE, "kind": "ring"},
    {"label": "bound 1 ± ε", "colour": GREY, "is_bound": True},
]
FAN_LEGEND = [
    {"label": "half of the samples", "colour": INSIDE},
    {"label": "nine tenths", "colour": "#93c3e2"},
    {"label": "lowest and highest", "colour": GREY},
    {"label": "bound 1 ± ε", "colour": GREY, "is_bound": True},
]


class Side:
    """One run on the page: its cloud, and how its ratios spread over the iterations."""

    def __init__(self, page: Page, name: str, ranges: tuple[Range1d, Range1d], iterations: Range1d):
        self.page, self.name = page, name
        self.cloud_source, self.fan_source = ColumnDataSource(), ColumnDataSource()
        self.words = page.make_div(f"{name}-words")
        self.cloud = make_figure(f"{name}-cloud", *ranges, height=380, dimensions="both")
        self.fan_plot = make_figure(f"{name}-fan", iterations, ranges[1], height=200)
        self.bounds = [self._draw_bound(plot) for plot in (self.cloud, self.fan_plot)]
        self._draw_cloud()
        self._draw_fan()
        self.choose(None)

    def choose(self, run: Glance | None) -> None:
        self.run = run
        place = self.page.catalogue.place(run.key) if run else None
        self.epsilon = run.epsilon if run and np.isfinite(run.epsilon) else USUAL_EPSILON
        self.reader = SampleReader(place) if place else None
        self.fan = Fan(self.reader, self.epsilon) if self.reader else None
        self.sample: RatioSample | None = None
        self._set_bound(self.epsilon)
        self.cloud_source.data = {name: [] for name in ("advantage", "ratio", "fill", "line", "what")}
        self.fan_source.data = {name: [] for name in (*NAMES, "iteration", "outside", "left_alone")}

    # Figures

    def _draw_bound(self, plot: figure) -> tuple[BoxAnnotation, Span, Span]:
        box = BoxAnnotation(fill_color=INSIDE, fill_alpha=0.1, line_color=None)
        lines = [Span(dimension="width", line_color=GREY, line_dash="dashed", line_width=1.5) for _ in range(2)]
        for part in (box, *lines):
            plot.add_layout(part)
        return (box, *lines)

    def _draw_cloud(self) -> None:
        self.cloud.add_layout(Span(location=1, dimension="width", line_color=GREY, line_alpha=0.5))
        self.cloud.add_layout(Span(location=0, dimension="height", line_color=GREY, line_alpha=0.5))
        points = self.cloud.scatter("advantage", "ratio", source=self.cloud_source, size=6, fill_color="fill",
                                    line_color="line", fill_alpha=0.55, line_alpha=0.9, line_width=1.2)  # fmt: skip
        self.cloud.xaxis.axis_label, self.cloud.yaxis.axis_label = "advantage", "ratio"
        tooltips = [("advantage", "@advantage{0.000}"), ("ratio", "@ratio{0.0000}"), ("", "@what")]
        add_hover(self.cloud, tooltips, mode="mouse", renderers=[points])

    def _draw_fan(self) -> None:
        plot, source = self.fan_plot, self.fan_source
        plot.varea("iteration", "low", "high", source=source, color=INSIDE, alpha=0.22)
        plot.varea("iteration", "lower", "upper", source=source, color=INSIDE, alpha=0.38)
        for name in ("lowest", "highest"):
            plot.line("iteration", name, source=source, color=GREY, line_width=1.2)
        middle = plot.line("iteration", "middle", source=source, color=INSIDE, line_width=1.6)
        self.cursor = Span(location=0, dimension="height", line_color=ALONE, line_width=2)
        plot.add_layout(self.cursor)
        plot.xaxis.axis_label = "iteration"
        tooltips = [("iteration", "@iteration{0,0}"), ("lowest", "@lowest{0.000}"), ("highest", "@highest{0.000}"),
                    ("outside", "@outside{0.0 %}"), ("without gradient", "@left_alone{0.0 %}")]  # fmt: skip
        add_hover(plot, tooltips, renderers=[middle])

    # What is shown

    def poll(self) -> bool:
        """Read on; whether there is something new."""
        if self.fan is None or not self.fan.poll():
            return False
        self.fan_source.data = self.fan.columns()
        return True

    @property
    def iterations(self) -> list[int]:
        return self.fan.iterations if self.fan else []

    def show(self, iteration: int, epoch: int | None) -> None:
        """Show an epoch of the newest kept iteration that is not after the given one."""
        earlier = [own for own in self.iterations if own <= iteration]
        self.sample = self.reader.read(earlier[-1]) if earlier else None
        self.cursor.location = earlier[-1] if earlier else 0
        if self.sample is None:
            self.cloud_source.data = {name: [] for name in self.cloud_source.data}
            self.page.set_text(self.words, self._describe_nothing())
            return
        last = len(self.sample.ratio) - 1
        epoch = last if epoch is None else min(epoch, last)
        width = self.sample.epsilon if np.isfinite(self.sample.epsilon) else self.epsilon
        self._set_bound(width)
        self.cloud_source.data = paint(self.sample, epoch, width)
        self.page.set_text(self.words, self._describe(self.sample, epoch, width))

    def _set_bound(self, width: float) -> None:
        for box, lower, upper in self.bounds:
            box.bottom = lower.location = max(1 - width, 1e-6)
            box.top = upper.location = 1 + width

    # Words

    def _describe(self, sample: RatioSample, epoch: int, width: float) -> Html:
        outside, alone = share_of(sample, epoch, self.epsilon)
        parts = [
            f"iteration {sample.iteration:,}, epoch {epoch + 1} of {len(sample.ratio)}",
            join(["outside ", element("b", _percent(outside))]),
            join(["without gradient ", element("b", _percent(alone))]),
            join(["mean |r − 1| ", element("b", show_number(float(np.nanmean(np.abs(sample.ratio[epoch] - 1)))))]),
            f"ε {width:g}",
        ]
        return join([self._heading(), element("p", *(element("span", part) for part in parts), class_="shares")])

    def _describe_nothing(self) -> Html:
        if self.run is None:
            return element("p", "No run.", class_="shares")
        why = self.reader.problem if self.iterations else "This run has kept no ratios (--watch-ratios keeps them)."
        return join([self._heading(), element("p", why, class_="shares")])

    def _heading(self) -> Html:
        run = self.run
        words = [
            chip(run.objective),
            " ",
            link_to("/run", f"{run.task}, seed {run.seed}", run=run.key),
            badge(run.state),
        ]
        return element("p", *words, class_="above")


def paint(sample: RatioSample, epoch: int, width: float) -> dict[str, object]:
    """Make the columns of a cloud; samples without gradient are rings."""
    ratio, advantage = sample.ratio[epoch], sample.advantage[epoch]
    known = np.isfinite(ratio) & np.isfinite(advantage)
    is_outside = np.abs(ratio - 1) > width
    is_alone = sample.is_left_alone[epoch] if sample.is_left_alone is not None else np.zeros(len(ratio), bool)
    colour = np.where(is_outside, OUTSIDE, INSIDE)
    fill = np.where(is_alone, "#0000", colour)  # no letter but hexadecimal: nothing of a file comes here
    line = np.where(is_alone, ALONE, colour)
    what = np.where(is_outside, "outside the bound", "inside")
    what = np.where(is_alone, np.char.add(what, ", without gradient"), what)
    columns = {"advantage": advantage, "ratio": ratio, "fill": fill, "line": line, "what": what}
    return {
        name: values[known] if values.dtype.kind == "f" else values[known].tolist() for name, values in columns.items()
    }


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if np.isfinite(share) else "not kept"
