"""The table of all runs."""

import math
from collections import Counter
from collections.abc import Callable
from urllib.parse import urlencode

from bokeh.models import Select, TextInput, UIElement

from spo.experiments.report.markup import Html, element, join
from spo.runtime.formatting import clock_or_days
from spo.watch.glance import STATES, Glance
from spo.watch.page import Page, badge, chip, link_to
from spo.watch.words import leaves_bound, list_differences, show_number, show_progress

ORDERS: dict[str, Callable[[Glance], object]] = {
    "newest": lambda glance: glance.urgency,
    "state": lambda glance: STATES.index(glance.state),
    "run": lambda glance: glance.name,
    "task": lambda glance: (glance.task, glance.objective, glance.name),
    "objective": lambda glance: (glance.objective, glance.task, glance.name),
    "progress": lambda glance: -glance.share,
    "steps/s": lambda glance: _last(-glance.speed),
    "time left": lambda glance: _last(glance.seconds_left),
    "return": lambda glance: _last(-glance.last_return),
    "ratio deviation": lambda glance: _last(-glance.deviation_max),
}
COLUMNS = ("state", "run", "task", "objective", "progress", "steps/s", "time left", "return", "ratio deviation")
NUMERIC = ("steps/s", "time left", "return", "ratio deviation")
MOST_ROWS = 500


def _last(value: float) -> tuple[bool, float]:
    """Put what is not known behind everything else."""
    return (not math.isfinite(value), value if math.isfinite(value) else 0.0)


class RunsPage(Page):
    """Every run below the given directories, sorted and filtered."""

    title, path = "Runs", "/"

    def build(self) -> list[UIElement]:
        self.order, self.is_reversed, self.picked, self.drawn = "newest", False, [], None
        self.search = TextInput(name="search", placeholder="filter: task, objective, state, setting …", width=320)
        self.sorting = Select(name="sorting", value=self.order, options=list(ORDERS), width=170)
        self.listen(self.search, "value_input", lambda words: self.refresh())
        self.listen(self.sorting, "value", lambda order: order == self.order or self.act("sort", order))
        for widget in (self.search, self.sorting):
            widget.stylesheets = [self.widget_style]
        self.summary, self.table = self.make_div("summary"), self.make_div("table")
        return [self.search, self.sorting, self.summary, self.table]

    def act(self, action: str, value: str) -> None:
        if action == "sort" and value in ORDERS:
            self.is_reversed = not self.is_reversed if value == self.order else False
            self.order = value
            self.sorting.value = value
        elif action == "pick" and value in self.catalogue.glances:
            self.picked = [key for key in self.picked if key != value] + ([] if value in self.picked else [value])

    def refresh(self) -> None:
        state = (self.catalogue.version, self.order, self.is_reversed, tuple(self.picked), self.search.value_input)
        if state == self.drawn:
            return
        self.drawn = state
        self.show_notes(self._list_notes())
        glances = list(self.catalogue.glances.values())
        self.picked = [key for key in self.picked if key in self.catalogue.glances]
        self.set_text(self.summary, self._draw_summary(glances))
        self.set_text(self.table, self._draw_table(glances))

    def _list_notes(self) -> list[str]:
        notes = list(self.catalogue.found.notes)
        if not self.catalogue.found.runs:
            where = ", ".join(map(str, self.catalogue.roots))
            notes.append(f"No run lies in {where} yet. spo train starts one, and it appears here.")
        elif not self.catalogue.is_whole:
            notes.append(f"{len(self.catalogue.glances):,} of {len(self.catalogue.found.runs):,} runs are read so far.")
        return notes

    # Above the table

    def _draw_summary(self, glances: list[Glance]) -> Html:
        counts = Counter(glance.state for glance in glances)
        states = [element("span", element("b", counts[state]), " ", badge(state)) for state in STATES if counts[state]]
        lines = [element("p", *states, class_="counts")]
        if self.picked:
            query = [("run", key) for key in self.picked]
            words = f"Compare {len(self.picked)} chosen run{'s' if len(self.picked) > 1 else ''}"
            lines.append(element("p", link_to_many("/compare", words, query), class_="action"))
        sweeps = [self._draw_sweep(key, glances) for key in self.catalogue.plans]
        return join([*lines, element("ul", *sweeps, class_="sweeps") if sweeps else ""])

    def _draw_sweep(self, key: str, glances: list[Glance]) -> Html:
        plan = self.catalogue.plans[key]
        own = [glance for glance in glances if glance.sweep == key]
        counts = Counter(glance.state for glance in own)
        waiting = max(0, plan.size - sum(counts.values()))
        parts = [f"{count} {state}" for state, count in counts.items()] + ([f"{waiting} waiting"] if waiting else [])
        done = min(1.0, sum(glance.share for glance in own) / plan.size) if plan.size else 0.0
        return element("li", link_to("/compare", plan.title, sweep=key), " ", draw_progress(done), " ",
                       element("small", ", ".join(parts)))  # fmt: skip

    # The table

    def _draw_table(self, glances: list[Glance]) -> Html:
        differences = list_differences(glances)
        words = self.search.value_input.lower().split()
        found = [glance for glance in glances if self._is_found(glance, differences[glance.key], words)]
        found.sort(key=ORDERS[self.order], reverse=self.is_reversed)
        rows = [self._draw_row(glance, differences[glance.key]) for glance in found[:MOST_ROWS]]
        head = element("tr", element("th"), *(self._draw_heading(name) for name in COLUMNS))
        table = element("table", element("thead", head), element("tbody", *rows), class_="runs")
        rest = len(found) - MOST_ROWS
        more = element("p", f"{rest:,} more runs; a filter finds them.", class_="note") if rest > 0 else ""
        none = element("p", "No run has all these words.", class_="note") if glances and not found else ""
        return join([element("div", table, class_="scroll"), more, none]) if found else none or Html()

    @staticmethod
    def _is_found(glance: Glance, differences: str, words: list[str]) -> bool:
        parts = (glance.name, glance.task, glance.objective, glance.state, glance.variant, differences, glance.reason)
        text = " ".join([*parts, f"seed {glance.seed}"]).lower()
        return all(word in text for word in words)

    def _draw_heading(self, name: str) -> Html:
        mark = (" ↑" if self.is_reversed else " ↓") if name == self.order else ""
        kind = "number" if name in NUMERIC else None
        return element("th", element("button", name, mark, data_do=f"sort:{name}", type="button"), class_=kind)

    def _draw_row(self, glance: Glance, differences: str) -> Html:
        is_picked = "checked" if glance.key in self.picked else None
        pick = element("input", type="checkbox", data_do=f"pick:{glance.key}", checked=is_picked,
                       aria_label=f"choose {glance.name}")  # fmt: skip
        return element(
            "tr",
            element("td", pick, class_="pick"),
            element("td", badge(glance.state)),
            element("th", self._draw_name(glance, differences), scope="row"),
            element("td", glance.task, class_="task"),
            element("td", chip(glance.objective)),
            element("td", draw_progress(glance.share), element("small", show_progress(glance))),
            element("td", show_number(glance.speed), class_="number"),
            element("td", clock_or_days(glance.seconds_left), class_="number"),
            element(
                "td", draw_spark(glance.spark), " ", element("b", show_number(glance.last_return)), class_="number"
            ),
            element("td", _deviation(glance), class_="number"),
        )

    def _draw_name(self, glance: Glance, differences: str) -> Html:
        plan = self.catalogue.plans.get(glance.sweep)
        name = f"{plan.labels.get(glance.variant, glance.variant)}, seed {glance.seed}" if plan else glance.name
        lines = [link_to("/run", name, run=glance.key)]
        words = (glance.sweep_folder if plan else differences, "packed" if glance.is_packed else "")
        small = [text for text in words if text]
        lines += [element("small", " · ".join(small))] if small else []
        lines += [element("small", glance.reason, class_="trouble")] if glance.reason else []
        lines += [element("small", problem, class_="trouble") for problem in glance.problems[:3]]
        return join(lines)


def link_to_many(path: str, words: str, query: list[tuple[str, str]]) -> Html:
    return element("a", words, href=f"{path}?{urlencode(query)}")


def _deviation(glance: Glance) -> Html:
    """Write the largest mean deviation so far, marked where it is beyond the width, above the newest."""
    kind = "outside" if leaves_bound(glance) else None
    word = "mean" if glance.is_packed else "now" if glance.state == "running" else "last"
    newest = element("small", f"{word} {show_number(glance.deviation)}") if math.isfinite(glance.deviation) else ""
    return join([element("b", show_number(glance.deviation_max), class_=kind), newest])


def draw_progress(share: float) -> Html:
    filled = element("i", style=f"width:{100 * share:.1f}%")
    return element("span", filled, class_="progress", role="img", aria_label=f"{100 * share:.0f} % done")


def draw_spark(values: tuple[float, ...]) -> Html:
    """Draw returns along a run as a small line."""
    if len(values) < 2:
        return Html()
    low, high = min(values), max(values)
    scale = 16 / (high - low) if high > low else 0.0
    places = [(80 * i / (len(values) - 1) + 1, 18 - (value - low) * scale) for i, value in enumerate(values)]
    line = element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))
    return element("svg", line, class_="spark", viewBox="0 0 82 20", aria_hidden="true")
