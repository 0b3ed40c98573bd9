"""What all pages have in common: their frame, their notes, and looking again twice a second."""

from collections.abc import Callable
from functools import partial
from importlib import resources
from urllib.parse import urlencode

from bokeh.document import Document
from bokeh.model import Model
from bokeh.models import Div, InlineStyleSheet, TextInput, UIElement
from jinja2 import Environment

from spo.experiments.report.markup import Html, element, join
from spo.watch.catalogue import Catalogue
from spo.watch.glance import Glance
from spo.watch.words import colour_of, name_of

MILLISECONDS = 500
LINKS = {"/": "Runs", "/run": "Run", "/trust-region": "Trust region", "/compare": "Compare", "/video": "Video"}


def read_asset(name: str) -> str:
    return resources.files("spo.watch").joinpath("assets", name).read_text()


TEMPLATE = Environment(autoescape=True).from_string(read_asset("page.html"))


class Page:
    """One open page: what is asked for in its address, and how it is drawn and drawn again."""

    title = ""
    path = "/"

    def __init__(self, document: Document, catalogue: Catalogue, nonce: str):
        self.document, self.catalogue, self.failure = document, catalogue, ""
        self.style = InlineStyleSheet(css=read_asset("content.css"))
        self.widget_style = InlineStyleSheet(css=read_asset("widgets.css"))
        self.inbox = TextInput(name="inbox", visible=False)
        self.listen(self.inbox, "value", self._receive)
        self.notes = self.make_div("notes")
        self.catalogue.poll()
        roots = [self.inbox, self.notes, *self.build()]
        self.attempt(self.refresh)
        with document.models.freeze():  # which goes through all of them once, and not after each
            for root in roots:
                document.add_root(root)
        document.title = f"{self.title} · spo watch"
        document.template = TEMPLATE
        panels = [root.name for root in roots if root.name not in ("inbox", "notes")]
        variables = {"nonce": nonce, "links": self.make_links(), "title": self.title, "panels": panels}
        document.template_variables.update(variables, **self.describe())
        document.add_periodic_callback(self._tick, MILLISECONDS)

    # What a page is made of

    def build(self) -> list[UIElement]:
        """Make the parts of the page; each has a name by which the template finds it."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Draw what has changed."""
        raise NotImplementedError

    def act(self, action: str, value: str) -> None:
        """Do what a click on an element with data-do="action:value" asks for."""

    def describe(self) -> dict[str, object]:
        """Give the template what it needs besides."""
        return {}

    # Helpers

    def argument(self, name: str) -> str:
        """Take the first value of a name in the page's address."""
        return next(iter(self.arguments(name)), "")

    def arguments(self, name: str) -> list[str]:
        context = self.document.session_context
        given = context.request.arguments.get(name, []) if context and context.request else []
        return [value.decode("utf-8", "replace") for value in given[:200]]

    def find_run(self) -> Glance | None:
        """Find the run that the address names, or else the one that was written to last."""
        key, glances = self.argument("run"), self.catalogue.glances
        if key:
            return glances.get(key)
        return max(glances.values(), key=lambda glance: glance.written, default=None)

    def make_div(self, name: str, **options) -> Div:
        """Make a part of the page that is markup; mathematics in names stays text."""
        style = {"stylesheets": [self.style], "disable_math": True, "sizing_mode": "stretch_width", "margin": 0}
        return Div(name=name, text="", **style | options)

    def set_text(self, div: Div, text: Html) -> None:
        if div.text != text:
            div.text = str(text)

    def make_links(self) -> list[dict[str, object]]:
        run = self.argument("run")
        found = []
        for path, words in LINKS.items():
            query = "?" + urlencode({"run": run}) if run and path in ("/run", "/trust-region", "/video") else ""
            found.append({"href": path + query, "text": words, "is_current": path == self.path})
        return found

    # Looking again

    def _tick(self) -> None:
        self.catalogue.poll()
        self.attempt(self.refresh)

    def listen(self, model: Model, name: str, action: Callable[[object], None]) -> None:
        """Call with the new value whenever a property of a widget changes."""

        def react(attr: str, old: object, new: object) -> None:
            self.attempt(partial(action, new))

        model.on_change(name, react)

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something; whatever a stranger's files lead to, the page says so, as long as it is open, and goes on."""
        try:
            action()
        except Exception as error:
            self.failure = f"This page could not be drawn as a whole. {type(error).__name__}: {error}"
            self.show_notes([])

    def _receive(self, message: str) -> None:
        _, _, action = message.partition(" ")
        name, _, value = action.partition(":")
        self.act(name, value)
        self.refresh()

    def show_notes(self, notes: list[str]) -> None:
        notes = [self.failure, *notes] if self.failure else notes
        self.set_text(self.notes, join(element("p", note, class_="note") for note in notes))
        self.notes.visible = bool(notes)


def link_to(path: str, words: object, **query: object) -> Html:
    return element("a", words, href=f"{path}?{urlencode(query)}" if query else path)


def chip(objective: str) -> Html:
    """Draw an objective's name beside its colour."""
    return element("span", element("i", class_="swatch", style=f"background:{colour_of(objective)}"),
                   name_of(objective), class_="objective")  # fmt: skip


def badge(state: str) -> Html:
    return element("span", state, class_=f"state {state}")
