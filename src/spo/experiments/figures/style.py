"""One style for all figures: colours that colour-blind people tell apart, and a line and a marker for grey print."""

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path

from spo.errors import SpoError
from spo.runtime.files import translate_os_errors

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, BLACK, GREY = "#56B4E9", "#CC79A7", "#000000", "#7F7F7F"
"""Okabe and Ito's palette without its yellow, which is lost on white; grey is for what carries no name."""
POSITIVE, NEGATIVE = BLUE, VERMILION
"""The sign of an advantage, where no objective is told by its colour; negative is always dashed too."""
TITLE = 10
"""The size of a panel's title; everything else is set in 9 points, readable at a column's width."""
SMALL = 7.5
"""Ticks and titles where many panels stand side by side, and the words under a figure."""
COLUMN, PAGE = 3.4, 6.9
"""Inches that a column and a page of the paper are wide: figures of sweeps are drawn as large as they are printed."""
PADDING = 0.1
"""Inches of white around all that a figure shows."""
DPI = 150
"""Of what is made of pixels, such as a PNG."""
FORMATS = ("svg", "png", "pdf")

Line = str | tuple[int, tuple[float, ...]]
Marker = str | tuple[int, int, int]
FOUR_POINTS, THREE_POINTS = (4, 1, 0), (3, 1, 0)
"""Stars: no letter is left that names a marker with an inside."""
DASHED, DOTTED, DASH_DOT, LONG = (0, (4, 2)), (0, (1.2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 2))
LINES = ("-", DASHED, DOTTED, DASH_DOT, LONG)
EXTRA_COLOURS = (GREEN, ORANGE, PURPLE, SKY, BLACK)
"""Colours for objectives that are not registered."""


@dataclass(frozen=True)
class LineStyle:
    """How an objective is named and drawn in every figure."""

    label: str
    colour: str
    line: Line
    marker: Marker
    is_filled: bool = True  # the marker


STYLES = {
    "spo": LineStyle("SPO", BLUE, "-", "o"),
    "ppo-clip": LineStyle("PPO-Clip", VERMILION, DASHED, "s"),
    "ppo-penalty": LineStyle("PPO-Penalty", ORANGE, DASH_DOT, "^"),
    "spu": LineStyle("SPU", SKY, DOTTED, "D"),
    "ppo-rb": LineStyle("PPO-RB", PURPLE, LONG, "v"),
    "tr-ppo": LineStyle("TR-PPO", GREEN, DASHED, "<"),
    "tr-ppo-rb": LineStyle("TR-PPO-RB", GREEN, DOTTED, ">"),
    "rpo-reflective": LineStyle("RPO (reflective)", BLACK, DOTTED, "P"),
    "trpo": LineStyle("TRPO", BLACK, "-", "X"),
    "simple": LineStyle("Simple", GREEN, DASH_DOT, "*"),
    "ppo-dual-clip": LineStyle("PPO dual clip", VERMILION, DOTTED, "p"),
    "aspo": LineStyle("ASPO", BLUE, DASH_DOT, "d"),
    "clip-higher": LineStyle("Clip-Higher", ORANGE, LONG, "H"),
    "espo": LineStyle("ESPO", SKY, DASHED, "h"),
    "spo-adaptive": LineStyle("SPO adaptive", GREEN, "-", FOUR_POINTS),
    "spo-power": LineStyle("SPO power", PURPLE, DASH_DOT, THREE_POINTS),
    "drpo": LineStyle("DRPO", PURPLE, DASHED, "8"),
    "truly-ppo": LineStyle("Truly PPO", GREEN, LONG, "1"),
}


def style_of(name: str) -> LineStyle:
    """The style of a registered objective; a user's own is grey under its own name."""
    return STYLES.get(name) or LineStyle(name, GREY, "-", ".")


def styles_for(variants: Mapping[str, Mapping[str, object]]) -> dict[str, LineStyle]:
    """The styles of a plan's variants: colour and marker by objective; where networks are compared, line by network.

    Of several with the same objective and network the first has its line, and the others (of another width) are dotted;
    where no networks are compared, they get colours and markers that are left.
    """
    is_compared = any({"hidden", "encoder"} & set(settings) for settings in variants.values())
    bases = _objective_styles(dict.fromkeys(str(own.get("objective", name)) for name, own in variants.items()))
    styles, taken = {}, set()
    for name, own in variants.items():
        style = _variant_style(bases[str(own.get("objective", name))], name, own, is_compared)
        if (style.marker, style.colour, style.is_filled) in taken:
            style = replace(style, line=DOTTED) if is_compared else _find_free(style, taken)
        taken.add((style.marker, style.colour, style.is_filled))
        styles[name] = style
    return styles


def _find_free(style: LineStyle, taken: set) -> LineStyle:
    """The next colour, and a marker that no variant has yet, for one that differs in a setting of its objective."""
    markers = {marker for marker, _, _ in taken}
    free = (other.marker for other in STYLES.values() if other.marker not in markers)
    number = len(markers) - 1
    colour, line = EXTRA_COLOURS[number % len(EXTRA_COLOURS)], LINES[1:][number % (len(LINES) - 1)]
    return replace(style, colour=colour, line=line, marker=next(free, style.marker))


def _objective_styles(objectives: Iterable[str]) -> dict[str, LineStyle]:
    """Objectives that are not registered get colours that the palette has left."""
    styles = {name: style_of(name) for name in objectives}
    own = (name for name in styles if name not in STYLES)
    return styles | {name: replace(styles[name], colour=colour) for name, colour in zip(own, cycle(EXTRA_COLOURS))}


def _variant_style(style: LineStyle, name: str, settings: Mapping[str, object], is_compared: bool) -> LineStyle:
    """A large network is solid with full markers, a small one dashed with hollow ones."""
    style = replace(style, label=str(settings.get("label", name)))
    if not is_compared:
        return style
    is_large = len(settings.get("hidden", ())) > 2 or settings.get("encoder") == "resnet18"
    return replace(style, line="-" if is_large else DASHED, is_filled=is_large)


def make_distinct(styles: Mapping[str, LineStyle]) -> dict[str, LineStyle]:
    """Styles for variants that share a panel: where two have the same line, the later gets one that is not taken."""
    apart, taken = {}, set()
    for name, style in styles.items():
        lines = (style.line, *LINES)
        line = next((line for line in lines if (style.colour, style.marker, line) not in taken), style.line)
        taken.add((style.colour, style.marker, line))
        apart[name] = replace(style, line=line)
    return apart


def plot_options(style: LineStyle) -> dict[str, object]:
    """The arguments of a line that is drawn in this style."""
    marker = {"marker": style.marker, "markerfacecolor": style.colour if style.is_filled else "white"}
    return {"color": style.colour, "linestyle": style.line, "linewidth": 1.2, "markersize": 3.2, **marker}


def pyplot():
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise SpoError("figures need: pip install 'simple-policy-optimization[report]'")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "spo"})
    return plt


def write_note(figure, note: str) -> None:
    """The words under a figure, in lines no wider than it."""
    lines = textwrap.fill(note, int(figure.get_figwidth() * 20))
    figure.text(0, 0, lines, fontsize=SMALL, color="0.25", va="top", linespacing=1.3)


def add_legend(figure, handles: list, at: tuple[float, float], **options) -> None:
    """A legend at a place of the figure as it was laid out: saving widens the figure by its note, and would move it."""
    figure.legend(handles=handles, frameon=False, bbox_to_anchor=at, bbox_transform=figure.transFigure, **options)


def short_number(value: float, _=None) -> str:
    """A tick's number in few letters: 250, 12k, 1.5M."""
    text = f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:g}"
    return text.replace("-", "−")


def save(figure, name: str, out: Path, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """Write the figure in every format, without dates, so that the same numbers give the same files.

    No figure asks for a constrained layout, whose solver differs in the last digits from draw to draw. What is tight is
    found once, not for every format.
    """
    paths = [out / f"{name}.{ending}" for ending in formats]
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    try:
        with translate_os_errors(f"--out {out}"):
            out.mkdir(parents=True, exist_ok=True)
            figure.set_dpi(DPI)  # at which text is as wide as it will be
            box = figure.get_tightbbox().padded(PADDING)
            for path, ending in zip(paths, formats):
                figure.savefig(path, dpi=DPI, bbox_inches=box, metadata=dates[ending])
    finally:
        pyplot().close(figure)
    return paths
