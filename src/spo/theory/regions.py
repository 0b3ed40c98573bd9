"""Claims about the two trust regions: what a bound on ratios or TV leaves of the KL, and Ω_KL ⊂ Ω_TV."""

import numpy as np

from spo.theory.bounds import kl, tv, tv_radius
from spo.theory.mdp import Array

MOST_DIMENSIONS = 8
"""Of the Gaussians' actions."""


def action_growth_error(old: Array, epsilon: float, random: np.random.Generator) -> float:
    """KL rises by π(b)·log 10 with every digit that π̃(b) loses: over 180 digits, relative to that."""
    taken, lost = random.choice(len(old), 2, replace=False)
    ratio = random.uniform(1 - epsilon, min(1 + epsilon, 1 / old[taken]))
    before, after = (kl(old, shift_mass(old, taken, ratio, lost, rest)) for rest in (1e-20, 1e-200))
    return abs((after - before) / (old[lost] * 180 * np.log(10)) - 1)


def shift_mass(old: Array, taken: int, ratio: float, lost: int, rest: float) -> Array:
    """A policy of one state with the given ratio of the taken action that leaves `rest` to the lost one."""
    new = old * (1 - ratio * old[taken] - rest) / (1 - old[taken] - old[lost])
    new[taken], new[lost] = ratio * old[taken], rest
    return new


def random_squeeze(epsilon: float, random: np.random.Generator) -> tuple[Array, Array, float]:
    """An action, a direction that is a coordinate's as often as not (uncorrelated as a trainer's), and a ratio."""
    dimensions = random.integers(1, MOST_DIMENSIONS + 1)
    direction = random.choice([np.eye(dimensions)[0], random.normal(size=dimensions)])
    return random.normal(size=dimensions), direction / np.linalg.norm(direction), 1 + random.uniform(-1, 1) * epsilon


def gaussian_growth_error(action: Array, direction: Array, ratio: float) -> float:
    """KL rises a hundredfold with every digit that the narrowest standard deviation loses, in the end."""
    before, after = (gaussian_kl(*squeeze(action, direction, ratio, std)) for std in (1e-6, 1e-7))
    return abs(after / before / 100 - 1)


def squeeze(action: Array, direction: Array, ratio: float, std: float) -> tuple[Array, Array]:
    """Mean and precision matrix of the Gaussian that is N(0, I) but along one direction, where it has this width.

    Its mean gives the action its ratio against N(0, I), of which every Gaussian is an affine image.
    """
    along = action @ direction
    mean = along - std * np.sqrt(along**2 - 2 * np.log(ratio * std))
    return mean * direction, np.eye(len(action)) + (std**-2 - 1) * np.outer(direction, direction)


def gaussian_kl(mean: Array, precision: Array) -> float:
    """KL(N(0, I)‖N(mean, precision⁻¹))."""
    return (np.trace(precision) - len(mean) + mean @ precision @ mean - np.linalg.slogdet(precision)[1]) / 2


def drop_rarest(old: Array) -> Array:
    """In every state the action of least probability is given up, so TV is that probability."""
    new = old.copy()
    np.put_along_axis(new, old.argmin(-1, keepdims=True), 0.0, -1)
    return new / new.sum(-1, keepdims=True)


def kl_share_left(old: Array, epsilon: float, random: np.random.Generator) -> Array:
    """What a policy with all ratios within 1 ± ε leaves of the limit on the KL, in each state."""
    return 1 + 2 * kl(old, within(old, epsilon, random)) / np.log1p(-(epsilon**2))


def within(old: Array, epsilon: float, random: np.random.Generator) -> Array:
    """A policy whose ratios reach 1 + ε or 1 − ε in every state, and never exceed them."""
    direction = random.normal(size=old.shape)
    direction -= (old * direction).sum(-1, keepdims=True)
    return old * (1 + epsilon * direction / np.abs(direction).max(-1, keepdims=True))


def inclusion_margin(old: Array, delta_kl: float, random: np.random.Generator) -> Array:
    """What policies on the edge of Ω_KL leave of δ_TV, in each state."""
    return 1 - tv(old, edge_of_kl(old, targets(old, random), delta_kl)) / tv_radius(delta_kl)


def strictness_margin(old: Array, delta_kl: float, random: np.random.Generator) -> Array:
    """How far policies on the edge of Ω_TV are outside Ω_KL, in each state."""
    return kl(old, edge_of_tv(old, targets(old, random), tv_radius(delta_kl))) / delta_kl - 1


def targets(old: Array, random: np.random.Generator) -> Array:
    """Policies to walk to from the old one; each gives up an action, so the KL on the way has no bound."""
    weight = random.dirichlet(np.ones(old.shape[-1]), len(old))
    weight[np.arange(len(old)), random.integers(old.shape[-1], size=len(old))] = 0
    return weight / weight.sum(-1, keepdims=True)


def edge_of_tv(old: Array, aim: Array, delta: float) -> Array:
    """On the straight way to the aim, as far in each state as TV ≤ δ allows."""
    step = np.minimum(delta / tv(old, aim), 1)[:, None]
    return old + step * (aim - old)


def edge_of_kl(old: Array, aim: Array, delta: float) -> Array:
    """On the straight way to the aim, as far in each state as KL(π‖π̃) ≤ δ allows."""
    low, high = np.zeros((len(old), 1)), np.ones((len(old), 1))
    for _ in range(60):
        middle = (low + high) / 2
        is_inside = (kl(old, old + middle * (aim - old)) <= delta)[:, None]
        low, high = np.where(is_inside, middle, low), np.where(is_inside, high, middle)
    return old + low * (aim - old)
