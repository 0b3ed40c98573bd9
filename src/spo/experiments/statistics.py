"""The statistics of a sweep, as Agarwal et al. (2021) propose and the paper's Figure 4 reports. NumPy alone.

Scores of an algorithm are a dict of task → scores of its runs; tasks may have different numbers of runs, because runs
fail. A statistic reduces the last axis (the runs) and carries the others along, so the same few lines serve the scores
themselves and all their resamples at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from spo.errors import SpoError

Scores = Mapping[str, np.ndarray]
Statistic = Callable[..., np.ndarray]

RESAMPLES = 10_000
"""From one seed to the next an end of an interval then moves by less than 1 % of its width, at a few hundredths of a
second for 10 seeds of 6 tasks."""
BAND_RESAMPLES = 2_000
"""Bands are drawn, not read off, and have a hundred points: 1.5 % of their width will do."""
TAILS = (0.025, 0.975)
"""What a 95 % interval leaves out below and above."""
EXTREMES = {"pooled": (np.min, np.max), "per-seed": (np.mean, np.mean)}
"""How the lowest and highest return of each seed become the bounds of a task."""


@dataclass(frozen=True)
class Interval:
    """A statistic and its 95 % interval: numbers, or arrays of one length for a band."""

    value: float | np.ndarray
    low: float | np.ndarray
    high: float | np.ndarray


@dataclass(frozen=True)
class Bounds:
    """The returns that count as 0 and as 1 on a task."""

    low: float
    high: float


# Normalising by PPO-Clip


def iteration_means(episodes: Iterable[Mapping], batch_size: int) -> np.ndarray:
    """Mean return of the episodes that ended in each iteration; iterations in which none ended are left out."""
    rows = list(episodes)
    # An episode that ends with the last step of a batch still belongs to it, hence the − 1.
    iteration = (np.array([row["env_steps"] for row in rows], dtype=np.int64) - 1) // batch_size
    _, index = np.unique(iteration, return_inverse=True)
    return np.bincount(index, [row["return"] for row in rows]) / np.bincount(index)


def training_bounds(task: str, runs: Sequence[Sequence[float]], seeds: str = "pooled") -> Bounds:
    """Bounds of a task from PPO-Clip's iteration means, one list per seed.

    `pooled` takes the lowest and highest of all seeds, `per-seed` each seed's own, averaged over the seeds.
    """
    if seeds not in EXTREMES:
        raise SpoError(f"seeds {seeds!r} is unknown; accepted: {', '.join(EXTREMES)}")
    runs = [run for run in runs if len(run)]
    if not runs:
        raise SpoError(
            f"{task}: no finished run of PPO-Clip ended an episode in training; its returns are needed to normalise by"
        )
    lowest, highest = EXTREMES[seeds]
    low, high = lowest([np.min(run) for run in runs]), highest([np.max(run) for run in runs])
    if not 0 < high - low < np.inf:  # NaN fails this too
        raise SpoError(f"{task}: PPO-Clip's returns range from {low} to {high}; accepted: two finite ends that differ")
    return Bounds(low, high)


def normalize(scores: Scores, bounds: Mapping[str, Bounds]) -> dict[str, np.ndarray]:
    """(score − low)/(high − low) on each task."""
    _check_tasks(scores, bounds, "bounds")
    width = {task: bound.high - bound.low for task, bound in bounds.items()}
    return {task: (np.asarray(runs) - bounds[task].low) / width[task] for task, runs in scores.items()}


# Statistics


def mean(scores: Scores) -> np.ndarray:
    """Mean over the tasks of the mean over a task's runs."""
    return _task_means(scores).mean(0)


def median(scores: Scores) -> np.ndarray:
    """Median over the tasks of the mean over a task's runs."""
    return np.median(_task_means(scores), axis=0)


def iqm(scores: Scores) -> np.ndarray:
    """Interquartile mean: all runs of all tasks in one row, a quarter cut off at each end (rounded down)."""
    runs = np.sort(_pool(scores), axis=-1)
    cut = runs.shape[-1] // 4
    return runs[..., cut : runs.shape[-1] - cut].mean(-1)


def optimality_gap(scores: Scores) -> np.ndarray:
    """How far the runs fall short of a score of 1, in the mean over all of them; what exceeds 1 does not make up."""
    return 1 - np.minimum(_pool(scores), 1).mean(-1)


AGGREGATES = {"median": median, "iqm": iqm, "mean": mean, "optimality_gap": optimality_gap}


def probability_of_improvement(scores: Scores, others: Scores) -> np.ndarray:
    """How likely a run beats one of the other algorithm, a tie counting half, in the mean over the tasks."""
    _check_tasks(scores, others, "scores of the other algorithm")
    _check_tasks(others, scores, "scores of the first algorithm")
    others = dict(zip(others, _check_scores(others)))
    return np.mean([_wins(runs, others[task]) for task, runs in zip(scores, _check_scores(scores))], axis=0)


def share_above(scores: Scores, thresholds: Sequence[float]) -> np.ndarray:
    """Share of all runs with a score above each threshold."""
    runs = _pool(scores)
    # One threshold after the other: all at once would need as many copies of the resamples.
    return np.stack([(runs > threshold).mean(-1) for threshold in thresholds], axis=-1)


def _wins(runs: np.ndarray, others: np.ndarray) -> np.ndarray:
    one, other = runs[..., :, None], others[..., None, :]
    return ((one > other).mean((-2, -1)) + (one >= other).mean((-2, -1))) / 2


def _task_means(scores: Scores) -> np.ndarray:
    return np.stack([runs.mean(-1) for runs in _check_scores(scores)])


def _pool(scores: Scores) -> np.ndarray:
    return np.concatenate(_check_scores(scores), axis=-1)


# Intervals


def interval(statistic: Statistic, *samples: Scores, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The statistic with its 95 % percentile interval from a stratified bootstrap: runs are redrawn within each task.

    Several samples (as for `probability_of_improvement`) are redrawn independently. With fewer than about ten runs of
    each task such an interval is too narrow.
    """
    value = statistic(*samples)
    generator = np.random.default_rng(seed)
    draws = statistic(*(_resample(scores, resamples, generator) for scores in samples))
    return Interval(value, *np.quantile(draws, TAILS, axis=0))


def difference_of_means(sample: np.ndarray, other: np.ndarray, level: float = 0.95) -> Interval:
    """The difference of two means with Welch's interval, which holds for normal samples of any size from two on.

    A bootstrap of so few runs is too narrow: of two equal algorithms with three seeds each it would call a fifth of
    the differences more than chance.
    """
    variances = [np.var(runs, ddof=1) / len(runs) for runs in (sample, other)]
    value, total = float(np.mean(sample) - np.mean(other)), sum(variances)
    if not total:
        return Interval(value, value, value)
    shares = np.array(variances) / total
    freedom = 1 / sum(share**2 / (len(runs) - 1) for share, runs in zip(shares, (sample, other)))
    half = student_quantile((1 + level) / 2, freedom) * np.sqrt(total)
    return Interval(value, float(value - half), float(value + half))


def interval_of_mean(sample: np.ndarray, level: float = 0.95) -> Interval:
    """The mean with Student's interval, which holds for normal samples of any size from two on."""
    value = float(np.mean(sample))
    half = student_quantile((1 + level) / 2, len(sample) - 1) * np.std(sample, ddof=1) / np.sqrt(len(sample))
    return Interval(value, float(value - half), float(value + half))


def student_quantile(chance: float, freedom: float) -> float:
    """Of Student's t, for a chance from ½ to 1: t is √freedom · tan(angle), the angle's density a cosine's power."""
    edges = np.linspace(0, np.pi / 2, 200_001)
    mass = np.cumsum(np.cos((edges[1:] + edges[:-1]) / 2) ** (freedom - 1))
    angle = np.interp(2 * chance - 1, np.append(0, mass / mass[-1]), edges)
    return float(np.sqrt(freedom) * np.tan(angle))


def aggregates(scores: Scores, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Interval]:
    """Median, IQM, mean and optimality gap, as in the paper's Figure 4."""
    return {name: interval(f, scores, resamples=resamples, seed=seed) for name, f in AGGREGATES.items()}


def profile(scores: Scores, thresholds: Sequence[float], resamples: int = BAND_RESAMPLES, seed: int = 0) -> Interval:
    """Performance profile: the share of runs above each threshold, with a pointwise band."""
    return interval(partial(share_above, thresholds=thresholds), scores, resamples=resamples, seed=seed)


def curve(statistic: Statistic, curves: Scores, resamples: int = BAND_RESAMPLES, seed: int = 0) -> Interval:
    """The statistic along training, with a pointwise band, from curves of (runs, points) on each task."""
    shapes = {task: np.shape(runs) for task, runs in curves.items()}
    if len({shape[1:] for shape in shapes.values()}) != 1 or any(len(shape) != 2 for shape in shapes.values()):
        raise SpoError(f"the curves have shapes {shapes}; accepted: (runs, points), with as many points on every task")
    columns = {task: np.transpose(runs) for task, runs in curves.items()}
    points = [dict(zip(columns, runs)) for runs in zip(*columns.values())]
    intervals = [interval(statistic, scores, resamples=resamples, seed=seed) for scores in points]
    return Interval(*(np.array([getattr(at, name) for at in intervals]) for name in ("value", "low", "high")))


def _resample(scores: Scores, resamples: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """Task → (resamples, runs). Tasks and runs are put in order first: the interval must not depend on theirs."""
    for task, runs in scores.items():
        if np.ndim(runs) != 1:
            raise SpoError(f"{task}: scores have the shape {np.shape(runs)}; accepted: one number for each run")
    ordered = {task: np.sort(scores[task]) for task in sorted(scores)}
    return {task: runs[generator.integers(len(runs), size=(resamples, len(runs)))] for task, runs in ordered.items()}


# Checks


def _check_scores(scores: Scores) -> list[np.ndarray]:
    """The tasks' arrays. A NaN must not pass: sorting would count it among the best, comparing among the worst."""
    if not scores:
        raise SpoError("there are no scores; those of one task at least are needed")
    arrays = {task: np.asarray(runs, dtype=np.float64) for task, runs in scores.items()}
    for task, runs in arrays.items():
        if not runs.shape[-1]:
            raise SpoError(f"{task}: there are no scores; one run at least is needed")
        if not np.isfinite(runs).all():
            raise SpoError(f"{task}: a score is {runs[~np.isfinite(runs)][0]}; scores are finite numbers")
    return list(arrays.values())


def _check_tasks(scores: Mapping, others: Mapping, what: str) -> None:
    missing = [task for task in scores if task not in others]
    if missing:
        raise SpoError(f"{missing[0]}: there are no {what}; these exist for: {', '.join(others) or 'no task'}")
