"""What is kept of a finished run: numbers at full precision, and curves in bins. No torch here.

Read from a run's rows or from the two small files of a packed one, a history has the same parts: only the digits of the
curves tell them apart.
"""

import gzip
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from spo.errors import SpoError
from spo.experiments import statistics
from spo.runs.directory import RunDirectory
from spo.runs.summary import summarize
from spo.runtime.files import LARGEST_TEXT, canonical_json, compact, packed_path, parse_json, read_json, unpack

FORMAT = 1
"""Of the two files; another one is not read."""
BINS, DIGITS = 500, 4
"""Parts of a run that its curves are kept in, and significant digits of what is packed of them."""
SHARES = (0.1, 0.01)
"""Of the steps, at the end, over which the paper's table and figures take returns."""
PLACES = ("iteration", "env_steps")
"""What says where a row belongs, and is no metric."""
LARGEST = 1e100
"""No return or deviation reaches it, and sums of smaller numbers are finite."""
SUMMARY, CURVES = "summary.json", "curves.json.gz"

Curve = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class History:
    """What tables, figures and reports need of a finished run. Keeps arrays only: the rows of a whole suite
    would not fit memory."""

    numbers: Mapping[str, object]  # as summary.json has them
    episodes: Curve  # in each bin, of the returns: count, mean, std (NaN where the count is 0)
    metrics: Mapping[str, Curve]  # by metric, in each bin: mean and max of the iterations (NaN where there is none)
    is_packed: bool

    def summary(self, last: float) -> dict[str, float | bool | None]:
        """What the run came to, with its return over the last share of its steps."""
        found = [own for own in self.numbers["returns"] if own["share"] == last]
        if not found:
            raise SpoError(f"{SUMMARY} has no return over the last {last} of the steps")
        kept = {name: self.numbers[name] for name in ("steps_per_second", "env_steps")}
        returned = {"return": found[0]["mean"], "return_from_last_episodes": found[0]["is_of_last_episodes"]}
        return returned | {"ratio_deviation_max": self.numbers["metrics"]["ratio_deviation_max"]["max"]} | kept

    @property
    def iteration_means(self) -> list[float]:
        """The lowest and the highest mean return of an iteration; nothing if no episode ended."""
        return self.numbers["iteration_means"]

    def return_curve(self, points: int) -> np.ndarray:
        """Mean return of the episodes that ended in each of so many bins."""
        count, mean = self.episodes["count"], self.episodes["mean"]
        sums = np.where(count > 0, mean * count, 0.0)
        return fill_gaps(_divide(_merge(sums, points).sum(1), _merge(count, points).sum(1)))

    def metric_curve(self, name: str, points: int) -> np.ndarray:
        """Mean of a metric in each of so many bins."""
        parts = _merge(self.metrics[name]["mean"], points)
        return fill_gaps(_divide(np.nansum(parts, axis=1), np.isfinite(parts).sum(1)))

    def peak_curve(self, name: str, points: int) -> np.ndarray:
        """Largest value of a metric in each of so many bins."""
        return fill_gaps(np.fmax.reduce(_merge(self.metrics[name]["max"], points), axis=1))


def _merge(values: np.ndarray, points: int) -> np.ndarray:
    """(points, bins in each): bins join to points that none of them lies across."""
    if BINS % points:
        raise ValueError(f"{BINS} bins cannot be joined to {points}")
    return values.reshape(points, -1)


def _divide(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)


def fill_gaps(values: np.ndarray) -> np.ndarray:
    """A bin without a value repeats the one before it (or the first that has one)."""
    known = np.flatnonzero(~np.isnan(values))
    if not len(known):
        return values
    return values[known[np.clip(np.searchsorted(known, np.arange(len(values)), side="right") - 1, 0, None)]]


# From rows


def from_rows(rows: list[dict], episodes: list[dict], total_steps: int, iterations: int, last: float) -> History:
    returns, ended = column(episodes, "return"), bin_of(column(episodes, "env_steps"), total_steps)
    made = bin_of(column(rows, "env_steps"), total_steps)
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in PLACES]
    columns = {name: column(rows, name, is_whole=name == "ratio_deviation_max") for name in names}
    means = statistics.iteration_means(episodes, total_steps // iterations)
    numbers = {
        "format": FORMAT,
        "iterations": len(rows),
        "episodes": len(episodes),
        "env_steps": rows[-1]["env_steps"],
        "wall_time": rows[-1]["wall_time"],
        "steps_per_second": rows[-1]["env_steps"] / rows[-1]["wall_time"],
        "returns": [_return(rows, episodes, total_steps, share) for share in sorted({*SHARES, last}, reverse=True)],
        "iteration_means": [float(means.min()), float(means.max())] if len(means) else [],
        "metrics": {name: _statistics(values[~np.isnan(values)]) for name, values in columns.items()},
    }
    curves = {name: _metric_curve(made, values) for name, values in columns.items()}
    return History(numbers, _episode_curve(ended, returns), curves, is_packed=False)


def column(rows: list[dict], name: str, is_whole: bool = True) -> np.ndarray:
    """The values of a name in all rows; NaN where a row has none, if the column need not be whole."""
    values = np.array([row[name] if is_whole else row.get(name, 0) for row in rows], dtype=float)
    is_sane = np.abs(values) < LARGEST  # NaN is not
    if not is_sane.all():
        raise SpoError(f"{name} is {values[~is_sane][0]} in a row; only finite numbers are written")
    return values if is_whole else np.where([name in row for row in rows], values, np.nan)


def bin_of(steps: np.ndarray, total_steps: int) -> np.ndarray:
    """The bin of each step, which its upper edge belongs to. Whole numbers, so that bins of bins are exact."""
    return (np.clip(steps, 1, total_steps).astype(np.int64) * BINS - 1) // total_steps


def _return(rows: list[dict], episodes: list[dict], total_steps: int, share: float) -> dict[str, object]:
    found = summarize(rows, episodes, total_steps, share)
    return {"share": share, "mean": found["return"], "is_of_last_episodes": found["return_from_last_episodes"]}


def _statistics(values: np.ndarray) -> dict[str, float]:
    """Of all iterations. The mean is rounded once, so that it is the same on every processor."""
    mean = math.fsum(values) / len(values)
    low, middle, high = float(values.min()), float(np.median(values)), float(values.max())
    return {"min": low, "median": middle, "mean": mean, "max": high}


def _episode_curve(bins: np.ndarray, returns: np.ndarray) -> Curve:
    count = np.bincount(bins, minlength=BINS)
    mean = _divide(np.bincount(bins, returns, BINS), count)
    variance = _divide(np.bincount(bins, (returns - mean[bins]) ** 2, BINS), count)
    return {"count": count, "mean": mean, "std": np.sqrt(variance)}


def _metric_curve(bins: np.ndarray, values: np.ndarray) -> Curve:
    bins, values = bins[~np.isnan(values)], values[~np.isnan(values)]
    largest = np.full(BINS, -np.inf)
    np.maximum.at(largest, bins, values)
    mean = _divide(np.bincount(bins, values, BINS), np.bincount(bins, minlength=BINS))
    return {"mean": mean, "max": np.where(np.isnan(mean), np.nan, largest)}


# As files


def pack_history(history: History) -> dict[str, bytes]:
    """The two small files of a run."""
    curves = {
        "format": FORMAT,
        "episodes": {"count": history.episodes["count"].tolist()} | _round(history.episodes, ("mean", "std")),
        "metrics": {name: _round(curve, ("mean", "max")) for name, curve in history.metrics.items()},
    }
    # No time in the header, so that the same curves give the same bytes.
    return {SUMMARY: canonical_json(history.numbers), CURVES: gzip.compress(compact(curves), mtime=0)}


def _round(curve: Curve, names: Iterable[str]) -> dict[str, list[float | int | None]]:
    return {name: [_short(value) for value in curve[name].tolist()] for name in names}


def _short(value: float) -> float | int | None:
    """To four significant digits; nothing is None, and what is whole is written so."""
    if math.isnan(value):
        return None
    number = float(f"{value:.{DIGITS - 1}e}")
    return int(number) if number.is_integer() else number


def was_packed(directory: RunDirectory) -> bool:
    """Whether a run is a copy, with its rows or without, that no training goes on in."""
    return any(path.exists() for path in (directory.path / SUMMARY, packed_path(directory.metrics)))


def is_packed(directory: RunDirectory) -> bool:
    """Whether a run has the two small files, and no rows that say more."""
    return (directory.path / SUMMARY).exists() and not directory.has_rows()


def from_files(directory: RunDirectory) -> History:
    """What `packed` wrote, whoever wrote it; files that do not belong together are refused."""
    numbers, curves = read_json(directory.path / SUMMARY), _read_curves(directory)
    for name, content in ((SUMMARY, numbers), (CURVES, curves)):
        if content.get("format") != FORMAT:
            problem = f"{name} has format {content.get('format')}; accepted is {FORMAT}"
            raise SpoError(f"{problem}: another version packed this run")
    _check_numbers(numbers)
    episodes = {name: _array(curves["episodes"], name) for name in ("count", "mean", "std")}
    metrics = {name: {key: _array(own, key) for key in ("mean", "max")} for name, own in curves["metrics"].items()}
    count = episodes["count"]
    if not (count >= 0).all() or count.sum() != numbers["episodes"] or set(metrics) != set(numbers["metrics"]):
        raise SpoError(f"{CURVES} and {SUMMARY} are not of the same run")
    return History(numbers, episodes | {"count": count.astype(np.int64)}, metrics, is_packed=True)


def _read_curves(directory: RunDirectory) -> dict:
    path = directory.path / CURVES
    try:
        return dict(parse_json(unpack(path, LARGEST_TEXT)))
    except (OSError, EOFError, ValueError, TypeError, RecursionError) as error:
        raise SpoError(f"{path} cannot be read: {error}")


def _check_numbers(numbers: Mapping) -> None:
    """A summary that is read may hold anything; what uses it should not have to ask."""
    counts = [numbers[name] for name in ("iterations", "episodes", "env_steps")]
    values = [numbers["wall_time"], numbers["steps_per_second"], *numbers["iteration_means"]]
    values += [own[key] for own in numbers["metrics"].values() for key in ("min", "median", "mean", "max")]
    values += [own["share"] for own in numbers["returns"]]
    values += [own["mean"] for own in numbers["returns"] if own["mean"] is not None]
    is_sane = all(type(value) is int and 0 <= value < 2**53 for value in counts) and all(map(_is_number, values))
    is_sane &= all(type(own["is_of_last_episodes"]) is bool for own in numbers["returns"])
    if not is_sane or len(numbers["iteration_means"]) not in (0, 2):
        raise SpoError(f"{SUMMARY} does not hold the numbers of a run")


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST


def _array(curve: Mapping[str, Iterable], name: str) -> np.ndarray:
    values = curve[name]
    if len(values) != BINS or not all(value is None or _is_number(value) for value in values):
        raise SpoError(f"{CURVES} does not have a number or null in each of {BINS} bins")
    return np.array(values, dtype=float)
