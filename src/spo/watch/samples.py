"""The ratios that a run kept: of some samples of an iteration, in each of its epochs."""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from spo.watch.files import Place, UnreadableFileError, read_file

FOLDER, RECORDED = "ratio_samples", "ratios"
"""What every run keeps of itself, and what --record-ratios asks for: all samples, without their gradients."""
LARGEST_SAMPLE, LARGEST_HEADER = 2**26, 2**14
MOST_SAMPLES, MOST_EPOCHS, MOST_FILES, MOST_KEPT = 2048, 1000, 10_000, 64


@dataclass(frozen=True)
class RatioSample:
    """Ratios and advantages (epochs, samples) of one iteration; a ratio is NaN where the epoch left the sample out."""

    iteration: int
    ratio: np.ndarray
    advantage: np.ndarray
    is_left_alone: np.ndarray | None  # where the objective had no gradient; None where that was not kept
    epsilon: float  # NaN where the file does not say


class SampleReader:
    """Lists and reads the kept ratios of one run, and remembers the newest that were read."""

    def __init__(self, place: Place):
        self.place = place
        self.problem = ""
        self._kept: OrderedDict[tuple, RatioSample] = OrderedDict()

    def list_iterations(self) -> list[int]:
        return sorted({*_list_files(self.place, FOLDER), *_list_files(self.place, RECORDED)})

    def read(self, iteration: int) -> RatioSample | None:
        """Read an iteration; None, and a sentence in `problem`, where that cannot be."""
        name = f"{iteration}.safetensors"
        for folder in (FOLDER, RECORDED):
            place = self.place.below(folder)
            signature = place.signature(name)
            if signature is None:
                continue
            key = (folder, iteration, signature)
            if key not in self._kept:
                try:
                    self._kept[key] = read_sample(place, iteration)
                except UnreadableFileError as error:
                    self.problem = f"{folder}/{error}"
                    return None
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            self.problem = ""
            return self._kept[key]
        self.problem = f"iteration {iteration} is not kept"
        return None


def _list_files(place: Place, folder: str) -> list[int]:
    names = (name.partition(".") for name in place.below(folder).list_names(MOST_FILES))
    stems = (stem for stem, _, end in names if end == "safetensors" and len(stem) < 12)
    return [int(stem) for stem in stems if stem.isascii() and stem.isdecimal()]


def read_sample(place: Place, iteration: int) -> RatioSample:
    name = f"{iteration}.safetensors"
    content = read_file(place, name, LARGEST_SAMPLE)
    if content is None:
        raise UnreadableFileError(f"{name} is gone")
    if int.from_bytes(content[:8], "little") > LARGEST_HEADER:
        raise UnreadableFileError(f"{name} has a header that is out of proportion")
    try:
        return _check(iteration, load(content))
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableFileError(f"{name} cannot be read: {error}")


def _check(iteration: int, tensors: dict[str, np.ndarray]) -> RatioSample:
    ratio, advantage = tensors["ratio"], tensors["advantage"]
    if ratio.ndim != 2 or not ratio.size or len(ratio) > MOST_EPOCHS or ratio.dtype.kind != "f":
        raise ValueError(f"its ratios have the shape {ratio.shape}; accepted is (epochs, samples)")
    if advantage.shape not in (ratio.shape, ratio.shape[1:]) or advantage.dtype.kind != "f":
        raise ValueError(f"its advantages have the shape {advantage.shape}; accepted is that of the ratios")
    left_alone = tensors.get("zero_gradient")
    if left_alone is not None and left_alone.shape != ratio.shape:
        raise ValueError(f"its gradients have the shape {left_alone.shape}; accepted is that of the ratios")
    some = slice(None, None, -(-ratio.shape[1] // MOST_SAMPLES))
    advantage = np.broadcast_to(advantage, ratio.shape)
    epsilon = np.asarray(tensors.get("epsilon", np.nan), dtype=float).reshape(-1)
    return RatioSample(
        iteration,
        _within_sight(ratio[:, some]),
        _within_sight(advantage[:, some]),
        None if left_alone is None else left_alone[:, some] != 0,
        float(epsilon[0]) if len(epsilon) and 0 < epsilon[0] < 1e6 else np.nan,
    )


def _within_sight(values: np.ndarray) -> np.ndarray:
    """Take numbers as plots can draw them: NaN for those that are not finite or beyond all measure."""
    values = values.astype(np.float64)
    return np.where(np.abs(values) < 1e40, values, np.nan)
