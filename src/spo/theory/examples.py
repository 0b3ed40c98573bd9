"""The numbers behind the figure: one example of each claim."""

from dataclasses import dataclass

import numpy as np

from spo.theory.alignment import Values
from spo.theory.bounds import evaluate, kl, kl_bound, tv, tv_bound, tv_radius
from spo.theory.mdp import Array, performance, random_mdp, random_policy
from spo.theory.regions import drop_rarest, shift_mass

GAMMA = 0.5
"""Small, because the bounds fall with 1/(1 − γ)² and would leave the picture."""
EPSILON = 0.2
DELTA_KL = 0.08
SLICE = np.array([0.5, 0.35, 0.15])
"""The old policy of the pictures that show a single state."""


@dataclass(frozen=True)
class PolicyPath:
    """Performance and its two bounds, step by step along a path of policies."""

    step: Array
    gain: Array
    tv_bound: Array
    kl_bound: Array


@dataclass(frozen=True)
class Regions:
    """TV and KL over a grid of policies, and the radius of the region of each."""

    first: Array
    second: Array
    tv: Array
    kl: Array
    old: Array
    without: Array  # a policy without the rarest action
    delta_kl: float
    delta_tv: float


@dataclass(frozen=True)
class Growth:
    """KL and TV over the probability that is left to an action."""

    rest: Array
    kl: Array
    tv: Array


@dataclass(frozen=True)
class AlignedObjectives:
    """Objectives over the ratio, by name."""

    ratio: Array
    epsilon: float
    f: dict[str, Array]


@dataclass(frozen=True)
class TheoryExamples:
    """What the figure's four panels draw."""

    path: PolicyPath
    regions: Regions
    growth: Growth
    objectives: AlignedObjectives


def figure_data(states: int, actions: int, seed: int, objectives: dict[str, Values]) -> TheoryExamples:
    return TheoryExamples(path(states, actions, seed), regions(), growth(), objective_curves(objectives))


def path(states: int, actions: int, seed: int) -> PolicyPath:
    """Performance and its bounds along π̃ ∝ π·exp(t·A_π), with A_π scaled to at most 1."""
    random = np.random.default_rng(seed)
    mdp, policy = random_mdp(random, states, actions, GAMMA), random_policy(random, states, actions)
    old, steps = evaluate(mdp, policy), np.linspace(-1, 2, 301)
    new = policy * np.exp(steps[:, None, None] * old.advantage / np.abs(old.advantage).max())
    new /= new.sum(-1, keepdims=True)
    gain = performance(mdp, new) - performance(mdp, policy)
    return PolicyPath(steps, gain, tv_bound(old, new), kl_bound(old, new))


def regions(points: int = 201) -> Regions:
    """TV and KL of all policies over three actions, by their first two probabilities; nan beyond the simplex."""
    first, second = np.meshgrid(np.linspace(0, 1, points), np.linspace(0, 1, points))
    third = 1 - first - second
    new = np.stack([first, second, np.maximum(third, 0)], -1)
    is_policy = third > -1e-12
    return Regions(
        first=first,
        second=second,
        tv=np.where(is_policy, tv(SLICE, new), np.nan),
        kl=np.where(is_policy, kl(SLICE, new), np.nan),
        old=SLICE,
        without=drop_rarest(SLICE),
        delta_kl=DELTA_KL,
        delta_tv=tv_radius(DELTA_KL),
    )


def growth() -> Growth:
    """KL and TV while the first action keeps its ratio of 1 and the second loses its probability to the third."""
    rest = SLICE[1] * np.logspace(0, -60, 241)
    new = np.stack([shift_mass(SLICE, taken=0, ratio=1.0, lost=1, rest=value) for value in rest])
    return Growth(rest, kl(SLICE, new), tv(SLICE, new))


def objective_curves(objectives: dict[str, Values]) -> AlignedObjectives:
    """Each objective over the ratio, for A = 1."""
    ratio = np.linspace(0.6, 1.6, 401)
    return AlignedObjectives(ratio, EPSILON, {name: f(ratio, 1.0, EPSILON) for name, f in objectives.items()})
