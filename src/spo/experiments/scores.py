"""Scores of a sweep's variants over all its tasks, as in the paper's Figure 4: what is compared, and on which scale.

There is one rule for runs that failed or are missing. A run counts if it is finished and an episode ended in it. A
variant without any run that counts is left out. A task is left out, for all variants alike, if one of the others has
no run that counts on it, or if the returns of the variant that normalises have no range there. What is left out is
told, and never counts as 0.
"""

from dataclasses import dataclass

from spo.errors import SpoError
from spo.experiments import statistics
from spo.experiments.results import Results
from spo.experiments.statistics import EXTREMES, Bounds, Interval, Scores


@dataclass(frozen=True)
class Comparison:
    """The returns of the variants that are compared, on the tasks that all of them share."""

    tasks: tuple[str, ...]
    left_out: tuple[str, ...]  # sentences: variants and tasks that have no part in it, and why
    returns: dict[str, Scores]  # by variant: by task, each run's
    bounds: dict[str, dict[str, Bounds]]  # by task: pooled over the seeds, and per seed
    baseline: str  # the variant that normalises

    def scores(self, seeds: str = "pooled") -> dict[str, Scores]:
        """Normalised returns by variant and task."""
        return {variant: self.normalize(returns, seeds) for variant, returns in self.returns.items()}

    def normalize(self, returns: Scores, seeds: str = "pooled") -> Scores:
        """Returns by task, of any shape, on the scale of 0 and 1."""
        return statistics.normalize(returns, {task: self.bounds[task][seeds] for task in self.tasks})

    def improvement(self) -> dict[str, Interval]:
        """By variant: how likely a run of it beats one of the baseline."""
        better, base = statistics.probability_of_improvement, self.returns[self.baseline]
        others = [variant for variant in self.returns if variant != self.baseline]
        return {variant: statistics.interval(better, self.returns[variant], base) for variant in others}

    @property
    def seed_counts(self) -> list[int]:
        """How many runs each variant has on each task."""
        return [len(runs) for returns in self.returns.values() for runs in returns.values()]


def compare_variants(results: Results) -> Comparison:
    """What of a sweep can be compared; without any task there are no returns either."""
    plan = results.plan
    bounds, remarks = find_bounds(results)
    returns = {variant: results.scores(variant) for variant in plan.variants}
    remarks += [f"{plan.label(variant)}: no run has a return" for variant in returns if not returns[variant]]
    returns = {variant: own for variant, own in returns.items() if own}
    tasks = tuple(task for task in bounds if all(task in own for own in returns.values()))
    remarks += [f"{task}: not all variants have a return on it" for task in bounds if task not in tasks]
    shared = {variant: {task: own[task] for task in tasks} for variant, own in returns.items() if tasks}
    return Comparison(tasks, tuple(remarks), shared, bounds, plan.baseline)


def find_bounds(results: Results) -> tuple[dict[str, dict[str, Bounds]], list[str]]:
    """The bounds of each task that has both kinds, and for each other task why it has none."""
    found, remarks = {}, []
    for task in results.plan.tasks:
        means = [run.history.iteration_means for run in results.finished_runs(task, results.plan.baseline)]
        try:
            found[task] = {seeds: statistics.training_bounds(task, means, seeds) for seeds in EXTREMES}
        except SpoError as refusal:
            remarks.append(str(refusal))
    return found, remarks
