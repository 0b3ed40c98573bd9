"""The objectives as curves over the ratio, for figures that draw them without torch."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from spo.objectives import OBJECTIVES, Objective

PROBABILITY = 0.4
"""What the old policy gives the drawn action, so that a probability of 1 ends the drawing at r = 2.5."""
SIGMAS = 2.0
"""How far the drawn action lies from the old mean, in standard deviations."""
SHOWN = {"drpo": {"delta": 0.2}}
"""Settings of the drawings where the defaults give straight lines."""
STRIDES = (0.7548776662466927, 0.5698402909980532)
"""Powers of 1/x with x³ = x + 1: multiples of them, modulo 1, fill a square more evenly than random draws."""


class Curve(NamedTuple):
    """An objective and its slope, sample by sample."""

    f: list[float]
    slope: list[float]


@dataclass(frozen=True)
class ObjectiveCurves:
    """Every objective over the same ratios."""

    ratios: list[float]
    curves: dict[str, dict[float, Curve]]  # by objective and advantage
    bounds: dict[str, float | None]  # epsilon, where the objective has one
    shown: dict[str, dict[str, float]]  # settings that are not the defaults


@dataclass(frozen=True)
class GradientPoints:
    """Samples, and the slope of each under some objectives."""

    epsilon: float
    ratio: list[float]
    advantage: list[float]
    slope: dict[str, list[float]]  # by objective


def kl_of_ratio(ratio: torch.Tensor) -> torch.Tensor:
    """KL between two Gaussians of equal width whose mean moved just so far that the action's ratio is r.

    With the action SIGMAS = z standard deviations from the old mean and a move of d: log r = z·d − d²/2, KL = d²/2 (the
    same both ways), so d = z − √(z² − 2·log r).
    """
    move = SIGMAS - (SIGMAS**2 - 2 * ratio.log()).sqrt()
    return move.square() / 2


def objective_at(
    objective: Objective, ratios: list[float], advantages: list[float] | float, **settings: float
) -> Curve:
    """f and df/dr of each sample, with advantages of their own or one for all.

    KL terms move with the ratio, a successor stays at r′ = 1 with A′ = A, the old probability is the same everywhere.
    """
    ratio = torch.tensor(ratios, dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor(advantages, dtype=torch.float64).expand_as(ratio)
    kl = kl_of_ratio(ratio)
    data = {
        "ratio": ratio,
        "log_ratio": ratio.log(),
        "advantage": advantage,
        "kl": kl,
        "kl_reverse": kl,
        "next_ratio": torch.ones_like(ratio),
        "next_advantage": advantage,
        "has_next": torch.ones_like(ratio),
        "old_log_prob": torch.full_like(ratio, math.log(PROBABILITY)),
    }
    f = objective.function(*(data[name] for name in objective.inputs), **settings)
    (slope,) = torch.autograd.grad(f.sum(), ratio)
    return Curve(f.tolist(), slope.tolist())


def objective_curves(points: int = 401) -> ObjectiveCurves:
    """All objectives that are a loss, for A = ±1, over ratios from 0.02 to 2.5 in equal steps."""
    largest = min(2.5, math.exp(SIGMAS**2 / 2) * 0.99)
    ratios = [0.02 + (largest - 0.02) * i / (points - 1) for i in range(points)]
    losses = {name: objective for name, objective in OBJECTIVES.items() if not objective.trust_region}
    curves = {
        name: {
            advantage: objective_at(objective, ratios, advantage, **SHOWN.get(name, {})) for advantage in (1.0, -1.0)
        }
        for name, objective in losses.items()
    }
    bounds = {name: objective.settings.get("epsilon") for name, objective in losses.items()}
    return ObjectiveCurves(ratios, curves, bounds, SHOWN)


def gradient_points(names: tuple[str, ...] = ("ppo-clip", "spo"), points: int = 110) -> GradientPoints:
    """Samples spread evenly over a window of ratio and advantage, and df/dr of each under the named objectives."""
    spread = [((0.5 + i * STRIDES[0]) % 1, (0.5 + i * STRIDES[1]) % 1) for i in range(1, points + 1)]
    ratios, advantages = [0.45 + 1.1 * x for x, _ in spread], [4 * y - 2 for _, y in spread]
    slopes = {name: objective_at(OBJECTIVES[name], ratios, advantages).slope for name in names}
    return GradientPoints(OBJECTIVES[names[0]].settings["epsilon"], ratios, advantages, slopes)
