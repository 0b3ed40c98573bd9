"""How a claim is told: one worst number over many instances, and whether it is within its limit."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from spo.theory.mdp import Array

ROUNDING = 1e-9
"""What double precision may cost; every number is relative to the size of what it measures."""
CLOSE = 1e-3
"""How closely an instance comes to a limit that it only reaches in the end."""


@dataclass(frozen=True)
class Finding:
    """A claim, where the paper makes it, what was measured, and the worst over all instances."""

    source: str
    claim: str
    measure: str
    instances: int
    worst: float
    holds: bool


def at_most(limit: float, source: str, claim: str, measure: str, numbers: Iterable[Array | float]) -> Finding:
    numbers = np.hstack([*numbers])
    return Finding(source, claim, measure, numbers.size, float(numbers.max()), bool(numbers.max() <= limit))


def at_least(limit: float, source: str, claim: str, measure: str, numbers: Iterable[Array | float]) -> Finding:
    numbers = np.hstack([*numbers])
    return Finding(source, claim, measure, numbers.size, float(numbers.min()), bool(numbers.min() >= limit))
