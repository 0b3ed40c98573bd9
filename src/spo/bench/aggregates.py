"""Scores of a sweep's variants over all its tasks, as in the paper's Figure 4."""

from dataclasses import dataclass

import numpy as np

from spo.bench import statistics
from spo.bench.results import Results
from spo.bench.statistics import Bounds, Interval
from spo.errors import Refusal


@dataclass(frozen=True)
class Aggregates:
    """What every variant comes to on the tasks that all of them have returns for."""

    tasks: tuple[str, ...]
    left_out: tuple[str, ...]  # sentences: variants and tasks that have no part in it, and why
    scores: dict[str, dict[str, Interval]]  # by variant: by statistic
    improvement: dict[str, Interval]  # by variant: how likely its run beats one of the variant that normalises


def aggregated(results: Results, seeds: str = "pooled") -> Aggregates:
    """Normalised scores over the tasks, with 95 % intervals from a stratified bootstrap."""
    plan, told = results.plan, []
    bounds = known_bounds(results, seeds, told)
    returns = {variant: results.scores(variant) for variant in plan.variants}
    told += [f"{plan.label(variant)}: no run has a return" for variant in returns if not returns[variant]]
    returns = {variant: scores for variant, scores in returns.items() if scores}
    tasks = [task for task in bounds if all(task in scores for scores in returns.values())]
    told += [f"{task}: not all variants have a return on it" for task in bounds if task not in tasks]
    if not tasks:
        return Aggregates((), tuple(told), {}, {})
    returns = {name: {task: scores[task] for task in tasks} for name, scores in returns.items()}
    improvement = {
        name: statistics.interval(statistics.probability_of_improvement, scores, returns[plan.normalizes])
        for name, scores in returns.items()
        if name != plan.normalizes
    }
    chosen = {task: bounds[task] for task in tasks}
    scores = {name: statistics.aggregates(statistics.normalized(own, chosen)) for name, own in returns.items()}
    return Aggregates(tuple(tasks), tuple(told), scores, improvement)


def known_bounds(results: Results, seeds: str, told: list[str]) -> dict[str, Bounds]:
    """The bounds of each task that has some; why others have none is told."""
    found = {}
    for task in results.plan.tasks:
        means = [run.history.iteration_means for run in results.finished(task, results.plan.normalizes)]
        try:
            found |= statistics.training_bounds({task: means}, seeds)
        except Refusal as refusal:
            told.append(str(refusal))
    return found


def fewest_seeds(results: Results, tasks: tuple[str, ...]) -> int:
    """The smallest number of returns that any variant has on any of the tasks."""
    counts = [len(results.entry(task, variant).returns) for task in tasks for variant in results.plan.variants]
    return int(np.min([count for count in counts if count]))
