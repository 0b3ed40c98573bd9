"""The paper's theory on small MDPs: each claim over random instances, next to instances that leave it no slack."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spo import cli
from spo.errors import SpoError
from spo.experiments.figures.style import save
from spo.models.distributions import Gaussian
from spo.theory import command as bench_theory
from spo.theory.alignment import misalignment, slope_misalignment
from spo.theory.bounds import (
    OldPolicy,
    best_of_kl,
    best_of_tv,
    evaluate,
    kl,
    kl_bound,
    ratio_bound,
    ratio_deviation,
    ratio_penalty,
    surrogate,
    tv,
    tv_bound,
    tv_penalty,
    tv_radius,
    xi,
)
from spo.theory.claims import all_findings
from spo.theory.command import objective_values, power_slope, report
from spo.theory.examples import figure_data
from spo.theory.figure import draw_theory
from spo.theory.findings import CLOSE, ROUNDING, Finding, at_least, at_most
from spo.theory.improvement import (
    BOUNDS,
    Case,
    deviation_error,
    difference_error,
    fork_case,
    forks,
    lead,
    lower_bound,
    random_case,
    tightness,
    unused,
)
from spo.theory.mdp import advantages, performance, state_transitions, visitation
from spo.theory.regions import (
    action_growth_error,
    drop_rarest,
    edge_of_kl,
    edge_of_tv,
    gaussian_growth_error,
    gaussian_kl,
    inclusion_margin,
    kl_share_left,
    random_squeeze,
    shift_mass,
    squeeze,
    strictness_margin,
    targets,
    within,
)

OBJECTIVES = objective_values()
exactly = settings(deadline=None, derandomize=True, max_examples=40)
sparingly = settings(exactly, max_examples=12)
state_counts, action_counts = st.integers(1, 5), st.integers(2, 5)
gammas = st.floats(0.05, 0.99)
seeds = st.integers(0, 2**31)
epsilons = st.floats(0.05, 0.95)
ADVANTAGES = st.floats(0.1, 10).flatmap(lambda size: st.sampled_from([size, -size]))


@st.composite
def cases(draw, states=state_counts, actions=action_counts, gamma=gammas) -> Case:
    return random_case(np.random.default_rng(draw(seeds)), draw(states), draw(actions), draw(gamma))


def with_policy(case: Case, policy: np.ndarray, **changes) -> Case:
    return dataclasses.replace(case, old=evaluate(case.mdp, policy), **changes)


# The MDPs themselves, against sums over time


@exactly
@given(cases(gamma=st.floats(0.05, 0.9)))
def test_linear_algebra_agrees_with_sums_over_time(case):
    """ρ_π = (1 − γ)·Σ γᵗ·P(s_t = s), η = Σ γᵗ·E[r_t], and Q by backing up from the far end."""
    mdp, policy = case.mdp, case.old.policy
    step, reward = state_transitions(mdp, policy), (policy * mdp.reward).sum(-1)
    now, seen, total, q = mdp.start, np.zeros_like(mdp.start), 0.0, np.zeros_like(mdp.reward)
    for time in range(400):
        seen, total = seen + mdp.gamma**time * now, total + mdp.gamma**time * now @ reward
        now, q = now @ step, mdp.reward + mdp.gamma * mdp.transition @ (policy * q).sum(-1)
    np.testing.assert_allclose(visitation(mdp, policy), (1 - mdp.gamma) * seen, atol=1e-12)
    np.testing.assert_allclose(performance(mdp, policy), total, atol=1e-12)
    np.testing.assert_allclose(advantages(mdp, policy), q - (policy * q).sum(-1)[:, None], atol=1e-12)


@exactly
@given(cases())
def test_many_policies_at_once_are_each_alone(case):
    for function in (performance, visitation):
        each = [function(case.mdp, new) for new in case.new]
        np.testing.assert_allclose(function(case.mdp, case.new), each, rtol=1e-12)


# Theorem 3.1 and eq. 9


@exactly
@given(cases())
def test_performance_difference(case):
    assert difference_error(case).max() < ROUNDING


def largest_event(old: np.ndarray, new: np.ndarray) -> float:
    """Total variation as it is defined, over all sets of actions."""
    events = itertools.product((0, 1), repeat=len(old))
    return max(abs(np.dot(event, old) - np.dot(event, new)) for event in events)


@exactly
@given(cases())
def test_tv_is_half_the_ratio_deviation(case):
    assert deviation_error(case).max() < ROUNDING
    for new in case.new:
        by_events = [largest_event(*rows) for rows in zip(case.old.policy, new)]
        assert ratio_deviation(case.old, new) / 2 == pytest.approx(np.dot(by_events, case.old.visitation))


@exactly
@given(cases(), st.floats(0.1, 0.9))
def test_actions_that_the_old_policy_never_takes_escape_the_ratio(case, moved):
    """The condition that eq. 9 leaves unsaid: half of what moves to an action without a ratio is not seen."""
    policy = np.eye(case.old.policy.shape[1])[np.zeros(len(case.old.policy), int)]
    new = (1 - moved) * policy + moved * np.roll(policy, 1, -1)
    case = with_policy(case, policy, new=new[None])
    assert tv(policy, new) @ case.old.visitation == pytest.approx(moved)
    assert ratio_deviation(case.old, new) / 2 == pytest.approx(moved / 2)


# Theorem 3.2, eq. 4 and eq. 10

sizes = st.sampled_from([2.0**power for power in range(-3, 4)])


@exactly
@given(cases())
def test_lower_bounds_on_random_mdps(case):
    for name in BOUNDS:
        assert np.min(unused(name, [case])) > -ROUNDING


@exactly
@given(gammas, st.integers(6, 9), sizes)
def test_the_worst_case_meets_the_bounds(gamma, digits, size):
    """Nothing is left of the penalty, so one percent less of it would make the bounds false."""
    case = fork_case(gamma, shift=2.0**-digits, size=size)
    for name, (_, penalty) in BOUNDS.items():
        assert -ROUNDING < np.min(unused(name, [case])) < CLOSE
        assert case.gain < surrogate(case.old, case.new) - 0.99 * penalty(case.old, case.new)


@exactly
@given(cases())
def test_the_ratio_form_is_the_tv_bound(case):
    np.testing.assert_allclose(ratio_penalty(case.old, case.new), tv_penalty(case.old, case.new), rtol=1e-9)
    scale = np.abs(case.old.advantage).max() / (1 - case.mdp.gamma)
    np.testing.assert_allclose(ratio_bound(case.old, case.new), tv_bound(case.old, case.new), atol=1e-9 * scale)


TOO_SMALL = {
    "3 % less": lambda old, new: 0.97,
    "γ² for γ": lambda old, new: old.gamma,
    "1 − γ for its square": lambda old, new: 1 - old.gamma,
    "no ξ": lambda old, new: 1 / xi(old, new),
}
"""By what a wrong constant would make the penalty smaller, somewhere."""


@pytest.mark.parametrize("fault", TOO_SMALL)
@pytest.mark.parametrize("name", BOUNDS)
def test_a_constant_that_is_too_small_breaks_its_row_and_one_too_large_the_row_beside_it(name, fault, monkeypatch):
    bound, penalty = BOUNDS[name]
    random = np.random.default_rng(0)
    sound = [random_case(random, 4, 3, gamma) for gamma in np.linspace(0.1, 0.95, 7)]
    assert lower_bound("", name, sound).holds and tightness(name, sound).holds

    def replace_penalty(factor):
        def wrong(old, new):
            return factor(old, new) * penalty(old, new)

        monkeypatch.setitem(
            BOUNDS, name, (lambda old, new: bound(old, new) + penalty(old, new) - wrong(old, new), wrong)
        )

    replace_penalty(TOO_SMALL[fault])
    assert not lower_bound("", name, sound).holds
    replace_penalty(lambda old, new: 1 / TOO_SMALL[fault](old, new))
    assert not tightness(name, sound).holds


def test_random_mdps_alone_would_not_notice():
    """Why forks are among the instances: these leave most of the penalty unused."""
    random = np.random.default_rng(0)
    sound = [random_case(random, 4, 3, gamma) for gamma in np.linspace(0.1, 0.95, 7)]
    for name in BOUNDS:
        assert np.min(unused(name, sound)) > 0.3
        assert np.max(unused(name, forks(sound))) < CLOSE


@exactly
@given(gammas, st.floats(0.3, 0.7), st.floats(0.01, 0.2), st.floats(0.01, 0.2), st.floats(0.01, 0.2), sizes)
def test_bounds_of_the_fork_in_closed_form(gamma, chance, shift, tilt, other, size):
    """ρ_π, ξ and every divergence of the fork are known; two unlike tilts tell ρ_π from ρ_π̃."""
    case = fork_case(gamma, chance, shift, (tilt, other), size)
    weights = np.array([1 - gamma, gamma * chance, gamma * (1 - chance)])
    expected = size * gamma * (2 * chance - 1) / (1 - gamma)
    assert xi(case.old, case.new) == pytest.approx(size)
    assert surrogate(case.old, case.new) == pytest.approx(expected, abs=1e-8)
    assert case.gain == pytest.approx(expected - 2 * size * gamma * shift / (1 - gamma), abs=1e-8)
    factor = 2 * size * gamma / (1 - gamma) ** 2
    of_tv = weights @ [shift, tilt, other]
    for bound in (tv_bound, ratio_bound):
        assert bound(case.old, case.new) == pytest.approx(expected - factor * of_tv)
    binary = [shannon(*rows) for rows in zip(case.old.policy, case.new[0])]
    assert kl_bound(case.old, case.new) == pytest.approx(expected - factor * weights @ np.sqrt(np.array(binary) / 2))


def shannon(old: np.ndarray, new: np.ndarray) -> float:
    """KL as it is usually written."""
    return sum(p * math.log(p / q) for p, q in zip(old, new) if p > 0)


@exactly
@given(cases())
def test_kl_and_pinsker(case):
    for new in case.new:
        written = [shannon(*rows) for rows in zip(case.old.policy, new)]
        np.testing.assert_allclose(kl(case.old.policy, new), written, rtol=1e-6, atol=1e-15)
    assert (tv(case.old.policy, case.new) <= np.sqrt(kl(case.old.policy, case.new) / 2)).all()
    assert (kl_bound(case.old, case.new) <= tv_bound(case.old, case.new)).all()


def test_kl_keeps_its_digits_and_knows_infinity():
    half = np.array([0.5, 0.5])
    assert kl(half, half + [1e-9, -1e-9]) == pytest.approx(2e-18, rel=1e-6)
    assert kl(half, np.array([1.0, 0.0])) == math.inf
    assert kl(np.array([1.0, 0.0]), half) == pytest.approx(math.log(2))


# Theorem 4.1


@exactly
@given(cases(actions=st.integers(3, 6)), seeds)
def test_kl_is_unbounded_under_one_bounded_ratio(case, seed):
    for old in case.old.policy:
        assert action_growth_error(old, case.epsilon, np.random.default_rng(seed)) < ROUNDING
        new = shift_mass(old, taken=2, ratio=1 - case.epsilon, lost=0, rest=1e-250)
        assert new.sum() == pytest.approx(1) and new.min() == 1e-250
        assert new[2] / old[2] == pytest.approx(1 - case.epsilon)
        assert kl(old, new) > 500 * old[0]


@sparingly
@given(seeds, st.integers(1, 8), st.floats(0.05, 1.95), st.floats(1e-3, 0.3))
def test_kl_of_gaussians_is_unbounded_under_one_bounded_ratio(seed, dimensions, ratio, std):
    """In a trainer's own Gaussian, which has no correlations, and along any direction in torch's."""
    action, direction = np.random.default_rng(seed).normal(size=(2, dimensions))
    direction /= np.linalg.norm(direction)
    at = torch.from_numpy(action)
    old = torch.distributions.MultivariateNormal(torch.zeros_like(at), torch.eye(dimensions, dtype=at.dtype))
    mean, precision = squeeze(action, direction, ratio, std)
    new = torch.distributions.MultivariateNormal(torch.from_numpy(mean), precision_matrix=torch.from_numpy(precision))
    assert (new.log_prob(at) - old.log_prob(at)).exp().item() == pytest.approx(ratio, rel=1e-5)
    assert gaussian_kl(mean, precision) == pytest.approx(torch.distributions.kl_divergence(old, new).item(), rel=1e-5)
    assert gaussian_growth_error(action, direction, ratio) < CLOSE


@exactly
@given(seeds, st.integers(1, 8), st.floats(0.05, 1.95), st.floats(1e-3, 0.3))
def test_the_same_with_the_gaussian_of_the_trainer(seed, dimensions, ratio, std):
    action, axis = np.random.default_rng(seed).normal(size=dimensions), np.eye(dimensions)[0]
    mean, precision = squeeze(action, axis, ratio, std)
    log_std = -0.5 * np.log(np.diag(precision))
    old, new = torch.zeros(1, 2 * dimensions).double(), torch.from_numpy(np.concatenate([mean, log_std]))[None]
    at = torch.from_numpy(action)[None]
    assert (Gaussian.log_prob(new, at) - Gaussian.log_prob(old, at)).exp().item() == pytest.approx(ratio)
    assert Gaussian.kl(old, new).item() == pytest.approx(gaussian_kl(mean, precision))
    assert gaussian_growth_error(action, axis, ratio) < CLOSE


def test_the_instances_have_several_dimensions_and_correlations():
    random = np.random.default_rng(0)
    instances = [random_squeeze(0.2, random) for _ in range(200)]
    assert {len(action) for action, _, _ in instances} == set(range(1, 9))
    is_correlated = [np.count_nonzero(direction) > 1 for _, direction, _ in instances]
    assert 0 < sum(is_correlated) < len(instances)
    assert all(np.linalg.norm(direction) == pytest.approx(1) for _, direction, _ in instances)
    assert all(abs(ratio - 1) <= 0.2 for _, _, ratio in instances)


@exactly
@given(cases())
def test_kl_is_unbounded_within_tv(case):
    new = drop_rarest(case.old.policy)
    np.testing.assert_allclose(tv(case.old.policy, new), case.old.policy.min(-1))
    np.testing.assert_allclose(new.sum(-1), 1)
    assert np.isinf(kl(case.old.policy, new)).all()


@exactly
@given(cases(), seeds)
def test_kl_is_bounded_when_every_ratio_is(case, seed):
    new = within(case.old.policy, case.epsilon, np.random.default_rng(seed))
    np.testing.assert_allclose(new.sum(-1), 1)
    np.testing.assert_allclose(np.abs(new / case.old.policy - 1).max(-1), case.epsilon)
    assert np.min(kl_share_left(case.old.policy, case.epsilon, np.random.default_rng(seed))) > -ROUNDING


@exactly
@given(cases(actions=st.just(2)), seeds)
def test_two_equal_actions_reach_that_bound(case, seed):
    case = with_policy(case, np.full_like(case.old.policy, 0.5))
    assert abs(np.min(kl_share_left(case.old.policy, case.epsilon, np.random.default_rng(seed)))) < ROUNDING


# Proposition 4.2


@exactly
@given(cases(), seeds)
def test_the_kl_region_lies_within_the_tv_region(case, seed):
    old, delta = case.old.policy, case.delta_kl
    aim = targets(old, np.random.default_rng(seed))
    edge = edge_of_kl(old, aim, delta)
    np.testing.assert_allclose(edge.sum(-1), 1)
    is_reached = kl(old, old + (1 - 1e-6) * (aim - old)) > delta  # else it lies a breath before the aim
    np.testing.assert_allclose(kl(old, edge)[is_reached], delta, rtol=1e-6)
    assert (kl(old, edge) <= delta * (1 + ROUNDING)).all()
    assert inclusion_margin(old, delta, np.random.default_rng(seed)).min() > -ROUNDING


@exactly
@given(cases(), seeds)
def test_the_edge_of_the_tv_region_lies_outside_the_kl_region(case, seed):
    old, radius = case.old.policy, tv_radius(case.delta_kl)
    edge = edge_of_tv(old, targets(old, np.random.default_rng(seed)), radius)
    assert (tv(old, edge) <= radius + ROUNDING).all() and edge.min() >= -ROUNDING
    assert strictness_margin(old, case.delta_kl, np.random.default_rng(seed)).min() > ROUNDING


@exactly
@given(st.floats(1e-6, 1e-4), seeds)
def test_the_regions_touch_at_two_equal_actions(delta, seed):
    """Pinsker's inequality has no slack there, so any other constant in δ_TV breaks one claim or the other."""
    old = np.full((1, 2), 0.5)
    assert inclusion_margin(old, delta, np.random.default_rng(seed)).max() < CLOSE
    assert strictness_margin(old, delta, np.random.default_rng(seed)).max() < CLOSE


# Theorem 4.3


@sparingly
@given(cases())
def test_the_best_tv_bound_is_above_the_best_kl_bound(case):
    old, radius = case.old, tv_radius(case.delta_kl)
    of_tv, of_kl = best_of_tv(old, radius), best_of_kl(old, case.delta_kl)
    for best in (of_tv, of_kl):
        np.testing.assert_allclose(best.sum(-1), 1)
        assert best.min() >= -ROUNDING
    assert tv(old.policy, of_tv).max() <= radius * (1 + ROUNDING)
    assert kl(old.policy, of_kl).max() <= case.delta_kl * (1 + ROUNDING)
    assert tv_bound(old, of_tv) >= tv_bound(old, of_kl) >= kl_bound(old, of_kl) > 0
    assert lead(case) == pytest.approx(1 - kl_bound(old, of_kl) / tv_bound(old, of_tv))


@sparingly
@given(cases(actions=st.just(2)), st.floats(1e-6, 1e-4))
def test_the_best_bounds_meet_at_two_equal_actions(case, delta):
    case = with_policy(case, np.full_like(case.old.policy, 0.5), delta_kl=delta)
    assert -ROUNDING < lead(case) < CLOSE


def rim(actions: int, points: int) -> np.ndarray:
    """Distributions over the actions of which one or more have probability 0, as a grid."""
    if actions == 2:
        return np.eye(2)
    share = np.linspace(0, 1, points, endpoint=False)
    side = np.column_stack([share, 1 - share, np.zeros_like(share)])
    return np.concatenate([np.roll(side, turn, -1) for turn in range(3)])


def net(policy: np.ndarray, edge_of, radius: float, points: int) -> np.ndarray:
    """Policies (candidate, state, action) that reach from the old one to the edge of a region, in all directions."""
    aimed = [edge_of(policy, np.broadcast_to(aim, policy.shape), radius) for aim in rim(policy.shape[1], points)]
    shares = np.linspace(0, 1, points)[:, None, None, None] ** 2  # closer where the best often lies
    return (policy + shares * (np.array(aimed) - policy)).reshape(-1, *policy.shape)


def joined(candidates: np.ndarray) -> np.ndarray:
    """Every combination of one candidate for each state."""
    count, states, _ = candidates.shape
    choices = np.stack(np.meshgrid(*[np.arange(count)] * states), -1).reshape(-1, states)
    return candidates[choices, np.arange(states)]


SIZES = [(1, 3, 40), (2, 2, 60), (2, 3, 8), (3, 2, 16)]
"""States, actions, and points of the net in each direction."""


@pytest.mark.parametrize("states, actions, points", SIZES)
@settings(exactly, max_examples=6)
@given(st.data())
def test_no_policy_of_a_fine_net_has_a_better_bound(states, actions, points, data):
    case = data.draw(cases(st.just(states), st.just(actions), st.floats(0.2, 0.8)))
    old, delta = evaluate(case.mdp, (case.old.policy + 0.2) / (1 + 0.2 * actions)), case.delta_kl  # nothing too rare
    for best_of, bound, edge_of, radius in (
        (best_of_tv, tv_bound, edge_of_tv, tv_radius(delta)),
        (best_of_kl, kl_bound, edge_of_kl, delta),
    ):
        in_net = bound(old, joined(net(old.policy, edge_of, radius, points)))
        assert in_net.max() <= bound(old, best_of(old, radius)) * (1 + 1e-4)


def test_a_bound_with_two_peaks_is_climbed_to_the_higher():
    """The first state takes its best step under any cap on ξ, the second moves only if that is the true ξ."""
    policy = np.array([[0.064, 0.936], [0.207, 0.793]])
    advantage = np.array([[-0.754, 0.754 * 0.064 / 0.936], [-0.088, 0.088 * 0.207 / 0.793]])
    old = OldPolicy(policy, advantage, np.array([0.6, 0.4]), gamma=0.5)
    best = best_of_kl(old, 0.242)
    assert kl(policy, best)[1] > 0.001
    assert kl_bound(old, joined(net(policy, edge_of_kl, 0.242, 60))).max() <= kl_bound(old, best) * (1 + 1e-4)


def mixtures(best: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Policies (..., state, action) that differ from the best in one state, where they move a part of the way."""
    is_moved = np.eye(len(best))[:, :, None]
    parts = np.array([1e-3, 1e-2, 0.03, 0.1, 0.3, 1])[:, None, None, None, None]
    return best + parts * is_moved * (others[:, None] - best)


@exactly
@given(cases(gamma=st.floats(0.2, 0.95)), seeds)
def test_no_step_from_the_best_raises_its_bound(case, seed):
    """The regions are convex, so mixtures with their members lie within; TV is solved without a grid in the states."""
    old, delta, random = case.old, case.delta_kl, np.random.default_rng(seed)
    aimed = [targets(old.policy, random) for _ in range(10)]
    for best_of, bound, edge_of, radius, tolerance in (
        (best_of_tv, tv_bound, edge_of_tv, tv_radius(delta), 1e-8),
        (best_of_kl, kl_bound, edge_of_kl, delta, 1e-4),
    ):
        best = best_of(old, radius)
        others = np.array([old.policy, *(edge_of(old.policy, aim, radius) for aim in aimed)])
        assert bound(old, mixtures(best, others)).max() <= bound(old, best) * (1 + tolerance)


# Definition 5.1 and Theorem 5.2


@exactly
@given(ADVANTAGES, epsilons)
def test_spo_and_simple_are_aligned(advantage, epsilon):
    for name in ("spo", "simple"):
        assert misalignment(OBJECTIVES[name], advantage, epsilon).largest < ROUNDING


@exactly
@given(ADVANTAGES, epsilons)
def test_ppo_is_not_aligned_for_its_kink_alone(advantage, epsilon):
    found = misalignment(OBJECTIVES["ppo-clip"], advantage, epsilon)
    assert found.jump == pytest.approx(1)
    assert found.convexity < ROUNDING and found.shortfall < ROUNDING


@exactly
@given(ADVANTAGES, epsilons, st.floats(0.2, 2.5))
def test_each_fault_is_seen(advantage, epsilon, place):
    kink = misalignment(lambda r, a, e: -abs(a) * np.abs(r - place), advantage, epsilon)
    assert kink.jump > 0.3
    valley = misalignment(lambda r, a, e: abs(a) * (r - place) ** 2, advantage, epsilon)
    assert valley.convexity > 0 and valley.jump < 1e-8
    other = misalignment(lambda r, a, e: OBJECTIVES["spo"](r, a, e * 1.05), advantage, epsilon)
    assert other.shortfall > 1e-6 and other.jump < 1e-8 and other.convexity < ROUNDING


@exactly
@given(ADVANTAGES, epsilons, st.floats(2, 64))
def test_the_power_family_is_aligned(advantage, epsilon, power):
    assert slope_misalignment(power_slope, advantage, epsilon, power).largest < ROUNDING


@exactly
@given(ADVANTAGES, epsilons, st.floats(0.2, 2.5))
def test_each_fault_of_a_slope_is_seen(advantage, epsilon, place):
    def kinked(r, a, e, p):
        return power_slope(r, a, e, p) - 0.1 * abs(a) * (r > place)

    found = slope_misalignment(kinked, advantage, epsilon, 8.0)
    assert found.jump == pytest.approx(0.1) and found.convexity < ROUNDING
    rising = slope_misalignment(lambda r, a, e, p: abs(a) * (r - place), advantage, epsilon, 8.0)
    assert rising.convexity > 1e-3 and rising.jump < ROUNDING
    other = slope_misalignment(lambda r, a, e, p: power_slope(r, a, e * 1.05, p), advantage, epsilon, 8.0)
    assert other.shortfall > 1e-3 and other.jump < ROUNDING and other.convexity < ROUNDING


@exactly
@given(ADVANTAGES, st.floats(0.05, 0.45))
def test_drpo_is_smooth_and_concave_but_highest_elsewhere(advantage, epsilon):
    """With δ = ε and π(a|s) = ½ the peak is at 1 ± 2ε, where f is |A|·ε/4 higher than at 1 ± ε."""
    found = misalignment(OBJECTIVES["drpo"], advantage, epsilon)
    assert found.jump < 1e-8 and found.convexity < ROUNDING
    assert found.shortfall == pytest.approx(epsilon / 4, abs=1e-5)


# The command


def test_every_claim_holds():
    findings = all_findings(3, 4, 3, 1, OBJECTIVES, power_slope)
    assert [finding.claim for finding in findings if not finding.holds] == []
    assert {finding.source for finding in findings} == {
        *("Thm 3.1", "Thm 3.2", "eq. 4", "Thm 4.1", "eq. 9", "eq. 10"),
        *("Prop. 4.2", "Thm 4.3", "Thm 5.2", "§5.1", "ours"),
    }
    assert findings == all_findings(3, 4, 3, 1, OBJECTIVES, power_slope)


def test_what_is_not_a_number_does_not_hold():
    for make in (at_most, at_least):
        assert make(0.0, "", "", "", [0.0, 0.0]).holds
        assert not make(0.0, "", "", "", [0.0, math.nan]).holds
    assert not at_most(0.0, "", "", "", [-1.0, 1.0]).holds
    assert not at_least(0.0, "", "", "", [-1.0, 1.0]).holds


def test_the_objectives_must_be_those_of_the_trainer():
    broken = all_findings(2, 2, 3, 0, OBJECTIVES | {"spo": OBJECTIVES["ppo-clip"]}, power_slope)
    assert [finding.source for finding in broken if not finding.holds] == ["Thm 5.2"]


def test_the_report(tmp_path, capsys):
    assert report(2, 3, 3, 0, tmp_path)
    printed = capsys.readouterr().out
    assert "2 random MDPs, 3 states, 3 actions" in printed and "NO" not in printed
    assert (tmp_path / "theory.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "theory.pdf").read_bytes().startswith(b"%PDF")
    (again,) = save(draw_theory(figure_data(3, 3, 0, OBJECTIVES)), "again", tmp_path, ("svg",))
    assert (tmp_path / "theory.svg").read_bytes() == again.read_bytes()


def test_a_claim_that_fails_ends_with_one(tmp_path, monkeypatch, capsys):
    failing = [Finding("Thm 0.0", "one is two", "largest error", 7, 1.0, False)]
    monkeypatch.setattr(bench_theory, "all_findings", lambda *_: failing)
    monkeypatch.setattr(bench_theory, "save", lambda *_: [])
    monkeypatch.setattr(bench_theory, "draw_theory", lambda *_: None)
    with pytest.raises(SystemExit) as ending:
        cli.dispatch(["theory", "--mdps", "1", "--out", str(tmp_path)])
    assert ending.value.code == 1
    assert "NO" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flag, value, accepted",
    [
        ("--mdps", "0", "from 1 to 10000"),
        ("--states", "0", "from 1 to 50"),
        ("--actions", "2", "from 3 to 50"),
        ("--seed", "-1", "from 0 to"),
    ],
)
def test_what_the_command_refuses(flag, value, accepted, tmp_path):
    with pytest.raises(SpoError, match=f"{flag} {value} is not accepted: it must be a whole number {accepted}"):
        cli.dispatch(["theory", flag, value, "--out", str(tmp_path / "out")])
    assert list(tmp_path.iterdir()) == []
