"""Statistics of a sweep: rliable's values and intervals, known truths covered as often as promised, and symmetries."""

import math
import subprocess
import sys
from dataclasses import astuple
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spo.errors import SpoError
from spo.experiments.statistics import (
    AGGREGATES,
    RESAMPLES,
    Bounds,
    Interval,
    aggregates,
    curve,
    difference_of_means,
    interval,
    interval_of_mean,
    iqm,
    iteration_means,
    mean,
    median,
    normalize,
    optimality_gap,
    probability_of_improvement,
    profile,
    share_above,
    training_bounds,
)

THRESHOLDS = np.linspace(-1.5, 2.5, 9)
counts = st.integers(1, 13)
numbers = st.integers(0, 10**6)


def draw(seed: int, runs: int, tasks: int) -> np.ndarray:
    """(runs, tasks), rliable's shape. One decimal, so that ties occur; the tasks differ in height and spread."""
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(runs, tasks)) * np.linspace(0.3, 1, tasks) + np.linspace(0, 1, tasks)).round(1)


def rliable(part: str) -> ModuleType:
    """Import a part of it where it is used: it takes seconds, which collecting tests need not."""
    return import_module(f"rliable.{part}")


def by_task(array: np.ndarray) -> dict[str, np.ndarray]:
    return {f"task {number}": runs for number, runs in enumerate(array.swapaxes(0, 1))}


def ragged(seed: int, tasks: int = 4) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {f"task {number}": generator.normal(size=generator.integers(1, 9)).round(1) for number in range(tasks)}


# rliable


@given(numbers, counts, counts)
@settings(deadline=None)
def test_aggregates_equal_those_of_rliable(seed, runs, tasks):
    array = draw(seed, runs, tasks)
    for name, statistic in AGGREGATES.items():
        assert statistic(by_task(array)) == pytest.approx(
            getattr(rliable("metrics"), f"aggregate_{name}")(array), abs=1e-12
        ), name


@given(numbers, counts, counts, st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_the_probability_of_improvement_equals_that_of_rliable(seed, runs, other_runs, tasks):
    one, other = draw(seed, runs, tasks), draw(seed + 1, other_runs, tasks)
    ours = probability_of_improvement(by_task(one), by_task(other))
    assert ours == pytest.approx(rliable("metrics").probability_of_improvement(one, other), abs=1e-12)


@given(numbers, counts, counts)
def test_the_profile_equals_that_of_rliable(seed, runs, tasks):
    array = draw(seed, runs, tasks)
    np.testing.assert_allclose(
        share_above(by_task(array), THRESHOLDS), rliable("library").score_distributions(array, THRESHOLDS), atol=1e-12
    )


@pytest.mark.parametrize("level", [0.9, 0.95, 0.999])
@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (2, 10), (40, 5)], ids=str)
def test_the_interval_of_a_difference_is_that_of_scipy(sizes, level):
    sample, other = (np.random.default_rng(size).normal(size, 1 + size, size) for size in sizes)
    ours = difference_of_means(sample, other, level)
    theirs = import_module("scipy.stats").ttest_ind(sample, other, equal_var=False).confidence_interval(level)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), rel=1e-5)
    assert (ours.low + ours.high) / 2 == pytest.approx(ours.value) == pytest.approx(sample.mean() - other.mean())


@pytest.mark.parametrize("runs", [2, 3, 10])
def test_the_interval_of_a_mean_is_that_of_scipy(runs):
    sample = np.random.default_rng(runs).normal(5, 2, runs)
    ours, theirs = interval_of_mean(sample), import_module("scipy.stats").ttest_1samp(sample, 0).confidence_interval()
    assert (ours.low, ours.value, ours.high) == pytest.approx((theirs.low, sample.mean(), theirs.high), rel=1e-5)


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_equal_algorithms_are_seldom_called_different(seeds):
    """Of 1,000 pairs of the same algorithm at most 5 %, and what three standard errors allow beyond that."""
    draws = np.random.default_rng(0).normal(size=(1000, 2, seeds))
    intervals = [difference_of_means(*pair) for pair in draws]
    assert np.mean([not found.low < 0 < found.high for found in intervals]) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)


def test_samples_that_do_not_vary_differ_by_just_that():
    assert difference_of_means(np.array([3.0, 3.0]), np.array([1.0, 1.0, 1.0])) == Interval(2.0, 2.0, 2.0)


def rliable_interval(data, function, resamples: int) -> np.ndarray:
    """Lower ends, upper ends. rliable draws from NumPy's global generator, whatever `random_state` says."""
    np.random.seed(1)
    _, intervals = rliable("library").get_interval_estimates(
        {"scores": data}, lambda *scores: np.atleast_1d(function(*scores)), reps=resamples
    )
    return intervals["scores"]


def end_error(ours, resamples: int) -> np.ndarray:
    """Five standard errors of the difference between an end of ours and one of rliable.

    An end is the 2.5 % quantile of B draws of spread σ: its error is √(0.025·0.975/B)·σ/φ(1.96), and a 95 % interval
    is 3.92 σ wide.
    """
    density = math.exp(-(1.96**2) / 2) / math.sqrt(2 * math.pi)
    share = math.sqrt(0.025 * 0.975 * (1 / resamples + 1 / RESAMPLES)) / density / 3.92
    return 5 * share * (ours.high - ours.low)


@pytest.mark.parametrize("name", AGGREGATES)
def test_intervals_agree_with_rliable(name):
    array = draw(3, 10, 6)
    ours = interval(AGGREGATES[name], by_task(array))
    (low,), (high,) = rliable_interval(array, getattr(rliable("metrics"), f"aggregate_{name}"), 3000)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=end_error(ours, 3000))


def test_the_interval_of_improvement_agrees_with_rliable():
    one, other = draw(4, 8, 3), draw(5, 12, 3)
    ours = interval(probability_of_improvement, by_task(one), by_task(other))
    (low,), (high,) = rliable_interval((one, other), rliable("metrics").probability_of_improvement, 1000)
    assert (ours.low, ours.high) == pytest.approx((low, high), abs=end_error(ours, 1000))


def test_the_band_of_the_profile_agrees_with_rliable():
    array = draw(6, 10, 6)
    ours = profile(by_task(array), THRESHOLDS, resamples=RESAMPLES)
    low, high = rliable_interval(array, lambda scores: rliable("library").score_distributions(scores, THRESHOLDS), 2000)
    step = 1 / array.size  # shares are multiples of it, and so are the ends: chance may move one by a whole step
    assert (np.abs(ours.low - low) <= end_error(ours, 2000) + step).all()
    assert (np.abs(ours.high - high) <= end_error(ours, 2000) + step).all()


def test_the_band_of_a_curve_agrees_with_rliable():
    array = np.stack([draw(7, 10, 4), 2 * draw(8, 10, 4) + 1, draw(9, 10, 4) - 3], axis=-1)
    ours = curve(iqm, by_task(array), resamples=RESAMPLES)

    def iqms(scores):
        return np.array([rliable("metrics").aggregate_iqm(scores[..., point]) for point in range(3)])

    np.testing.assert_allclose(ours.value, iqms(array), atol=1e-12)
    low, high = rliable_interval(array, iqms, 2000)
    assert (np.abs(ours.low - low) <= end_error(ours, 2000)).all()
    assert (np.abs(ours.high - high) <= end_error(ours, 2000)).all()


# Coverage

REPETITIONS = 800


def coverage(statistic, truth: float, sample) -> float:
    """How often the interval holds the truth. `sample` draws the scores of one or of two algorithms."""
    generator = np.random.default_rng(11)
    intervals = [interval(statistic, *sample(generator), resamples=500, seed=n) for n in range(REPETITIONS)]
    return np.mean([found.low <= truth <= found.high for found in intervals])


def is_as_promised(share: float) -> bool:
    """95 % within four binomial standard errors of 0.77 %: 91.9 % to 98.1 %. Intervals of 90 % or 99 % would fail."""
    return abs(share - 0.95) < 4 * math.sqrt(0.95 * 0.05 / REPETITIONS)


def test_intervals_of_the_mean_cover_it():
    """Tasks far apart: an interval that redraws over all tasks instead of within each would always cover."""
    spreads = {0.0: 1, 10.0: 2, 50.0: 3}
    share = coverage(mean, 20.0, lambda generator: [{str(h): generator.normal(h, spreads[h], 30) for h in spreads}])
    assert is_as_promised(share), share


def test_intervals_of_the_iqm_cover_it():
    """Exponential scores, skewed: between the quartiles their mean is 1 + 1.5·log(4/3) − 0.5·log 4 = 0.738, not 1."""
    truth = 1 + 1.5 * math.log(4 / 3) - 0.5 * math.log(4)
    share = coverage(iqm, truth, lambda generator: [{task: generator.exponential(size=30) for task in "abcd"}])
    assert is_as_promised(share), share


def test_intervals_of_improvement_cover_it():
    """x ~ N(0.5, 1) beats y ~ N(0, 1) with probability Φ(0.5/√2)."""
    truth = (1 + math.erf(0.5 / 2)) / 2

    def sample(generator):
        return [{task: generator.normal(height, 1, 25) for task in "ab"} for height in (0.5, 0)]

    share = coverage(probability_of_improvement, truth, sample)
    assert is_as_promised(share), share


# Symmetries, on tasks with different numbers of runs


@given(numbers, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_order_of_tasks_and_runs_does_not_matter(seed, random):
    scores = ragged(seed)
    tasks = random.sample(list(scores), len(scores))
    shuffled = {task: np.array(random.sample(list(scores[task]), len(scores[task]))) for task in tasks}
    found, again = aggregates(scores, resamples=50), aggregates(shuffled, resamples=50)
    for name in AGGREGATES:
        assert astuple(again[name]) == pytest.approx(astuple(found[name]), abs=1e-12), name
    other = ragged(seed + 1)
    assert probability_of_improvement(shuffled, other) == pytest.approx(probability_of_improvement(scores, other))
    np.testing.assert_allclose(share_above(shuffled, THRESHOLDS), share_above(scores, THRESHOLDS), atol=1e-12)


@given(numbers, st.floats(0.01, 100), st.floats(-100, 100))
@settings(deadline=None)
def test_scaled_and_shifted_scores_give_scaled_and_shifted_intervals(seed, scale, shift):
    scores, others = ragged(seed), ragged(seed + 1)
    moved, others_moved = ({task: scale * runs + shift for task, runs in one.items()} for one in (scores, others))
    for statistic in (mean, median, iqm):
        expected = [scale * end + shift for end in astuple(interval(statistic, scores, resamples=50))]
        assert astuple(interval(statistic, moved, resamples=50)) == pytest.approx(expected, abs=1e-9)
    assert probability_of_improvement(moved, others_moved) == probability_of_improvement(scores, others)


@given(numbers)
def test_one_beats_the_other_or_is_beaten(seed):
    one, other = ragged(seed), ragged(seed + 1)
    assert probability_of_improvement(one, other) + probability_of_improvement(other, one) == pytest.approx(1)
    higher = {task: runs + 100 for task, runs in other.items()}
    assert probability_of_improvement(higher, one) == 1


@given(numbers)
def test_profiles_fall_from_one_to_zero(seed):
    band = profile(ragged(seed), [-100, *THRESHOLDS, 100], resamples=50)
    for line in astuple(band):
        assert line[0] == 1 and line[-1] == 0 and (np.diff(line) <= 1e-12).all()
    assert (band.low <= band.high).all()


@given(numbers)
def test_the_same_seed_gives_the_same_interval(seed):
    scores = {task: np.random.default_rng(seed).normal(size=20) for task in "ab"}
    found = astuple(interval(iqm, scores, resamples=50, seed=seed))
    assert astuple(interval(iqm, scores, resamples=50, seed=seed)) == found
    assert astuple(interval(iqm, scores, resamples=50, seed=seed + 1)) != found


# Small cases by hand


def test_tasks_with_different_numbers_of_runs():
    scores = {"a": np.array([0.0, 1.0, 2.0, 3.0, 9.0]), "b": np.array([0.5]), "c": np.array([7.0, 9.0])}
    assert mean(scores) == pytest.approx((3 + 0.5 + 8) / 3)
    assert median(scores) == 3
    assert iqm(scores) == pytest.approx((1 + 2 + 3 + 7) / 4)  # of 0 0.5 | 1 2 3 7 | 9 9
    assert optimality_gap(scores) == pytest.approx((1 + 0.5) / 8)
    assert share_above(scores, [0.5, 3.0]).tolist() == [6 / 8, 3 / 8]
    other = {"c": np.array([7.0]), "b": np.array([0.5, 0.4]), "a": np.array([2.0])}
    assert probability_of_improvement(scores, other) == pytest.approx((2.5 / 5 + 1.5 / 2 + 1.5 / 2) / 3)


def test_a_task_with_one_run_adds_no_width():
    found = aggregates({"a": np.array([0.25]), "b": np.array([0.75])})
    assert {name: astuple(one) for name, one in found.items()} == {
        "median": (0.5, 0.5, 0.5),
        "iqm": (0.5, 0.5, 0.5),
        "mean": (0.5, 0.5, 0.5),
        "optimality_gap": (0.5, 0.5, 0.5),
    }


def test_a_curve_is_the_statistic_at_each_point():
    curves = {"a": np.random.default_rng(1).normal(size=(5, 4)), "b": np.random.default_rng(2).normal(size=(3, 4))}
    band = curve(mean, curves)
    for point in range(4):
        at = interval(mean, {task: runs[:, point] for task, runs in curves.items()}, resamples=2000)
        assert (band.value[point], band.low[point], band.high[point]) == astuple(at)


def test_the_mean_of_the_episodes_of_each_iteration():
    """Batches of 8 steps: an episode that ends at step 8 belongs to the first; none ends in the third."""
    ends = [(4, 1.0), (8, 3.0), (9, 10.0), (32, 5.0), (25, 6.0)]
    rows = [{"env": 0, "return": value, "length": 4, "env_steps": step} for step, value in ends]
    assert iteration_means(rows, 8).tolist() == [2.0, 10.0, 5.5]
    assert iteration_means([], 8).tolist() == []


TRAINING = {"Ant": [[0.0, 5.0, 3.0], [-1.0, 9.0], []], "Hopper": [[2.0], [4.0]]}


def all_bounds() -> dict[str, Bounds]:
    return {task: training_bounds(task, runs) for task, runs in TRAINING.items()}


def test_bounds_of_training():
    assert all_bounds() == {"Ant": Bounds(-1.0, 9.0), "Hopper": Bounds(2.0, 4.0)}
    assert training_bounds("Ant", TRAINING["Ant"], "per-seed") == Bounds(-0.5, 7.0)


def test_normalised_scores():
    scores = normalize({"Ant": np.array([-1.0, 4.0, 9.0]), "Hopper": [5.0]}, all_bounds())
    assert {task: runs.tolist() for task, runs in scores.items()} == {"Ant": [0.0, 0.5, 1.0], "Hopper": [1.5]}


# Refusals


@pytest.mark.parametrize(
    "refused, message",
    [
        (
            lambda: training_bounds("Ant", TRAINING["Ant"], "median"),
            "seeds 'median' is unknown; accepted: pooled, per-seed",
        ),
        (
            lambda: training_bounds("Hopper", TRAINING["Hopper"], "per-seed"),
            "Hopper: PPO-Clip's returns range from 3.0 to 3.0",
        ),
        (lambda: training_bounds("Ant", [[1.0, 1.0]]), "Ant: PPO-Clip's returns range from 1.0 to 1.0"),
        (lambda: training_bounds("Ant", [[1.0, math.nan], [2.0]]), "Ant: .* range from nan to nan"),
        (lambda: training_bounds("Ant", [[], []]), "Ant: no finished run of PPO-Clip ended an episode"),
        (
            lambda: normalize({"Walker": [1.0]}, all_bounds()),
            "Walker: there are no bounds; .*: Ant, Hopper",
        ),
        (lambda: interval(iqm, {}), "there are no scores"),
        (lambda: interval(iqm, {"Ant": np.ones(3), "Hopper": np.array([])}), "Hopper: there are no scores; one run"),
        (lambda: iqm({"Ant": np.array([1.0, math.nan])}), "Ant: a score is nan"),
        (lambda: interval(mean, {"Ant": np.array([1.0, math.inf])}), "Ant: a score is inf"),
        (lambda: profile({"Ant": np.array([1.0, math.nan])}, [0.5]), "Ant: a score is nan"),
        (lambda: interval(mean, {"Ant": np.ones((3, 2))}), r"Ant: scores have the shape \(3, 2\)"),
        (
            lambda: probability_of_improvement({"a": [1.0]}, {"b": [1.0]}),
            "a: there are no scores of the other algorithm",
        ),
        (lambda: probability_of_improvement({"a": [1.0]}, {"a": [1.0], "b": [1.0]}), "b: .* of the first algorithm"),
        (lambda: probability_of_improvement({"a": [1.0]}, {"a": [math.nan]}), "a: a score is nan"),
        (lambda: curve(mean, {"a": np.ones((2, 3)), "b": np.ones((2, 4))}), r"shapes .*\(2, 3\).*\(2, 4\)"),
        (lambda: curve(mean, {"a": np.ones(3)}), r"shapes .*\(3,\)"),
        (lambda: curve(mean, {}), "shapes"),
    ],
)
def test_what_is_refused(refused, message):
    with pytest.raises(SpoError, match=message):
        refused()


def test_numpy_is_all_it_takes():
    code = "import sys, spo.experiments.statistics; print(*{'torch', 'scipy', 'pandas', 'rliable'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
