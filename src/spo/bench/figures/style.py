"""One look for all figures: colours that colour-blind people tell apart, and a line and a marker for grey print."""

from dataclasses import dataclass
from pathlib import Path

from spo.errors import Refusal

BLUE, VERMILION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, BLACK, GREY = "#56B4E9", "#CC79A7", "#000000", "#7F7F7F"
"""Okabe and Ito's palette without its yellow, which is lost on white; grey is for what carries no name."""
POSITIVE, NEGATIVE = BLUE, VERMILION
"""The sign of an advantage, where no objective is told by its colour; negative is always dashed too."""
TITLE = 10
"""The size of a panel's title; everything else is set in 9 points, readable at a column's width."""
FORMATS = ("svg", "png", "pdf")

Line = str | tuple[int, tuple[float, ...]]
DASHED, DOTTED, DASH_DOT, LONG = (0, (4, 2)), (0, (1.2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 2))


@dataclass(frozen=True)
class Look:
    """How an objective is named and drawn in every figure."""

    label: str
    colour: str
    line: Line
    marker: str


LOOKS = {
    "spo": Look("SPO", BLUE, "-", "o"),
    "ppo-clip": Look("PPO-Clip", VERMILION, DASHED, "s"),
    "ppo-penalty": Look("PPO-Penalty", ORANGE, DASH_DOT, "^"),
    "spu": Look("SPU", SKY, DOTTED, "D"),
    "ppo-rb": Look("PPO-RB", PURPLE, LONG, "v"),
    "tr-ppo": Look("TR-PPO", GREEN, DASHED, "<"),
    "tr-ppo-rb": Look("TR-PPO-RB", GREEN, DOTTED, ">"),
    "rpo-reflective": Look("RPO (reflective)", BLACK, DOTTED, "P"),
    "trpo": Look("TRPO", BLACK, "-", "X"),
    "simple": Look("Simple", GREEN, DASH_DOT, "*"),
    "ppo-dual-clip": Look("PPO dual clip", VERMILION, DOTTED, "p"),
    "aspo": Look("ASPO", BLUE, DASH_DOT, "d"),
    "clip-higher": Look("Clip-Higher", ORANGE, LONG, "H"),
    "espo": Look("ESPO", SKY, DASHED, "h"),
}


def look_of(name: str) -> Look:
    """The look of a registered objective; a user's own is grey under its own name."""
    return LOOKS.get(name) or Look(name, GREY, "-", ".")


def pyplot():
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        raise Refusal("figures need: pip install 'simple-policy-optimization[report]'")
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "spo"})
    return plt


def save(figure, name: str, out: Path, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """Writes the figure in every format, without dates, so that the same numbers give the same files.

    No figure asks for a constrained layout, whose solver differs in the last digits from draw to draw.
    """
    paths = [out / f"{name}.{ending}" for ending in formats]
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, ending in zip(paths, formats):
            figure.savefig(path, dpi=150, bbox_inches="tight", metadata=dates[ending])
    except OSError as error:
        raise Refusal(f"--out {out} cannot be written to: {error.strerror}")
    finally:
        pyplot().close(figure)
    return paths
