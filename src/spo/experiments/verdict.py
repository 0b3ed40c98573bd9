"""Which rule for the width the study `width` recommends, by a criterion that was written before its runs were made.

A rule is a variant without its depth: `spo-wide` is run as `spo-wide-3` and `spo-wide-7`. It is recommended if at
both depths the 95 % interval of its lead over the better of PPO and SPO lies above −0.05, and its runs are at least as
likely as not to beat PPO's, and SPO's.
"""

from dataclasses import dataclass

import numpy as np

from spo.experiments import statistics
from spo.experiments.plan import Plan, read_suite
from spo.experiments.results import Results
from spo.experiments.scores import find_bounds
from spo.experiments.statistics import Interval, Scores

SUITE, BASES, DEPTHS = "width", ("ppo", "spo"), ("3", "7")
MARGIN = 0.05
"""Of a normalised score: what a rule may lose against the better of PPO and SPO."""


@dataclass(frozen=True)
class Standing:
    """A rule beside PPO and SPO at one depth, over the tasks on which all three have returns."""

    lead: Interval
    better: dict[str, Interval]  # by base: how likely the rule's run beats one of it
    tasks: int
    seeds: int  # the fewest of the three on any of the tasks

    @property
    def passes(self) -> bool:
        return bool(self.lead.low > -MARGIN and all(chance.value >= 0.5 for chance in self.better.values()))


@dataclass(frozen=True)
class Verdict:
    """What the study says about a rule."""

    standings: dict[str, Standing]  # by depth; empty where runs are missing
    doubt: str  # why nothing can be said yet

    @property
    def is_recommended(self) -> bool | None:
        """None: there are too few runs to say."""
        return None if self.doubt else all(standing.passes for standing in self.standings.values())

    @property
    def words(self) -> str:
        words = {True: "recommended", False: "not recommended", None: f"undecided: {self.doubt}"}
        return words[self.is_recommended]

    @property
    def least(self) -> float:
        """The lower end of the interval at the depth where that is lower."""
        return min((float(standing.lead.low) for standing in self.standings.values()), default=-np.inf)


def verdicts(results: Results) -> dict[str, Verdict]:
    """By rule, the best first."""
    bounds = {task: kinds["pooled"] for task, kinds in find_bounds(results)[0].items()}
    scores = {
        name: statistics.normalize({task: own for task, own in results.scores(name).items() if task in bounds}, bounds)
        for name in results.plan.variants
    }
    found = {rule: _verdict(results.plan, rule, scores) for rule in rules_of(results.plan)}
    return dict(sorted(found.items(), key=lambda item: -item[1].least))


def rules_of(plan: Plan) -> list[str]:
    rules = dict.fromkeys(name.rpartition("-")[0] for name in plan.variants)
    return [rule for rule in rules if rule not in BASES]


def _verdict(plan: Plan, rule: str, scores: dict[str, Scores]) -> Verdict:
    found = {depth: _standing(rule, depth, scores) for depth in DEPTHS}
    standings = {depth: standing for depth, standing in found.items() if standing}
    return Verdict(standings, _doubt(plan, standings))


def _standing(rule: str, depth: str, scores: dict[str, Scores]) -> Standing | None:
    own, *bases = (scores.get(f"{name}-{depth}", {}) for name in (rule, *BASES))
    tasks = [task for task in own if all(task in base for base in bases)]
    if not tasks:
        return None
    own, *bases = ({task: each[task] for task in tasks} for each in (own, *bases))
    better = {
        name: statistics.interval(statistics.probability_of_improvement, own, base) for name, base in zip(BASES, bases)
    }
    seeds = min(len(each[task]) for each in (own, *bases) for task in tasks)
    return Standing(statistics.interval(lead, own, *bases), better, len(tasks), seeds)


def lead(scores: Scores, *others: Scores) -> np.ndarray:
    """The IQM minus the highest of the others'; in each resample it may be another that is the highest."""
    return statistics.iqm(scores) - np.maximum.reduce([statistics.iqm(other) for other in others])


def _doubt(plan: Plan, standings: dict[str, Standing]) -> str:
    """The study as it was planned, or no verdict."""
    full = read_suite(SUITE)
    if len(standings) < len(DEPTHS) or any(standing.tasks < len(full.tasks) for standing in standings.values()):
        return "runs are missing"
    if plan.steps < full.steps:
        return f"{plan.steps:,} of {full.steps:,} steps"
    seeds = min(standing.seeds for standing in standings.values())
    return f"{seeds} of {full.seeds} seeds" if seeds < full.seeds else ""


def conclusion(found: dict[str, Verdict]) -> str:
    """One sentence over all rules."""
    chosen = [rule for rule, verdict in found.items() if verdict.is_recommended]
    if chosen:
        return f"recommended: {chosen[0]}" + (f" (also passed: {', '.join(chosen[1:])})" if chosen[1:] else "")
    doubts = dict.fromkeys(verdict.doubt for verdict in found.values() if verdict.doubt)
    return f"undecided: {', '.join(doubts)}" if doubts else "no rule is recommended"
