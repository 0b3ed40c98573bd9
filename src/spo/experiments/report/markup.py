"""Elements of a page. Whatever is not an element already is text, and is escaped where it becomes part of one."""

import html
import re
from collections.abc import Iterable, Sequence

from spo.experiments.statistics import Interval
from spo.runtime.formatting import short

VOID = ("meta", "img", "br")
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Controls, marks that turn the direction of text, halves of characters: no name may rearrange a page unseen."""


class Html(str):
    """Text that is markup. What comes from outside is never made one; `element` and `join` escape it."""


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """<name attributes>children</name>; `class_` is written class, `aria_label` aria-label; None is left out."""
    given = {key.strip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    start = "".join([name, *(f' {key}="{_escape(value)}"' for key, value in given.items())])
    return Html(f"<{start}>" if name in VOID else f"<{start}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Html:
    return Html("".join(child if isinstance(child, Html) else _escape(child) for child in children))


def _escape(value: object) -> str:
    return html.escape(INVISIBLE.sub(lambda found: f"\\u{ord(found[0]):04x}", str(value)))


def section(anchor: str, title: str, *children: object) -> Html:
    link = element("a", "#", class_="anchor", href=f"#{anchor}", aria_label=f"link to {title}")
    return element("section", element("h2", title, " ", link), *children, id=anchor)


def label(note: str) -> Html:
    """What every table and figure of a reduced plan says."""
    return element("b", note, class_="label") if note else Html()


def table(head: Sequence[object], rows: Iterable[Sequence[object]], caption: object = "", **attributes: object) -> Html:
    """A table that scrolls inside itself, under words that do not; the first cell of each row is its heading."""
    body = [[_cell("th", row[0], scope="row"), *(_cell("td", cell) for cell in row[1:])] for row in rows]
    parts = [
        element("thead", element("tr", *(_cell("th", cell, scope="col") for cell in head))),
        element("tbody", *(element("tr", *cells) for cells in body)),
    ]
    words = [element("p", caption, class_="caption")] if caption else []
    # What scrolls must be reachable with the keyboard.
    return join([*words, element("div", element("table", *parts, **attributes), class_="scroll", tabindex=0)])


def _cell(name: str, content: object, **attributes: object) -> Html:
    """A cell; content that is one already stays as it is."""
    is_cell = isinstance(content, Html) and content.startswith("<td")
    return content if is_cell else element(name, content, **attributes)


def interval(found: Interval, form: str) -> Html:
    """An estimate with its interval behind it."""
    value, low, high = (form.format(end).replace("-", "−") for end in (found.value, found.low, found.high))
    return join([number(found.value, value), element("small", f" [{low}, {high}]")])


def number(value: float, text: str | None = None) -> Html:
    """A number as it is read, with all its digits for who looks closer."""
    return element("data", text or short(value), value=repr(float(value)))
