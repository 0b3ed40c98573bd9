"""Which cases of a test make test runs; make test-rest runs the others."""

from collections.abc import Iterable

import pytest

FORMULAS = ("ppo-rb", "tr-ppo", "tr-ppo-rb", "simple", "ppo-dual-clip", "aspo", "clip-higher", "spo-power", "truly-ppo")
"""Objectives that share all but their formula, which has tests of its own, with another that stands for them."""


def leave_rest(cases: Iterable[str], *kept: str) -> list:
    """Mark all cases but those named, which are as unlike as can be, as the rest's."""
    cases = list(cases)
    assert set(kept) <= set(cases)
    return [case if case in kept else pytest.param(case, marks=pytest.mark.rest) for case in cases]


def leave_formulas(objectives: Iterable[str]) -> list:
    """Mark the objectives that are no more than a formula as the rest's."""
    objectives = list(objectives)
    return leave_rest(objectives, *(name for name in objectives if name not in FORMULAS))
