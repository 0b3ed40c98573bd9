"""The objectives' mathematics, on random samples in double precision (docs/objectives.md lists the properties)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spo import objectives
from spo.improve import LARGEST_LOG_RATIO, bounded

positive = st.floats(0.01, 10)
advantages = st.one_of(positive, positive.map(lambda x: -x))
epsilons = st.floats(0.01, 0.99)
ratios = st.floats(0.01, 5)


def scalar(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def value(function, ratio, advantage, **settings) -> float:
    return function(scalar(ratio), scalar(advantage), **settings).item()


def slope(function, ratio, advantage, **settings) -> float:
    variable = scalar(ratio).requires_grad_()
    function(variable, scalar(advantage), **settings).backward()
    return variable.grad.item()


def sign(x: float) -> float:
    return 1.0 if x > 0 else -1.0


@given(advantages, epsilons)
def test_gradient_at_one_is_the_policy_gradient(a, e):
    assert slope(objectives.spo, 1.0, a, epsilon=e) == pytest.approx(a)
    assert slope(objectives.ppo_clip, 1.0, a, epsilon=e) == pytest.approx(a)
    assert slope(objectives.simple, 1.0, a, epsilon=e) == pytest.approx(2 * e * sign(a))


@given(advantages, epsilons, ratios)
def test_spo_and_simple_are_highest_only_at_the_bound(a, e, r):
    best = 1 + sign(a) * e
    for function in (objectives.spo, objectives.simple):
        assert slope(function, best, a, epsilon=e) == pytest.approx(0, abs=1e-9)
        if abs(r - best) > 1e-3:
            assert value(function, r, a, epsilon=e) < value(function, best, a, epsilon=e)


@given(advantages, epsilons, st.floats(0.001, 3))
def test_ppo_is_flat_beyond_the_bound_and_only_there(a, e, distance):
    best = 1 + sign(a) * e
    beyond, before = best + sign(a) * distance, best - sign(a) * distance
    if beyond > 0:
        assert slope(objectives.ppo_clip, beyond, a, epsilon=e) == 0
        assert value(objectives.ppo_clip, beyond, a, epsilon=e) == pytest.approx((1 + sign(a) * e) * a)
    assert slope(objectives.ppo_clip, before, a, epsilon=e) == pytest.approx(a)


@given(advantages, epsilons)
def test_highest_values(a, e):
    best = 1 + sign(a) * e
    assert value(objectives.spo, best, a, epsilon=e) == pytest.approx(a + abs(a) * e / 2)
    assert value(objectives.ppo_clip, best, a, epsilon=e) == pytest.approx((1 + sign(a) * e) * a)
    assert value(objectives.simple, best, a, epsilon=e) == pytest.approx(0, abs=1e-12)


@given(advantages, epsilons, ratios)
def test_spo_is_simple_scaled_by_the_advantage(a, e, r):
    scaled = abs(a) / (2 * e) * value(objectives.simple, r, a, epsilon=e) + a + abs(a) * e / 2
    assert value(objectives.spo, r, a, epsilon=e) == pytest.approx(scaled, rel=1e-9, abs=1e-9)


@given(advantages, epsilons, ratios)
def test_spo_below_ppo_below_the_surrogate(a, e, r):
    spo, ppo = value(objectives.spo, r, a, epsilon=e), value(objectives.ppo_clip, r, a, epsilon=e)
    slack = 1e-9 * (1 + abs(spo))
    assert spo <= ppo + slack
    assert ppo <= r * a + slack


@given(advantages, epsilons, ratios)
def test_spo_improves_exactly_between_one_and_twice_the_bound(a, e, r):
    inside = min(1, 1 + 2 * sign(a) * e) < r < max(1, 1 + 2 * sign(a) * e)
    gain = value(objectives.spo, r, a, epsilon=e) - a
    if abs(gain) > 1e-9:
        assert (gain > 0) == inside


@given(advantages, epsilons, ratios, st.floats(0.1, 10))
def test_scaling_the_advantage_scales_spo_and_ppo_but_not_simple(a, e, r, c):
    for function in (objectives.spo, objectives.ppo_clip):
        scaled = value(function, r, c * a, epsilon=e)
        assert scaled == pytest.approx(c * value(function, r, a, epsilon=e), rel=1e-9, abs=1e-9)
    assert value(objectives.simple, r, c * a, epsilon=e) == value(objectives.simple, r, a, epsilon=e)


@given(advantages, epsilons, ratios)
def test_spo_gradient_leads_back_to_the_bound(a, e, r):
    expected = abs(a) / e * (1 + sign(a) * e - r)
    assert slope(objectives.spo, r, a, epsilon=e) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_zero_advantage_moves_nothing_but_simple_pulls_to_one():
    assert slope(objectives.spo, 1.3, 0.0) == 0
    assert slope(objectives.ppo_clip, 1.3, 0.0) == 0
    assert slope(objectives.simple, 1.3, 0.0) == pytest.approx(-0.6)


@pytest.mark.parametrize("log_ratio", [20.0, 44.0, 89.0, 1000.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
@pytest.mark.parametrize("name", objectives.OBJECTIVES)
def test_no_overflow_however_large_the_ratio(name, advantage, log_ratio):
    """In float32, SPO alone would be −inf from a log-ratio of 44, and PPO-Clip's gradient NaN from 89."""
    objective = objectives.OBJECTIVES[name]
    if objective.inputs != ("ratio", "advantage"):
        pytest.skip("asks for more than the ratio")
    variable = torch.tensor([log_ratio], requires_grad=True)
    f = objective.function(bounded(variable).exp(), torch.tensor([advantage]))
    f.sum().backward()
    assert torch.isfinite(f).all() and torch.isfinite(variable.grad).all()


def test_the_bound_on_the_log_ratio_keeps_its_gradient():
    variable = torch.tensor([1.0, 30.0], requires_grad=True)
    capped = bounded(variable)
    capped.sum().backward()
    assert capped.tolist() == [1.0, LARGEST_LOG_RATIO]
    assert variable.grad.tolist() == [1.0, 1.0]
