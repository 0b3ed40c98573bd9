"""What of the paper's effects a sweep shows again, by rule: the sign of SPO's difference to PPO, and nothing finer.

Returns at another length or with other seeds are other numbers, so a mean of ours near the paper's, or far from it,
says little; who wins, and whose ratios run away, is what the paper claims.
"""

from dataclasses import dataclass

import numpy as np

from spo.experiments.plan import Plan
from spo.experiments.results import Results
from spo.experiments.statistics import Interval, difference_of_means


@dataclass(frozen=True)
class Effect:
    """SPO's number minus PPO's, ours and the paper's."""

    ours: float | None  # None: runs are missing
    paper: float
    interval: Interval | None = None  # of ours, where it has one
    doubt: str = ""  # why the sign of ours is not sure

    @property
    def agrees(self) -> bool | None:
        """Whether both have the same sign; None if ours is not known."""
        return None if self.ours is None else bool(np.sign(self.ours) == np.sign(self.paper))


@dataclass(frozen=True)
class Comparison:
    """SPO and PPO, alike in everything but the objective, on one task."""

    task: str
    spo: str
    ppo: str
    gain: Effect  # in return
    deviation: Effect  # in maximum ratio deviation: a maximum over the seeds has no interval


def comparisons(results: Results) -> list[Comparison]:
    """All that the paper has numbers for, task by task."""
    return [
        _comparison(results, task, spo, ppo)
        for task in results.plan.tasks
        for spo, ppo in pairs(results.plan)
        if {spo, ppo} <= set(results.plan.paper.get(task, {}))
    ]


def pairs(plan: Plan) -> list[tuple[str, str]]:
    """The variants (SPO's, PPO's) that differ in nothing but the objective."""
    found = {name: dict(plan.settings) | dict(own) | {"label": None} for name, own in plan.variants.items()}
    by_objective = {
        objective: {name: own | {"objective": None} for name, own in found.items() if own.get("objective") == objective}
        for objective in ("spo", "ppo-clip")
    }
    spos, ppos = by_objective.values()
    return [(spo, ppo) for spo, own in spos.items() for ppo, other in ppos.items() if own == other]


def _comparison(results: Results, task: str, spo: str, ppo: str) -> Comparison:
    ours, others = results.entry(task, spo), results.entry(task, ppo)
    paper_gain, paper_deviation = (float(difference) for difference in np.subtract(ours.paper, others.paper))
    if not len(ours.returns) or not len(others.returns):
        return Comparison(task, spo, ppo, Effect(None, paper_gain), Effect(None, paper_deviation))
    deviation = Effect(ours.deviation - others.deviation, paper_deviation)
    return Comparison(task, spo, ppo, _gain(ours.returns, others.returns, paper_gain), deviation)


def _gain(returns: np.ndarray, others: np.ndarray, paper: float) -> Effect:
    if min(len(returns), len(others)) < 2:
        return Effect(float(returns.mean() - others.mean()), paper, doubt="one seed")
    interval = difference_of_means(returns, others)
    doubt = "not sure" if interval.low <= 0 <= interval.high else ""
    return Effect(float(interval.value), paper, interval, doubt)
