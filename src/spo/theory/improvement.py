"""Claims about performance: the difference of two policies, its lower bounds, and which bound can be raised higher."""

from dataclasses import dataclass

import numpy as np

from spo.theory.bounds import (
    OldPolicy,
    best_of_kl,
    best_of_tv,
    evaluate,
    expected_advantage,
    kl_bound,
    kl_penalty,
    ratio_bound,
    ratio_deviation,
    ratio_penalty,
    tv,
    tv_bound,
    tv_penalty,
    tv_radius,
)
from spo.theory.findings import CLOSE, ROUNDING, Finding, at_least, at_most
from spo.theory.mdp import (
    MDP,
    Array,
    nearby_policies,
    performance,
    random_mdp,
    random_policy,
    visitation,
    worst_case_mdp,
)

BOUNDS = {"TV": (tv_bound, tv_penalty), "KL": (kl_bound, kl_penalty), "ratio": (ratio_bound, ratio_penalty)}


@dataclass(frozen=True)
class Case:
    """An MDP, its old policy, new policies from very near to far (K, S, A), and widths of trust regions."""

    mdp: MDP
    old: OldPolicy
    new: Array
    delta_kl: float
    epsilon: float

    @property
    def gain(self) -> Array:
        """η(π̃) − η(π)."""
        return performance(self.mdp, self.new) - performance(self.mdp, self.old.policy)


def random_case(random: np.random.Generator, states: int, actions: int, gamma: float) -> Case:
    mdp, policy = random_mdp(random, states, actions, gamma), random_policy(random, states, actions)
    new = nearby_policies(random, policy, np.logspace(-3, 0.5, 8))
    return Case(mdp, evaluate(mdp, policy), new, 10 ** random.uniform(-4, 0), random.uniform(0.05, 0.95))


def fork_case(
    gamma: float,
    chance: float = 0.5,
    shift: float = 2**-7,
    tilts: tuple[float, float] = (2**-26, 2**-26),
    size: float = 1.0,
) -> Case:
    mdp, old, new = worst_case_mdp(gamma, chance, shift, tilts, size)
    return Case(mdp, evaluate(mdp, old), new[None], delta_kl=2 * shift**2, epsilon=2 * shift)


def difference_error(case: Case) -> Array:
    """The two sides of Theorem 3.1 apart, relative to the largest difference that such advantages could make."""
    advantage = (expected_advantage(case.old, case.new) * visitation(case.mdp, case.new)).sum(-1)
    return np.abs(case.gain * (1 - case.mdp.gamma) - advantage) / np.abs(case.old.advantage).max()


def deviation_error(case: Case) -> Array:
    return np.abs(tv(case.old.policy, case.new) @ case.old.visitation - ratio_deviation(case.old, case.new) / 2)


def lower_bound(source: str, name: str, cases: list[Case]) -> Finding:
    """On random MDPs, which leave most of the penalty unused, and on worst cases, which need all of it."""
    claim = f"η(π̃) − η(π) ≥ the {name} bound"
    return at_least(-ROUNDING, source, claim, "least share of the penalty unused", unused(name, cases + forks(cases)))


def tightness(name: str, cases: list[Case]) -> Finding:
    """Not in the paper: with a smaller constant the bound would be false, because a fork uses the penalty up."""
    claim = f"the constant of the {name} bound cannot be smaller"
    return at_most(CLOSE, "ours", claim, "largest share unused, worst cases", map(abs, unused(name, forks(cases))))


def forks(cases: list[Case]) -> list[Case]:
    """A worst case for each case's γ, with advantages from 1/8 to 8 so that ξ is not always 1."""
    return [fork_case(case.mdp.gamma, size=2.0 ** (number % 7 - 3)) for number, case in enumerate(cases)]


def unused(name: str, cases: list[Case]) -> list[Array]:
    """The shares of the penalty that were not needed: 0 where the bound is met exactly, negative where broken."""
    bound, penalty = BOUNDS[name]
    return [(case.gain - bound(case.old, case.new)) / penalty(case.old, case.new) for case in cases]


def lead(case: Case) -> float:
    """How far the best TV bound lies above the best KL bound, relative to the former."""
    best_tv = tv_bound(case.old, best_of_tv(case.old, tv_radius(case.delta_kl)))
    best_kl = kl_bound(case.old, best_of_kl(case.old, case.delta_kl))
    return (best_tv - best_kl) / best_tv
