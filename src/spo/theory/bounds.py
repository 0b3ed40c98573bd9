"""Divergences, the lower bounds on performance, and the maxima of two of them over the trust regions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from spo.theory.mdp import MDP, Array, advantages, visitation

Divergence = Callable[[Array, Array], Array]


def tv(old: Array, new: Array) -> Array:
    """Total variation in each state: the largest difference in probability of any set of actions."""
    return np.maximum(old - new, 0).sum(-1)


def kl(old: Array, new: Array) -> Array:
    """KL(old‖new) in each state, infinite where the new policy gives up an action of the old one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = (new - old) / old
        # −log(new/old) plus the change, which cancels in the sum: no term is negative, so tiny divergences keep their
        # digits; log1p would round a probability far below the old one to 0.
        terms = old * (change - np.where(np.abs(change) < 0.5, np.log1p(change), np.log(new / old)))
    return np.where(old > 0, terms, new).sum(-1)


def root_kl(old: Array, new: Array) -> Array:
    """√(KL(old‖new)/2) in each state, by Pinsker's inequality at least the total variation."""
    return np.sqrt(kl(old, new) / 2)


@dataclass(frozen=True)
class OldPolicy:
    """What is known of the old policy: all that the bounds may use."""

    policy: Array
    advantage: Array
    visitation: Array
    gamma: float


def evaluate(mdp: MDP, policy: Array) -> OldPolicy:
    return OldPolicy(policy, advantages(mdp, policy), visitation(mdp, policy), mdp.gamma)


def expected_advantage(old: OldPolicy, new: Array) -> Array:
    """E_{a~π̃}[A_π(s, a)] in each state."""
    return (new * old.advantage).sum(-1)


def surrogate(old: OldPolicy, new: Array) -> Array:
    """E_{s~ρ_π, a~π̃}[A_π]/(1 − γ): the performance difference if the visited states stayed the same."""
    return expected_advantage(old, new) @ old.visitation / (1 - old.gamma)


def xi(old: OldPolicy, new: Array) -> Array:
    """ξ = max_s |E_{a~π̃}[A_π(s, a)]|, of the new policy."""
    return np.abs(expected_advantage(old, new)).max(-1)


def penalty(old: OldPolicy, new: Array, divergence: Divergence, largest: Array) -> Array:
    """2ξγ/(1 − γ)²·E_{s~ρ_π}[divergence] with ξ = largest."""
    return 2 * largest * old.gamma / (1 - old.gamma) ** 2 * (divergence(old.policy, new) @ old.visitation)


def tv_penalty(old: OldPolicy, new: Array) -> Array:
    return penalty(old, new, tv, xi(old, new))


def kl_penalty(old: OldPolicy, new: Array) -> Array:
    return penalty(old, new, root_kl, xi(old, new))


def tv_bound(old: OldPolicy, new: Array) -> Array:
    """The lower bound of Theorem 3.2, eq. 3."""
    return surrogate(old, new) - tv_penalty(old, new)


def kl_bound(old: OldPolicy, new: Array) -> Array:
    """The lower bound of eq. 4, by Pinsker's inequality below the other."""
    return surrogate(old, new) - kl_penalty(old, new)


def ratios(old: OldPolicy, new: Array) -> Array:
    """r = π̃/π, and 1 where the old policy never acts: such an action has no ratio, and data never show it."""
    return np.divide(new, old.policy, out=np.ones_like(new), where=old.policy > 0)


def ratio_deviation(old: OldPolicy, new: Array) -> Array:
    """E_{s~ρ_π, a~π}|r − 1|, of which the metric `ratio_deviation` is an estimate."""
    return (old.policy * np.abs(ratios(old, new) - 1)).sum(-1) @ old.visitation


def ratio_penalty(old: OldPolicy, new: Array) -> Array:
    """ξγ/(1 − γ)²·E_{s~ρ_π, a~π}|r − 1|."""
    return xi(old, new) * old.gamma / (1 - old.gamma) ** 2 * ratio_deviation(old, new)


def ratio_bound(old: OldPolicy, new: Array) -> Array:
    """The lower bound of eq. 10: everything in it but ξ is a mean over data of the old policy."""
    gain = (old.policy * ratios(old, new) * old.advantage).sum(-1) @ old.visitation
    return gain / (1 - old.gamma) - ratio_penalty(old, new)


def tv_radius(delta_kl: float) -> float:
    """The smallest δ_TV that Proposition 4.2 accepts: √(δ_KL/2)."""
    return float(np.sqrt(delta_kl / 2))


def best_of_tv(old: OldPolicy, delta: float) -> Array:
    """The policy with the highest TV bound among those with TV ≤ δ in every state."""
    return _highest(old, tv, lambda caps: _move(old, delta, caps), delta, caps=257)


def best_of_kl(old: OldPolicy, delta: float) -> Array:
    """The policy with the highest KL bound among those with KL(π‖π̃) ≤ δ in every state."""
    frontier = _kl_frontier(old, delta)
    most = expected_advantage(old, frontier[-1])

    def chosen(caps: Array) -> Array:
        gain = np.minimum(caps[:, None], most)[:, None] * np.linspace(0, 1, 33)[:, None]  # (cap, share, S)
        policies = _on_frontier(old, frontier, gain)
        value = gain - _price(old) * caps[:, None, None] * root_kl(old.policy, policies)
        return np.take_along_axis(policies, value.argmax(1)[:, None, :, None], 1)[:, 0]

    return _highest(old, root_kl, chosen, tv_radius(delta), caps=33)


def _price(old: OldPolicy) -> float:
    """What one unit of divergence costs in expected advantage, for ξ = 1."""
    return 2 * old.gamma / (1 - old.gamma)


def _highest(
    old: OldPolicy, divergence: Divergence, chosen: Callable[[Array], Array], radius: float, caps: int
) -> Array:
    """The policy with the highest bound, found by zooming in on ξ.

    ξ depends on the new policy, which makes the bounds non-concave. With ξ ≤ cap, and the divergence priced as if
    ξ = cap, the states are independent and `chosen` solves each; the highest bound is the highest over all caps.
    Within the radius no state gains more than radius·spread, and above spread/price no move pays.
    """
    spread = (old.advantage.max(-1) - old.advantage.min(-1)).max()
    low, high = 0.0, spread * min(radius, 1 / _price(old))
    for _ in range(7):
        grid = np.linspace(low, high, caps)
        policies = chosen(grid)
        best = int(np.argmax(surrogate(old, policies) - penalty(old, policies, divergence, grid)))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, caps - 1)]
    return policies[best]


def _move(old: OldPolicy, delta: float, caps: Array) -> Array:
    """For each cap (cap, S, A): probability moves to the best action, from the worst first, as long as it pays.

    In each state it moves at most δ and gains at most the cap.
    """
    order, cap = old.advantage.argsort(-1), caps[:, None, None]
    policy, advantage = (np.take_along_axis(values, order, -1) for values in (old.policy, old.advantage))
    gain = advantage[:, -1:] - advantage
    mass = np.where(gain > _price(old) * cap, policy, 0.0)
    mass = np.diff(np.minimum(mass.cumsum(-1), delta), prepend=0.0)
    mass = np.diff(np.minimum((gain * mass).cumsum(-1), cap), prepend=0.0) / np.where(gain > 0, gain, 1)
    moved = policy - mass
    moved[..., -1] += mass.sum(-1)
    return np.take_along_axis(moved, order.argsort(-1)[None], -1)


def _kl_frontier(old: OldPolicy, delta: float) -> Array:
    """Policies (point, S, A) with the highest expected advantage for their KL: π̃ ∝ π/(ν − A) with ν above max A.

    They begin at the old policy and end, by falling ν, at the edge of the trust region.
    """
    below = old.advantage.max(-1, keepdims=True) - old.advantage

    def tilt(log_distance: Array) -> Array:
        weight = old.policy / (np.exp(log_distance)[..., None] + below)
        return weight / weight.sum(-1, keepdims=True)

    low, high = np.full(len(old.policy), -500.0), np.full(len(old.policy), 50.0)
    for _ in range(100):
        middle = (low + high) / 2
        is_inside = kl(old.policy, tilt(middle)) <= delta
        low, high = np.where(is_inside, low, middle), np.where(is_inside, middle, high)
    return np.concatenate([old.policy[None], tilt(high + np.linspace(12, 0, 400)[:, None])])


def _on_frontier(old: OldPolicy, frontier: Array, gain: Array) -> Array:
    """The frontier's policies (..., S, A) for given expected advantages (..., S), between its points by mixing."""
    policies = np.empty((*gain.shape, old.policy.shape[-1]))
    known = expected_advantage(old, frontier)
    for state, action in np.ndindex(old.policy.shape):
        policies[..., state, action] = np.interp(gain[..., state], known[:, state], frontier[:, state, action])
    return policies
