"""ε-alignment (Definition 5.1, with "convex" read as concave): smooth, concave, highest at r = 1 + sign(A)·ε."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spo.theory.improvement import Case
from spo.theory.mdp import Array

Values = Callable[[Array, float, float], Array]
"""An objective: f over an array of ratios, for one advantage and one ε."""
Slopes = Callable[[Array, float, float, float], Array]
"""df/dr of a family: over an array of ratios, for one advantage, one ε and one power."""
STEP = 1e-3
WIDE_STEP, HALVINGS = 1e-2, 45
"""Intervals of exact slopes, and how often they are halved: down to the distance of two neighbouring numbers."""
POWERS = (2.0, 64.0)


@dataclass(frozen=True)
class Misalignment:
    """What keeps f from being ε-aligned; all relative to |A|, all 0 for an aligned f."""

    jump: float
    """The largest jump of the slope: 0 if f is differentiable."""
    convexity: float
    """The largest second difference: not above 0 if f is concave."""
    shortfall: float
    """How far f at r = 1 + sign(A)·ε lies below its maximum."""

    @property
    def largest(self) -> float:
        return max(self.jump, self.convexity, self.shortfall)


def misalignment(f: Values, advantage: float, epsilon: float) -> Misalignment:
    """Measured over ratios up to 3 on a grid through the bound; a kink between its points shows at its neighbours."""
    bound = 1 + np.sign(advantage) * epsilon
    steps = np.arange(-int(bound / STEP), int((3 - bound) / STEP) + 1)
    y = f(bound + STEP * steps, advantage, epsilon) / abs(advantage)
    # One-sided slopes from three points each, exact for parabolas.
    right = (-3 * y[2:-2] + 4 * y[3:-1] - y[4:]) / (2 * STEP)
    left = (3 * y[2:-2] - 4 * y[1:-3] + y[:-4]) / (2 * STEP)
    return Misalignment(np.abs(right - left).max(), np.diff(y, 2).max(), (y - y[steps == 0]).max())


def slope_misalignment(slope: Slopes, advantage: float, epsilon: float, power: float) -> Misalignment:
    """The same from exact slopes: steep walls, whose finite differences say little, are judged without a step."""
    bound = 1 + np.sign(advantage) * epsilon
    ratios = np.unique(np.r_[np.arange(WIDE_STEP, 3, WIDE_STEP), 1 - epsilon, 1.0, 1 + epsilon])

    def f_slope(ratio: Array) -> Array:
        return slope(ratio, advantage, epsilon, power) / abs(advantage)

    at_bound = abs(f_slope(np.array([bound]))[0])
    return Misalignment(largest_jump(f_slope, ratios), np.diff(f_slope(ratios)).max(), at_bound)


def largest_jump(f_slope: Callable[[Array], Array], ratios: Array) -> float:
    """What is left of the slope's change when each interval is halved again and again towards the larger change."""
    left, right = ratios[:-1], ratios[1:]
    at_left, at_right = f_slope(left), f_slope(right)
    for _ in range(HALVINGS):
        middle = (left + right) / 2
        at_middle = f_slope(middle)
        is_left = np.abs(at_middle - at_left) > np.abs(at_right - at_middle)
        left, right = np.where(is_left, left, middle), np.where(is_left, middle, right)
        at_left, at_right = np.where(is_left, at_left, at_middle), np.where(is_left, at_middle, at_right)
    return float(np.abs(at_right - at_left).max())


def family_faults(slope: Slopes, cases: list[Case], random: np.random.Generator) -> list[float]:
    """For each case's ε, one advantage of random sign and size, and one power."""
    draws = [(random.choice([-1, 1]) * 10 ** random.uniform(-1, 1), random.uniform(*POWERS)) for _ in cases]
    return [slope_misalignment(slope, a, case.epsilon, power).largest for (a, power), case in zip(draws, cases)]


def alignments(f: Values, cases: list[Case], random: np.random.Generator) -> list[Misalignment]:
    """For each case's ε, one advantage of random sign and size."""
    advantages = [random.choice([-1, 1]) * 10 ** random.uniform(-1, 1) for _ in cases]
    return [misalignment(f, advantage, case.epsilon) for advantage, case in zip(advantages, cases)]
