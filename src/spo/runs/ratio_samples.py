"""Which iterations' samples of ratios stay in the run directory: the newest, and some from all over the run."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from spo.runtime.files import replace_file

MOST_KEPT, NEWEST_KEPT = 128, 16
"""Iterations that are kept from all over a run, and newest ones besides: some six megabytes with ten epochs."""


def spacing(every: int, iterations: int) -> int:
    """Find the iterations between two that stay: `every`, doubled until no more than `MOST_KEPT` stay."""
    stride = every
    while iterations // stride > MOST_KEPT:
        stride *= 2
    return stride


def is_kept(iteration: int, newest: int, every: int, iterations: int) -> bool:
    """Whether an iteration's samples are there once the newest iteration is over. No state: resuming needs none."""
    if iteration > newest or iteration % every:
        return False
    return iteration > newest - NEWEST_KEPT * every or iteration % spacing(every, iterations) == 0


def keep_sample(folder: Path, iteration: int, sample: Mapping[str, np.ndarray], every: int, iterations: int) -> None:
    """Write an iteration's samples all at once, and remove those that need not stay any longer."""
    folder.mkdir(exist_ok=True)
    replace_file(_file(folder, iteration), save(dict(sample)), durable=False)
    past = iteration - NEWEST_KEPT * every
    if past > 0 and not is_kept(past, iteration, every, iterations):
        _file(folder, past).unlink(missing_ok=True)


def prune_samples(folder: Path, newest: int, every: int, iterations: int) -> None:
    """Remove what an uninterrupted run would not have there once the newest iteration is over."""
    with suppress(FileNotFoundError):
        for path in folder.iterdir():
            is_whole = path.suffix == ".safetensors" and path.stem.isdecimal()
            if not is_whole or not every or not is_kept(int(path.stem), newest, every, iterations):
                path.unlink()


def _file(folder: Path, iteration: int) -> Path:
    return folder / f"{iteration}.safetensors"
