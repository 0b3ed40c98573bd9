"""The table of runs in a terminal, for machines without a browser and over ssh."""

import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spo.errors import printable
from spo.runtime.formatting import clock_or_days, draw_bars
from spo.watch.catalogue import Catalogue
from spo.watch.glance import Glance
from spo.watch.words import leaves_bound, list_differences, name_of, show_number, show_steps

SECONDS = 1.0
COLOURS = {"running": "cyan", "finished": "green", "failed": "red", "damaged": "red", "silent": "yellow",
           "interrupted": "yellow", "starting": "cyan"}  # fmt: skip
WIDE = 100
"""Letters of a terminal from which there is room for all of a cell."""
WIDTHS = {"state": 0, "task": 0, "objective": 60, "seed": 80, "progress": 0, "steps/s": 130, "left": WIDE, "return": 0,
          "spark": 70, "deviation": 0, "run": 120}  # fmt: skip
"""The columns, and the letters that a terminal must be wide for each."""
MOST_TROUBLES = 5
HEADERS = {"spark": "", "progress": "done"}
NUMERIC = ("seed", "steps/s", "left", "return", "deviation")
MAY_BE_CUT = ("task", "objective", "run")
"""Where a terminal is too narrow for all letters; a number that has lost its end is another number."""


def watch_in_terminal(roots: list[Path]) -> None:
    """Redraw the table every second until Ctrl-C; where nobody looks at a terminal, print it once."""
    catalogue, console = Catalogue(roots), Console()
    while not catalogue.is_whole or not catalogue.version:
        catalogue.poll()
        if not catalogue.found.runs:
            break
    if not sys.stdout.isatty():
        console.print(draw(catalogue, (console.width, len(catalogue.glances) + 99)))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw(catalogue, console.size), refresh=True)
            time.sleep(SECONDS)
            catalogue.poll()


def draw(catalogue: Catalogue, size: tuple[int, int]) -> Group:
    """Draw what fits: the runs that want attention first, then the newest."""
    glances = sorted(catalogue.glances.values(), key=lambda own: own.urgency)
    counts = Counter(glance.state for glance in glances)
    title = Text(" · ".join(f"{count} {state}" for state, count in counts.items()) or "no runs yet", style="bold")
    lines = [_trouble(glance) for glance in glances if _why(glance)][:MOST_TROUBLES]
    lines += [_line(note, "yellow") for note in catalogue.found.notes]
    room = max(1, size[1] - 6 - len(lines))
    parts: list[object] = [title, _table(catalogue, glances[:room], size[0])]
    if len(glances) > room:
        parts.append(Text(f"{len(glances) - room} more", style="dim"))
    return Group(*parts, *lines)


def _line(words: str, style: str) -> Text:
    return Text(printable(words), style=style, no_wrap=True, overflow="ellipsis")


def _why(glance: Glance) -> str:
    return glance.reason or next(iter(glance.problems), "")


def _trouble(glance: Glance) -> Text:
    return _line(f"{glance.name}: {_why(glance)}", COLOURS.get(glance.state, "red"))


def _table(catalogue: Catalogue, glances: list[Glance], width: int) -> Table:
    names = [name for name, least in WIDTHS.items() if width >= least]
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in names:
        header, numeric, is_last = HEADERS.get(name, name), name in NUMERIC, name == "run"
        table.add_column(header, justify="right" if numeric else "left", no_wrap=name not in MAY_BE_CUT,
                         ratio=1 if is_last else None)  # fmt: skip
    table.expand = "run" in names
    differences = list_differences(glances)
    for glance in glances:
        cells = _cells(glance, _name(catalogue, glance), differences[glance.key], is_wide=width >= WIDE)
        table.add_row(*(cells[name] for name in names))
    return table


def _name(catalogue: Catalogue, glance: Glance) -> str:
    """Name a run: by what it is a run of in a sweep, by its directory elsewhere."""
    if glance.sweep not in catalogue.plans:
        return glance.name
    return " · ".join(part for part in (f"{catalogue.label(glance)}, seed {glance.seed}", glance.sweep_folder) if part)


def _cells(glance: Glance, name: str, differences: str, is_wide: bool) -> dict[str, Text]:
    """Write the cells of a run; nothing in a name can steer the terminal or be markup."""
    words = {
        "task": glance.task,
        "objective": name_of(glance.objective),
        "seed": glance.seed,
        "progress": f"{100 * glance.share:3.0f} %" + (f" {show_steps(glance.steps)}" if is_wide else ""),
        "steps/s": show_number(glance.speed),
        "left": clock_or_days(glance.seconds_left),
        "return": show_number(glance.last_return),
        "spark": draw_bars(glance.spark, 14 if is_wide else 5),
        "run": " · ".join(part for part in (name, "" if glance.sweep else differences) if part),
    }
    cells = {name: Text(printable(word), no_wrap=True, overflow="ellipsis") for name, word in words.items()}
    cells["run"].stylize("dim")
    cells["state"] = Text(glance.state, style=COLOURS.get(glance.state, ""))
    cells["deviation"] = Text(show_number(glance.deviation_max), style="red" if leaves_bound(glance) else "")
    return cells
