"""Numbers and durations as people read them."""

import math
import textwrap
from collections.abc import Iterable
from typing import TextIO

BARS = "▁▂▃▄▅▆▇█"


def show(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.4g}"


def clock(seconds: float) -> str:
    """Seconds as 1:02:03 or 2:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def clock_or_days(seconds: float) -> str:
    """Seconds as 2:03, 1:02:03 or 3 d 4 h; a dash where they are not known."""
    if not math.isfinite(seconds):
        return "–"
    hours = round(seconds) // 3600
    return f"{hours // 24} d {hours % 24} h" if hours >= 48 else clock(seconds)


def short(value: float, like: float | None = None) -> str:
    """A number with as many digits after the point as its size, or another number's, asks for."""
    size = abs(value if like is None else like)
    digits = 1 if size >= 100 else 2 if size >= 10 else 3
    text = f"{value:,.{digits}f}" if value == 0 or size >= 0.001 else f"{value:.2g}"
    return text.replace("-", "−")


def with_sign(value: float, like: float | None = None) -> str:
    """A number with its sign."""
    return ("+" if value > 0 else "") + short(value, like)


def percent(share: float) -> str:
    """A share as per cent, to three digits."""
    return f"{100 * share:.3g}\u00a0%"


def plural(count: int, word: str) -> str:
    """A count with its noun: 1 run, 2 runs."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def fold(text: str, stream: TextIO) -> str:
    """Break a line between words where it is printed on a terminal, and nowhere else: a log may be searched."""
    if not stream.isatty():
        return text
    from rich.console import Console  # slow to import, for workers that print nothing

    return textwrap.fill(text, Console(file=stream).width, break_long_words=False, break_on_hyphens=False)


def draw_bars(values: Iterable[float], width: int = 16, ends: tuple[float, float] | None = None) -> str:
    """Draw a spark line of letters, from the lowest value to the highest, or between the given ends."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    low, high = ends or (min(known), max(known))
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    chosen = [known[round(i * (len(known) - 1) / max(1, width - 1))] for i in range(min(width, len(known)))]
    return "".join(BARS[round((min(max(value, low), high) - low) * scale)] for value in chosen)
