"""The trust region as it moves: kept samples' ratios against their advantages, of two runs on the same axes."""

from collections.abc import Iterable

from bokeh.models import RadioButtonGroup, Range1d, Select, Slider, Toggle, UIElement

from spo.errors import printable
from spo.experiments.report.markup import element
from spo.watch.clouds import FAN_LEGEND, LEGEND, Side
from spo.watch.glance import Glance
from spo.watch.page import Page
from spo.watch.plots import set_log_scale, show_part
from spo.watch.words import name_of

BAR = "#3f8fc0"
MILLISECONDS = 250
"""Between two pictures of a play."""
TICKS = (0.001, 0.01, 0.1, 0.2, 0.3, 0.5, 0.8, 1, 1.2, 1.5, 2, 3, 5, 10, 100, 1000)
FEW_TICKS = (0.001, 0.01, 0.1, 0.3, 1, 3, 10, 100, 1000)
"""Ratios that are marked on axes by powers."""
WIDE = 30
"""How many times its lowest ratio the highest of an axis is, where those around 1 have no room."""
EXPLANATION = (
    "Each point is a sample of a batch: how much more likely the update has made its action (ratio), against how much"
    " better than expected it was (advantage). In the band the ratio is within 1 ± ε. ",
    element("b", "A ring has no gradient: nothing leads it back."),
)
NOTHING_KEPT = "No ratios are kept of these runs: those that are packed, or trained with --watch-ratios 0, have none."


class TrustRegionPage(Page):
    """Two runs side by side, through their iterations and epochs."""

    title, path = "Trust region", "/trust-region"

    def build(self) -> list[UIElement]:
        self.ranges = (Range1d(-3, 3), Range1d(0.5, 1.5))
        self.across = Range1d(0, 1)
        self.sides = [Side(self, name, self.ranges, self.across) for name in ("left", "right")]
        self.play: object = None
        self.frames: list[int] = []
        self.by_hand: set[str] = set()
        self._make_controls()
        self.facts = self.make_div("facts")
        self.set_text(
            self.facts,
            element("section", element("h1", self.title), element("p", *EXPLANATION, class_="bar"), class_="facts"),
        )
        figures = [part for side in self.sides for part in (side.words, side.cloud, side.fan_plot)]
        return [
            self.facts,
            *self.choices,
            self.iteration,
            self.epoch,
            self.playing,
            self.by,
            self.live,
            self.scale,
            *figures,
        ]

    def describe(self) -> dict[str, object]:
        clouds = [
            {"heads": [f"{side.name}-run", f"{side.name}-words"], "parts": [f"{side.name}-cloud"], "lines": LEGEND}
            for side in self.sides
        ]
        fans = [{"parts": [f"{side.name}-fan"], "title": "Ratios in the last epoch", "lines": FAN_LEGEND}
                for side in self.sides]  # fmt: skip
        return {"figures": [*clouds, *fans], "arrangement": "pair"}

    def _make_controls(self) -> None:
        style: dict[str, object] = {"stylesheets": [self.widget_style]}
        sliding = style | {"bar_color": BAR, "step": 1}
        self.choices = [Select(name=f"{side.name}-run", width=300, **style) for side in self.sides]
        self.iteration = Slider(name="iteration", start=0, end=1, value=0, title="iteration", width=330, **sliding)
        self.epoch = Slider(name="epoch", start=1, end=2, value=1, title="epoch", width=150, **sliding)
        self.playing = Toggle(name="playing", label="▶ play", **style)
        self.live = Toggle(name="live", label="live", active=True, **style)
        self.by = RadioButtonGroup(name="by", labels=["by iteration", "by epoch"], active=0, **style)
        self.scale = RadioButtonGroup(name="scale", labels=["linear", "log"], active=1, **style)
        for side, choice in zip(self.sides, self.choices):
            self.listen(choice, "value", lambda key, side=side: self._choose(side, str(key)))
        self.listen(self.iteration, "value", lambda value: self._move())
        self.listen(self.epoch, "value", lambda value: self._move())
        self.listen(self.playing, "active", lambda active: self._play(bool(active)))
        self.listen(self.live, "active", lambda active: self.refresh())
        self.listen(self.scale, "active", lambda active: self._set_scale())

    # Which runs

    def _fill_sides(self) -> None:
        """Show, where nobody has chosen, the run of the address or the newest, and beside it the one most like it."""
        for side, choice in zip(self.sides, self.choices):
            if side.run is None and side.name not in self.by_hand:
                side.choose(self._propose(side))
                choice.value = side.run.key if side.run else ""

    def _propose(self, side: Side) -> Glance | None:
        if side is self.sides[0]:
            run = self.find_run()
            return run if self.argument("run") else _find_spo(run, self.catalogue.glances.values())
        partner = _find_partner(self.sides[0].run, self.catalogue.glances.values())
        return self.catalogue.glances.get(self.argument("beside") or partner)

    def _list_runs(self) -> None:
        glances = sorted(self.catalogue.glances.values(), key=lambda glance: (glance.task, glance.name))
        options = [("", "– no run –"), *((own.key, _label(own)) for own in glances)]
        for choice in self.choices:
            if choice.options != options:
                choice.options = options

    def _choose(self, side: Side, key: str) -> None:
        if key == (side.run.key if side.run else ""):  # it was not chosen by hand
            return
        self.by_hand.add(side.name)
        side.choose(self.catalogue.glances.get(key))
        self.refresh()

    # Through iterations and epochs

    def refresh(self) -> None:
        self._list_runs()
        for side in self.sides:  # its state may have changed
            side.run = self.catalogue.glances.get(side.run.key) if side.run else None
        self._fill_sides()
        is_new = any([side.poll() for side in self.sides])
        frames = sorted({own for side in self.sides for own in side.iterations})
        if is_new or frames != self.frames:
            self.frames = frames
            self._frame()
        self.show_notes([] if frames or not self.catalogue.glances else [NOTHING_KEPT])
        for side in self.sides:
            show_part(side.fan_plot, bool(side.iterations))
        self._show()

    def _frame(self) -> None:
        """Fit sliders and axes to what there is; the iteration that was shown stays, or follows the newest."""
        first, last = (self.frames[0], self.frames[-1]) if self.frames else (0, 1)
        self.iteration.update(start=first, end=max(last, first + 1))
        value = last if self.live.active else min(max(self.iteration.value, first), last)
        self.iteration.value = value
        self.across.update(start=0, end=1.02 * max(last, 1))
        self._set_scale()

    def _move(self) -> None:
        """Show what a slider was moved to; who looks at the past does not want to be led away from it."""
        if self.frames and self.iteration.value < self.frames[-1]:
            self.live.active = False
        self._show()

    def _show(self) -> None:
        for side in self.sides:
            side.show(int(self.iteration.value), None if self.live.active else int(self.epoch.value) - 1)
        epochs = [len(side.sample.ratio) for side in self.sides if side.sample]
        self.epoch.end = max([2, *epochs])
        if self.live.active and epochs:
            self.epoch.value = max(epochs)

    def _set_scale(self) -> None:
        """Frame almost all ratios of both runs, around 1."""
        is_log = self.scale.active == 1
        reaches = [side.fan.reach() for side in self.sides if side.fan]
        width = 1.6 * max([side.epsilon for side in self.sides])
        low, high = (pick([1.0, *(reach[place] for reach in reaches)]) for place, pick in ((0, min), (1, max)))
        low, high = min(low, 1 - width), max(high, 1 + width)
        pad = 0.05 * (high - low)
        ends = (max(low, 1e-3) / 1.15, high * 1.15) if is_log else (max(low - pad, -pad), high + pad)
        self.ranges[1].update(start=ends[0], end=ends[1], reset_start=ends[0], reset_end=ends[1])
        largest = 1.08 * max([1.0, *(reach[2] for reach in reaches)])
        self.ranges[0].update(start=-largest, end=largest, reset_start=-largest, reset_end=largest)
        with self.document.models.freeze():
            for side in self.sides:
                set_log_scale(side.cloud, is_log, TICKS if ends[1] < WIDE * ends[0] else FEW_TICKS)
                set_log_scale(side.fan_plot, is_log, FEW_TICKS)

    # Playing

    def _play(self, starts: bool) -> None:
        if self.play is not None:
            self.document.remove_periodic_callback(self.play)
            self.play = None
        if starts:
            self.live.active = False
            self.play = self.document.add_periodic_callback(lambda: self.attempt(self._step), MILLISECONDS)
        self.playing.label = "❚❚ pause" if starts else "▶ play"

    def _step(self) -> None:
        """Go on to the next epoch or iteration, from the last to the first."""
        if self.by.active == 1 and self.epoch.value < self.epoch.end:
            self.epoch.value += 1
            return
        if self.by.active == 1:
            self.epoch.value = 1
        later = [own for own in self.frames if own > self.iteration.value]
        self.iteration.value = (later or self.frames or [0])[0]


def _label(run: Glance) -> str:
    return printable(f"{run.task} · {name_of(run.objective)} · seed {run.seed} · {run.name}")[:160]


def _find_spo(run: Glance | None, glances: Iterable[Glance]) -> Glance | None:
    """Find SPO's run in the sweep that a run belongs to, on its task; else the run itself."""
    if run is None or not run.sweep:
        return run
    own = [other for other in glances if (other.sweep, other.task, other.objective) == (run.sweep, run.task, "spo")]
    return max(own, key=lambda other: (other.seed == run.seed, other.written), default=run)


def _find_partner(run: Glance | None, glances: Iterable[Glance]) -> str:
    """Find the run of another objective on the same task that shares most with a run."""
    if run is None:
        return ""
    others = [own for own in glances if own.task == run.task and own.objective != run.objective]
    pairs = {"spo": "ppo-clip", "ppo-clip": "spo"}

    def likeness(other: Glance) -> tuple:
        shared = sum(run.settings.get(name) == value for name, value in other.settings.items())
        is_pair = pairs.get(run.objective) == other.objective
        return (other.sweep == run.sweep, is_pair, other.seed == run.seed, shared, other.written)

    return max(others, key=likeness).key if others else ""
