"""What `spo figures` takes, and every maker of a figure gets."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from spo.config import fields


@dataclass(frozen=True)
class FigureArguments:
    """Draws a figure and prints the files that it wrote."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Which figure."""
    out: Path = Path("figures")
    """Where to write it."""
    runs: tuple[Path, ...] = ()
    """Run directories, for figures that show runs."""
    iteration: fields.OptionalCount = None
    """Which recorded iteration fig2 shows (unset: the last that all runs recorded)."""
    follow: bool = False
    """Draws fig2 as the authors did: the paths of some dozens of samples, instead of all samples in each epoch."""
    sweep: fields.OptionalPath = None
    """The directory of a sweep, for figures that show one (spo bench makes it)."""
    tasks: tuple[str, ...] = ()
    """Only these tasks of the sweep, for figures of training curves."""
    variants: tuple[str, ...] = ()
    """Only these variants of it, likewise."""
