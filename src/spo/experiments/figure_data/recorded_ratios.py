"""The ratios that a run recorded: those of every sample of an iteration, in each of its epochs. No torch here."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from spo.errors import SpoError
from spo.runs.directory import RunDirectory

DEFAULT_ITERATION = 100
"""What the sentence about missing ratios asks for."""


@dataclass(frozen=True)
class RecordedRatios:
    """One iteration of one run."""

    env: str
    objective: str
    epsilon: float
    iteration: int
    ratio: np.ndarray  # (epochs, samples) after each epoch
    advantage: np.ndarray  # (epochs, samples) as the objective saw it in that epoch
    is_raw: bool  # the advantage is the one before normalisation, which earlier versions kept


def read_ratios(paths: tuple[Path, ...], iteration: int | None) -> list[RecordedRatios]:
    """The same iteration of every run: the given one, or the last that all of them recorded."""
    runs = [RunDirectory.open(path) for path in paths]
    if iteration is None:
        common = set.intersection(*(set(recorded_iterations(run)) for run in runs))
        iteration = max(common, default=DEFAULT_ITERATION)
    return [_read(run, iteration) for run in runs]


def recorded_iterations(run: RunDirectory) -> list[int]:
    names = (path.stem for path in run.ratios.glob("*.safetensors"))
    return sorted(int(name) for name in names if name.isdecimal())


def _read(run: RunDirectory, iteration: int) -> RecordedRatios:
    config = run.read_config()
    settings, resolved = config["settings"], config["resolved"]
    path = run.ratios / f"{iteration}.safetensors"
    if not os.path.isfile(path):
        recorded = ", ".join(map(str, recorded_iterations(run))) or "none"
        command = record_command(settings["env"], settings["objective"], iteration)
        raise SpoError(
            f"{run.path} has no ratios of iteration {iteration} (recorded: {recorded}); {command} makes them"
        )
    epsilon = _width(run, iteration, resolved["objective_settings"].get("epsilon", 0.2))
    return RecordedRatios(settings["env"], settings["objective"], epsilon, iteration, *_tensors(path))


def _width(run: RunDirectory, iteration: int, start: float) -> float:
    """The ε in force: that of the iteration's row where it is adapted, else the one that the run began with."""
    widths = [row["epsilon"] for row in run.read_metrics() if row.get("iteration") == iteration and "epsilon" in row]
    for width in widths:
        if not isinstance(width, int | float) or not 0 < width < 1:
            raise SpoError(f"{run.metrics} says epsilon {width} at iteration {iteration}; it is above 0 and below 1")
    return widths[0] if widths else start


def record_command(env: str, objective: str, iteration: int = DEFAULT_ITERATION) -> str:
    """The command that trains and records."""
    return f"spo train {env} --objective {objective} --record-ratios {iteration}"


def follow_command(env: str, objective: str) -> str:
    """The command that trains on one batch of 64 samples for 100 epochs, and records them."""
    batch = "--envs 8 --horizon 8 --minibatches 1 --epochs 100 --steps 64"
    return f"spo train {env} --objective {objective} {batch} --record-ratios 1"


def _tensors(path: Path) -> tuple[np.ndarray, np.ndarray, bool]:
    try:
        tensors = load(path.read_bytes())
        ratio, advantage = tensors["ratio"], tensors["advantage"]
    except (OSError, SafetensorError, KeyError) as error:
        raise SpoError(f"{path} cannot be read: {error}")
    if ratio.ndim != 2 or advantage.shape not in (ratio.shape, ratio.shape[1:]) or not ratio.size:
        shapes = f"ratio {ratio.shape} and advantage {advantage.shape}"
        raise SpoError(f"{path} holds {shapes}; accepted are (epochs, samples), for the advantage also (samples,)")
    if not (np.isfinite(ratio).all() and np.isfinite(advantage).all()):
        raise SpoError(f"{path} holds values that are not finite")
    return ratio, np.broadcast_to(advantage, ratio.shape), advantage.ndim == 1
