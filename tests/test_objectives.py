"""The objectives' mathematics, on random samples in double precision (docs/objectives.md lists the properties)."""

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from spo import objectives
from spo.objectives import LARGEST_LOG_RATIO, clamp_log_ratio

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


GOLDEN = json.loads((Path(__file__).parent / "golden" / "objectives.json").read_text())


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_numbers_of_the_original_implementations(name):
    """Values and slopes that each original gave for fixed inputs (repository, commit and file stand beside them)."""
    golden, objective = GOLDEN[name], objectives.OBJECTIVES[name]
    inputs = {key: torch.tensor(numbers, dtype=torch.float64) for key, numbers in golden["inputs"].items()}
    inputs["ratio"].requires_grad_()
    result = objective.function(*(inputs[key] for key in objective.inputs), **golden["settings"])
    result.sum().backward()
    assert result.tolist() == pytest.approx(golden["value"], rel=1e-12, abs=1e-12)
    assert inputs["ratio"].grad.tolist() == pytest.approx(golden["slope"], rel=1e-12, abs=1e-12)


alphas = st.floats(0.01, 2)
deltas = st.floats(0.001, 0.1)
kls = st.floats(0, 0.2)


@given(advantages, epsilons, alphas, ratios)
def test_ppo_rb_is_highest_only_at_the_bound_and_below_ppo(a, e, alpha, r):
    best = 1 + sign(a) * e
    highest = value(objectives.ppo_rb, best, a, epsilon=e, alpha=alpha)
    assert highest == pytest.approx(best * a)
    here = value(objectives.ppo_rb, r, a, epsilon=e, alpha=alpha)
    assert here <= value(objectives.ppo_clip, r, a, epsilon=e) + 1e-9 * (1 + abs(here))
    if abs(r - best) > 1e-3:
        assert here < highest


@given(advantages, epsilons, alphas, ratios)
def test_ppo_rb_slopes_back_beyond_the_bound_and_only_there(a, e, alpha, r):
    best = 1 + sign(a) * e
    assume(abs(abs(r - 1) - e) > 1e-9)  # where pieces meet, rounding decides which one counts
    is_beyond = sign(a) * (r - best) > 0
    expected = -alpha * a if is_beyond else a
    assert slope(objectives.ppo_rb, r, a, epsilon=e, alpha=alpha) == pytest.approx(expected)
    assert value(objectives.ppo_rb, r, a, epsilon=e, alpha=0.0) == pytest.approx(
        value(objectives.ppo_clip, r, a, epsilon=e), rel=1e-9, abs=1e-9
    )


@pytest.mark.parametrize("a", [2.0, -2.0])
def test_at_the_bound_itself_the_gradient_is_still_the_policy_gradient(a):
    bound = 1 + sign(a) * 0.5  # a bound that floating point hits exactly
    assert slope(objectives.ppo_clip, bound, a, epsilon=0.5) == a
    assert slope(objectives.ppo_rb, bound, a, epsilon=0.5, alpha=0.3) == a
    assert slope(objectives.clip_higher, bound, a, epsilon=0.5, epsilon_high=0.5) == a


def triggers(r: float, a: float, kl: float, delta: float) -> bool:
    return kl >= delta and r * a > a


@given(advantages, deltas, kls, ratios, alphas)
def test_the_trust_region_trigger(a, delta, kl, r, alpha):
    is_triggered = triggers(r, a, kl, delta)
    plain, rollback = scalar(kl), {"delta": delta, "alpha": alpha}

    def tr_ppo(ratio, advantage, **settings):
        return objectives.tr_ppo(ratio, advantage, plain, **settings)

    def tr_ppo_rb(ratio, advantage, **settings):
        return objectives.tr_ppo_rb(ratio, advantage, plain, **settings)

    assert slope(tr_ppo, r, a, delta=delta) == (0 if is_triggered else a)
    assert slope(tr_ppo_rb, r, a, **rollback) == pytest.approx(-alpha * a if is_triggered else a)
    assert slope(tr_ppo_rb, r, a, delta=delta, alpha=0.0) == slope(tr_ppo, r, a, delta=delta)
    for function, settings in ((tr_ppo, {"delta": delta}), (tr_ppo_rb, rollback)):  # continuous in value
        assert value(function, r, a, **settings) == pytest.approx(r * a)


@pytest.mark.parametrize("kl, expected", [(0.03, 0.0), (0.0299, 2.0)])
def test_the_trigger_includes_its_bound(kl, expected):
    assert slope(lambda r, a: objectives.tr_ppo(r, a, scalar(kl), delta=0.03), 1.5, 2.0) == expected
    assert slope(lambda r, a: objectives.tr_ppo(r, a, scalar(kl), delta=0.03), 1.0, 2.0) == 2.0  # not improved yet


@given(advantages, kls, ratios, positive)
def test_the_gradients_of_the_penalty(a, kl, r, beta):
    variable = scalar(kl).requires_grad_()
    objectives.ppo_penalty(scalar(r), scalar(a), variable, beta=beta).backward()
    assert variable.grad.item() == pytest.approx(-beta)
    assert slope(lambda x, y: objectives.ppo_penalty(x, y, scalar(kl), beta=beta), r, a) == pytest.approx(a)


@pytest.mark.parametrize(
    "kl, factor",
    [(0.01 / 1.5, 1), (0.01 * 1.5, 1), (0.01, 1), (0.0066, 0.5), (0.0151, 2), (0.0, 0.5), (10.0, 2)],
)
def test_beta_doubles_halves_or_stays(kl, factor):
    assert objectives.adapt_beta(0.7, kl, kl_target=0.01) == pytest.approx(0.7 * factor)


deviations = st.one_of(st.floats(0, 1), st.floats(0, 1e30))
gains = st.floats(0, 1)


@given(st.floats(0.02, 0.99), deviations, deviations, st.floats(1e-3, 2), gains)
def test_the_width_follows_the_deviation(e, d, other, target, gain):
    """Never wider after a larger deviation, within its bounds, towards the target's side, at rest on the target."""
    settings = {"deviation_target": target, "epsilon_gain": gain}
    after, after_other = (objectives.adapt_epsilon(e, each, **settings) for each in (d, other))
    assert (after - after_other) * (d - other) <= 1e-12
    assert 0.02 <= after <= 0.99
    assert after >= e if d < target else after <= e
    assert objectives.adapt_epsilon(e, target, **settings) == e
    assert objectives.adapt_epsilon(e, d, deviation_target=target, epsilon_gain=0.0) == e


def test_the_width_by_numbers():
    adapted = objectives.adapt_epsilon
    assert adapted(0.2, 0.05, deviation_target=0.1, epsilon_gain=0.2) == pytest.approx(0.2 * 2**0.2)
    assert adapted(0.2, 0.0, deviation_target=0.1) == adapted(0.2, 1e-6, deviation_target=0.1) == 0.99
    assert adapted(0.2, 0.8, deviation_target=0.1, epsilon_gain=1.0, epsilon_min=0.1) == 0.1
    for nothing in (math.nan, math.inf, -math.inf):
        assert adapted(0.2, nothing) == 0.2


def test_a_width_that_is_fed_back_settles_where_the_deviation_meets_the_target():
    """Where the mean deviation grows with the width, whatever the factor; and at the cap where it cannot reach."""
    for factor, expected in ((0.3, 0.1 / 0.3), (2.0, 0.05), (0.05, 0.99)):
        width = 0.2
        for _ in range(200):
            width = objectives.adapt_epsilon(width, factor * width, deviation_target=0.1)
        assert width == pytest.approx(expected)


powers = st.floats(1.5, 64)


@given(advantages, epsilons, ratios, powers)
def test_the_slope_of_the_power_family(a, e, r, p):
    x, towards = abs(r - 1) / e, sign(r - 1)
    expected = a - abs(a) * towards * (x ** (p - 1) if x <= 1 else x)
    assert slope(objectives.spo_power, r, a, epsilon=e, power=p) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(advantages, epsilons, ratios)
def test_power_two_is_spo(a, e, r):
    theirs = value(objectives.spo, r, a, epsilon=e), slope(objectives.spo, r, a, epsilon=e)
    ours = [f(objectives.spo_power, r, a, epsilon=e, power=2.0) for f in (value, slope)]
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)


@given(advantages, epsilons, ratios, powers)
def test_the_power_family_is_highest_only_at_the_bound_and_lies_above_spo(a, e, r, p):
    best = 1 + sign(a) * e
    highest = value(objectives.spo_power, best, a, epsilon=e, power=p)
    assert highest == pytest.approx(best * a - abs(a) * e / p)
    here = value(objectives.spo_power, r, a, epsilon=e, power=p)
    if abs(r - best) > 0.02:  # nearer than that, 64 is so flat inside that rounding decides
        assert here < highest
    if p >= 2:
        assert here >= value(objectives.spo, r, a, epsilon=e) - 1e-9 * (1 + abs(here))


@pytest.mark.parametrize("power", [1.5, 2.0, 8.0, 64.0])
@pytest.mark.parametrize("a", [2.0, -2.0])
def test_the_power_family_where_its_pieces_meet(a, power):
    """A half is hit exactly: there the slope is that of one piece, not of both; and at r = 1 it is the advantage."""
    settings = {"epsilon": 0.5, "power": power}
    assert slope(objectives.spo_power, 1 + sign(a) * 0.5, a, **settings) == pytest.approx(0, abs=1e-12)
    assert slope(objectives.spo_power, 1 - sign(a) * 0.5, a, **settings) == pytest.approx(2 * a)
    assert slope(objectives.spo_power, 1.0, a, **settings) == a


@pytest.mark.parametrize("start", [1.0, 2.0**-200, 2.0**200], ids=["usual", "below the floor", "above the ceiling"])
@pytest.mark.parametrize("kl, end", [(0.0, objectives.SMALLEST_BETA), (1.0, objectives.LARGEST_BETA)])
def test_beta_ends_where_a_single_float_still_has_it_and_can_return(start, kl, end):
    beta = start
    for _ in range(200):
        beta = objectives.adapt_beta(beta, kl)
        assert objectives.SMALLEST_BETA <= beta <= objectives.LARGEST_BETA
    assert beta == end and 0 < scalar(beta).item() < float("inf")
    assert objectives.adapt_beta(beta, 1.0 - kl) == (2 * end if kl == 0 else end / 2)


@given(advantages, kls, ratios, positive, deltas)
def test_spu_leaves_distant_states_out_and_differentiates_the_kl_elsewhere(a, kl, r, temperature, state_delta):
    variable = scalar(kl).requires_grad_()
    settings = {"temperature": temperature, "state_delta": state_delta}
    objectives.spu(scalar(r), scalar(a), variable, **settings).backward()
    is_inside = kl < state_delta
    assert variable.grad.item() == (-1 if is_inside else 0)
    expected = a / temperature if is_inside else 0
    assert slope(lambda x, y: objectives.spu(x, y, scalar(kl), **settings), r, a) == pytest.approx(expected)


def test_spus_unmasked_optimum_is_the_exponentially_tilted_policy():
    """Maximising E_old[r·A/λ] − KL(new‖old) over all policies of one state gives π ∝ π_old·exp(A/λ)."""
    torch.manual_seed(0)
    old, advantage = torch.randn(5, dtype=torch.float64).softmax(0), torch.randn(5, dtype=torch.float64)
    logits = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([logits], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-14)

    def closure():
        optimizer.zero_grad()
        new = logits.softmax(0)
        kl_reverse = (new * (new / old).log()).sum()
        each = objectives.spu(new / old, advantage, kl_reverse.expand(5), temperature=0.7, state_delta=1e9)
        loss = -(old * each).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    tilted = old * (advantage / 0.7).exp()
    torch.testing.assert_close(logits.softmax(0), tilted / tilted.sum(), rtol=1e-5, atol=1e-6)


REFLECTIONS = [  # (r, r′, A′) and the partial derivatives of the reflected term alone
    ((1.3, 1.02, 1.0), (0.0, 1.2)),
    ((1.3, 1.3, 1.0), (0.0, 0.0)),
    ((1.3, 0.7, 1.0), (0.7, 1.3)),
    ((0.7, 1.02, -1.0), (0.0, -0.8)),
]


@pytest.mark.parametrize("point, expected", REFLECTIONS)
def test_partial_derivatives_of_the_reflected_term(point, expected):
    r, r_next = (scalar(x).requires_grad_() for x in point[:2])
    one, zero = scalar(1.0), scalar(0.0)
    objectives.rpo_reflective(r, zero, r_next, scalar(point[2]), one, reflection=1.0).backward()
    assert (r.grad.item(), r_next.grad.item()) == pytest.approx(expected)


@given(advantages, advantages, st.floats(0, 3), st.booleans())
def test_the_reflective_gradient_at_the_old_policy(a, a_next, reflection, has_next):
    r, r_next = (scalar(1.0).requires_grad_() for _ in range(2))
    mask = scalar(float(has_next))
    objectives.rpo_reflective(r, scalar(a), r_next, scalar(a_next), mask, reflection=reflection).backward()
    assert r.grad.item() == pytest.approx(a + reflection * has_next * a_next)
    assert r_next.grad.item() == pytest.approx(reflection * has_next * a_next)


@given(advantages, epsilons, ratios)
def test_without_a_successor_the_reflective_objective_is_ppo(a, e, r):
    def alone(ratio, advantage, **settings):
        return objectives.rpo_reflective(ratio, advantage, scalar(3.0), scalar(9.0), scalar(0.0), **settings)

    assert value(alone, r, a, epsilon=e) == value(objectives.ppo_clip, r, a, epsilon=e)


@given(advantages, epsilons, ratios)
def test_beyond_the_paper(a, e, r):
    """Each differs from PPO-Clip or SPO exactly where its name says."""
    ppo, spo = value(objectives.ppo_clip, r, a, epsilon=e), value(objectives.spo, r, a, epsilon=e)
    assert value(objectives.aspo, r, a, epsilon=e) == (ppo if a > 0 else spo)
    if a > 0 or r < 3:
        assert value(objectives.ppo_dual_clip, r, a, epsilon=e, dual_clip=3.0) == ppo
    if r < 1 + e:
        assert value(objectives.clip_higher, r, a, epsilon=e, epsilon_high=2 * e) == pytest.approx(ppo, rel=1e-12)


@given(advantages, ratios, st.floats(0.1, 10), kls)
def test_scaling_the_advantage_scales_every_objective_without_another_term(a, r, c, kl):
    for name in ("ppo-rb", "tr-ppo", "tr-ppo-rb", "ppo-dual-clip", "aspo", "clip-higher", "espo", "spo-power"):
        objective = objectives.OBJECTIVES[name]
        extra = [scalar(kl)] if "kl" in objective.inputs else []
        scaled = objective.function(scalar(r), scalar(c * a), *extra).item()
        assert scaled == pytest.approx(c * objective.function(scalar(r), scalar(a), *extra).item(), rel=1e-9), name


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
    variable = torch.tensor([log_ratio], requires_grad=True)
    data = dict.fromkeys(objectives.INPUTS, torch.tensor([0.01])) | {"ratio": clamp_log_ratio(variable).exp()}
    data["advantage"] = data["next_advantage"] = torch.tensor([advantage])
    data["next_ratio"] = data["ratio"]  # the largest that it can be
    f = objective.function(*(data[key] for key in objective.inputs))
    f.sum().backward()
    assert torch.isfinite(f).all() and torch.isfinite(variable.grad).all()


def test_the_bound_on_the_log_ratio_keeps_its_gradient():
    """Also where float32 has no room for the cap beside the log-ratio itself."""
    variable = torch.tensor([-200.0, 1.0, 15.0, 20.0, 50.0, 88.0, 90.0, 1e30], requires_grad=True)
    capped = clamp_log_ratio(variable)
    capped.sum().backward()
    assert capped.tolist() == [-200.0, 1.0, *[LARGEST_LOG_RATIO] * 6]
    assert variable.grad.tolist() == [1.0] * 8


# Beyond the paper: DRPO and Truly PPO

probabilities = st.floats(0.001, 0.999)


def drpo_of(old: float):
    """DRPO for an action to which the old policy gave this probability."""
    return lambda ratio, advantage, **settings: objectives.drpo(ratio, advantage, scalar(old).log(), **settings)


@given(advantages, probabilities, probabilities, st.floats(0.05, 20))
def test_the_weight_of_drpo_is_bounded_by_the_change_of_the_probability(a, old, new, delta):
    """∂f/∂r = A·w with w = 1 − sign(A)·(π − μ)/δ: within 1 ± 1/δ for all probabilities, however rare the action."""
    weight = slope(drpo_of(old), new / old, a, delta=delta) / a
    assert weight == pytest.approx(1 - sign(a) * (new - old) / delta, rel=1e-9, abs=1e-9)
    furthest = 1 - old if sign(a) > 0 else old  # how far the advantage can move the probability
    assert 1 - furthest / delta - 1e-9 <= weight <= 1 + (1 - furthest) / delta + 1e-9
    assert abs(weight - 1) < 1 / delta


@given(advantages, probabilities, st.floats(0.05, 0.5), ratios)
def test_drpo_is_spo_with_a_width_of_its_own_for_every_action(a, old, delta, r):
    """ε = δ/μ, so the peak is at 1 ± δ/μ, where the probability has moved by δ; at r = 1 it is the policy gradient."""
    as_spo = value(objectives.spo, r, a, epsilon=delta / old)
    assert value(drpo_of(old), r, a, delta=delta) == pytest.approx(as_spo, rel=1e-9, abs=1e-9)
    best = 1 + sign(a) * delta / old
    assert slope(drpo_of(old), best, a, delta=delta) == pytest.approx(0, abs=1e-9 * (1 + abs(a)))
    assert value(drpo_of(old), best, a, delta=delta) == pytest.approx(a + abs(a) * delta / (2 * old))
    assert slope(drpo_of(old), 1.0, a, delta=delta) == a


def test_drpo_on_a_categorical_whose_answers_are_known():
    """Of two actions with A = ±1 and probabilities 0.3 and 0.7, the first gains x: the mean f is 2x − 0.4 − x²/δ."""
    old, advantage = torch.tensor([0.3, 0.7], dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)

    def mean(shift: float, delta: float) -> float:
        new = old + torch.tensor([shift, -shift], dtype=torch.float64)
        return (old * objectives.drpo(new / old, advantage, old.log(), delta=delta)).sum().item()

    for shift, delta in ((0.0, 0.2), (0.1, 0.2), (0.3, 0.2), (-0.2, 0.2), (0.4, 12.5)):
        assert mean(shift, delta) == pytest.approx(2 * shift - 0.4 - shift**2 / delta)
    assert mean(0.2, 0.2) > max(mean(0.19, 0.2), mean(0.21, 0.2))  # a shift of δ is best
    assert mean(0.69, 12.5) > mean(0.68, 12.5)  # and with the published δ all of it


def test_the_published_delta_of_drpo_never_turns_a_gradient_round():
    """From δ = 1 on no probability can move as far as the peak: 12.5 leaves 92 % of the gradient or more."""
    for old in (0.01, 0.5, 0.99):
        weights = [slope(drpo_of(old), new / old, a) / a for new in (1e-3, 0.5, 1 - 1e-3) for a in (1.0, -1.0)]
        assert 0.92 <= min(weights) and max(weights) <= 1.08
    assert slope(drpo_of(0.5), 0.99 / 0.5, 1.0, delta=0.2) < 0  # a smaller one does


@given(advantages, deltas, kls, ratios, alphas)
def test_truly_ppo_penalizes_the_kl_where_the_trigger_says(a, delta, kl, r, alpha):
    variable, is_triggered = scalar(kl).requires_grad_(), triggers(r, a, kl, delta)
    f = objectives.truly_ppo(scalar(r), scalar(a), variable, delta=delta, alpha=alpha)
    f.backward()
    assert f.item() == pytest.approx(r * a - alpha * kl * is_triggered)
    assert variable.grad.item() == pytest.approx(-alpha * is_triggered)
    assert slope(lambda x, y: objectives.truly_ppo(x, y, scalar(kl), delta=delta, alpha=alpha), r, a) == a
    assert value(lambda x, y: objectives.truly_ppo(x, y, scalar(kl), delta=delta, alpha=0.0), r, a) == r * a


def test_the_guarded_ratio_is_capped_and_so_is_its_slope():
    log_ratio = torch.tensor([-200.0, -1.0, 0.0, 0.3, 14.9, 15.0, 15.1, 50.0, 90.0, 1e30], requires_grad=True)
    ratio = objectives.ratio_of(log_ratio)
    assert torch.equal(ratio, log_ratio.detach().clamp(max=15.0).exp())
    (slope,) = torch.autograd.grad(ratio.sum(), log_ratio)
    assert slope.isfinite().all() and torch.equal(slope, ratio)


@pytest.mark.parametrize("name", ["spo", "ppo-clip", "ppo-rb", "aspo"])
def test_an_evaluated_objective_neither_overflows_nor_changes_a_bit(name):
    log_ratio = torch.tensor([-0.5, 0.1, 0.4, 50.0, 90.0, 1e5], requires_grad=True)
    advantage = torch.tensor([1.0, -2.0, 0.5, 1.0, -1.0, 0.0])
    values = objectives.evaluate(name, log_ratio, advantage, epsilon=0.3)
    plain = objectives.OBJECTIVES[name].function(log_ratio.exp(), advantage, epsilon=0.3)
    assert torch.equal(values[:3], plain[:3]) and not plain.isfinite().all()
    (slope,) = torch.autograd.grad(values.sum(), log_ratio)
    assert values.isfinite().all() and slope.isfinite().all()


def test_an_evaluated_objective_gets_what_it_asks_for():
    samples = torch.tensor([0.1, -0.2]), torch.tensor([1.0, -1.0]), torch.tensor([0.01, 0.02])
    values = objectives.evaluate("ppo-penalty", samples[0], samples[1], kl=samples[2], beta=3.0)
    assert torch.equal(values, objectives.ppo_penalty(samples[0].exp(), *samples[1:], beta=3.0))


@pytest.mark.parametrize(
    "name, log_ratio, advantage, given, words",
    [
        ("spo", torch.zeros(4), torch.zeros(4, 1), {}, r"advantage has the shape \(4, 1\) and log_ratio \(4,\)"),
        ("tr-ppo", torch.zeros(4), torch.zeros(4), {"kl": torch.zeros(1)}, r"kl has the shape \(1,\)"),
        ("tr-ppo", torch.zeros(4), torch.zeros(4), {}, "'tr-ppo' asks for kl; give it by that name"),
        ("spo", [0.1], torch.zeros(1), {}, "log_ratio is a list; accepted is a torch.Tensor"),
        ("spo", torch.zeros(4), torch.zeros(4), {"epsilonn": 1}, "'spo' has no setting 'epsilonn'; it has epsilon"),
        ("spoo", torch.zeros(4), torch.zeros(4), {}, "objective 'spoo' is unknown; accepted: spo,"),
    ],
)
def test_an_evaluation_that_cannot_be(name, log_ratio, advantage, given, words):
    with pytest.raises(ValueError, match=words):
        objectives.evaluate(name, log_ratio, advantage, **given)
