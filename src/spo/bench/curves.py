"""The objectives as curves over the ratio, for figures that draw them without torch."""

import math

import torch

from spo.objectives import OBJECTIVES, Objective

SIGMAS = 2.0
"""How far the drawn action lies from the old mean, in standard deviations."""


def kl_of_ratio(ratio: torch.Tensor) -> torch.Tensor:
    """KL between two Gaussians of equal width whose mean moved just so far that the action's ratio is r.

    With the action SIGMAS = z standard deviations from the old mean and a move of d: log r = z·d − d²/2, KL = d²/2 (the
    same both ways), so d = z − √(z² − 2·log r).
    """
    move = SIGMAS - (SIGMAS**2 - 2 * ratio.log()).sqrt()
    return move.square() / 2


def objective_curve(objective: Objective, advantage: float, ratios: list[float]) -> tuple[list[float], list[float]]:
    """f and df/dr over the ratios: KL terms move with the ratio, a successor stays at r′ = 1 with A′ = A."""
    ratio = torch.tensor(ratios, dtype=torch.float64, requires_grad=True)
    same = torch.full_like(ratio, advantage)
    kl = kl_of_ratio(ratio)
    data = {
        "ratio": ratio,
        "log_ratio": ratio.log(),
        "advantage": same,
        "kl": kl,
        "kl_reverse": kl,
        "ratio_next": torch.ones_like(ratio),
        "advantage_next": same,
        "has_next": torch.ones_like(ratio),
    }
    f = objective.function(*(data[name] for name in objective.inputs))
    (slope,) = torch.autograd.grad(f.sum(), ratio)
    return f.tolist(), slope.tolist()


def objective_curves(points: int = 401) -> dict:
    """All objectives that are a loss, for A = ±1, over ratios from 0.02 to 2.5 in equal steps."""
    largest = min(2.5, math.exp(SIGMAS**2 / 2) * 0.99)
    ratios = [0.02 + (largest - 0.02) * i / (points - 1) for i in range(points)]
    losses = {name: objective for name, objective in OBJECTIVES.items() if not objective.trust_region}
    curves = {name: {a: objective_curve(o, a, ratios) for a in (1.0, -1.0)} for name, o in losses.items()}
    bounds = {name: objective.settings.get("epsilon") for name, objective in losses.items()}
    return {"ratios": ratios, "curves": curves, "bounds": bounds}
