"""Curves of a sweep, one panel at a time and without names: a page sets them side by side, with its own headings."""

import io
from functools import cache

from spo.experiments.figures.bands import Band, draw_band
from spo.experiments.figures.style import LineStyle, plot_options, pyplot, short_number

PANEL, WIDE_PANEL, SWATCH = (3.6, 2.4), (8.4, 2.9), (0.5, 0.16)
"""Inches."""
MARKS = 7
"""How many markers a curve carries."""


Curve = tuple[LineStyle, Band]


def draw_panel(
    curves: list[Curve],
    label: str,
    steps: int,
    bounds: tuple[float, ...] = (),
    is_log: bool = False,
    size: tuple[float, float] = PANEL,
) -> str:
    """The curves as SVG, and the bounds as dotted lines."""
    figure = pyplot().figure(figsize=size)
    left, bottom = 0.68 / size[0], 0.46 / size[1]  # inches for the labels, whatever the size
    right = 1 - (0.46 if bounds else 0.1) / size[0]  # the bounds are named beside the curves
    axis = figure.add_axes((left, bottom, right - left, 0.96 - bottom))
    for number, (style, band) in enumerate(curves):
        draw_band(axis, band, style, number, MARKS)
    for bound in bounds:
        axis.axhline(bound, color="0.25", linewidth=0.9, linestyle=":")
        place = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "xytext": (2, -3)}
        axis.annotate(f"ε {bound:g}", (1, bound), fontsize=8, **place)
    if is_log:
        _scale(axis)
    axis.yaxis.set_major_formatter(short_number)
    axis.xaxis.set_major_formatter(short_number)
    axis.set(xlabel="environment steps", ylabel=label, xlim=(0, steps))
    axis.grid(color="0.92", linewidth=0.6)
    return as_svg(figure)


@cache
def draw_swatch(style: LineStyle) -> str:
    """A piece of the line that has this style."""
    figure = pyplot().figure(figsize=SWATCH)
    axis = figure.add_axes((0, 0, 1, 1))
    axis.plot([0, 1, 2], [0, 0, 0], markevery=[1], **plot_options(style))
    axis.set(xlim=(0, 2), ylim=(-1, 1))
    axis.axis("off")
    return as_svg(figure)


def _scale(axis) -> None:
    """A logarithmic axis with numbers on it, however few decades it spans."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.yaxis.set_minor_formatter(NullFormatter())


def as_svg(figure) -> str:
    """The figure without dates or descriptions, so that the same numbers give the same text."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    pyplot().close(figure)
    return text.getvalue()
