"""Which cases of a test make test runs; make test-long runs all."""

from collections.abc import Iterable

import pytest


def mostly_long(cases: Iterable[str], *short: str) -> list:
    """Mark as long all cases but those named, which are as unlike as can be."""
    cases = list(cases)
    assert set(short) <= set(cases)
    return [case if case in short else pytest.param(case, marks=pytest.mark.long) for case in cases]
