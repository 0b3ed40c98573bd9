"""Numbers and names of runs as people read them, on pages and in the terminal alike."""

import math
from collections.abc import Iterable

from spo.experiments.figures.style import BLACK, style_of
from spo.watch.glance import Glance

MOST_DIFFERENCES = 6


def show_number(value: float, digits: int = 3) -> str:
    """Write a number with a few digits that count; a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    if value != 0 and (abs(value) >= 1e7 or abs(value) < 1e-4):
        text = f"{value:.{digits - 1}e}"
    else:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
        text = f"{value:,.{min(places, 6)}f}"
    return text.replace("-", "−")


def show_steps(value: float) -> str:
    """Write a number of steps in few letters: 250, 12k, 1.5M."""
    if value >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value / 1e3:.3g}k" if value >= 1e4 else f"{value:,.0f}"


def show_progress(glance: Glance) -> str:
    """Write the steps that are made, and of how many if that is known."""
    total = f" of {show_steps(glance.total_steps)}" if glance.total_steps else ""
    return f"{show_steps(glance.steps)}{total}"


def list_differences(glances: Iterable[Glance]) -> dict[str, str]:
    """Say, by run, which of its settings other runs of the same task have otherwise."""
    tasks: dict[str, list[Glance]] = {}
    for glance in glances:
        tasks.setdefault(glance.task, []).append(glance)
    found = {}
    for own in tasks.values():
        names = dict.fromkeys(name for glance in own for name in glance.settings)
        differing = [name for name in names if len({glance.settings.get(name) for glance in own}) > 1]
        for glance in own:
            parts = [
                f"{name.replace('_', ' ')} {glance.settings[name]}" for name in differing if name in glance.settings
            ]
            rest = f" and {len(parts) - MOST_DIFFERENCES} more" if len(parts) > MOST_DIFFERENCES else ""
            found[glance.key] = " · ".join(parts[:MOST_DIFFERENCES]) + rest
    return found


def leaves_bound(glance: Glance) -> bool:
    """Whether the largest mean ratio deviation is beyond the objective's width; never where that is adapted."""
    return not glance.adapts_epsilon and glance.deviation_max > glance.epsilon


def colour_of(objective: str) -> str:
    """Give an objective's colour; black would be lost on a dark page."""
    colour = style_of(objective).colour
    return "#7f5fc7" if colour == BLACK else colour


def name_of(objective: str) -> str:
    return style_of(objective).label
