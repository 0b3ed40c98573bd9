"""Which cases of a test make test runs; make test-long runs all."""

from collections.abc import Iterable

import pytest

FORMULAS = ("ppo-rb", "tr-ppo", "tr-ppo-rb", "simple", "ppo-dual-clip", "aspo", "clip-higher", "spo-power", "truly-ppo")
"""Objectives that share all but their formula, which has tests of its own, with another: in short, that one stands for
them."""


def kinds_first(objectives: Iterable[str]) -> list:
    """Mark as long the objectives that are no more than a formula."""
    objectives = list(objectives)
    return mostly_long(objectives, *(name for name in objectives if name not in FORMULAS))


def mostly_long(cases: Iterable[str], *short: str) -> list:
    """Mark as long all cases but those named, which are as unlike as can be."""
    cases = list(cases)
    assert set(short) <= set(cases)
    return [case if case in short else pytest.param(case, marks=pytest.mark.long) for case in cases]
