"""The policy objectives, each a pure per-sample function to maximise.

Positional parameters are data, one value per sample; keyword-only parameters are settings. The signature is the
contract: the trainer computes only what a function asks for. Notation: `ratio` r = π_new(a|s) / π_old(a|s),
`advantage` A after the trainer's normalisation, `epsilon` ε the width of the ratio bound.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

INPUTS = ("ratio", "log_ratio", "advantage", "kl", "kl_reverse", "ratio_next", "advantage_next", "has_next")
"""What an objective may ask for."""


def spo(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """r·A − |A|·(r − 1)² / 2ε: concave in r, highest at r = 1 + sign(A)·ε (eq. 16 of the SPO paper)."""
    return ratio * advantage - advantage.abs() * (ratio - 1).square() / (2 * epsilon)


def ppo_clip(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """min(r·A, clip(r, 1 − ε, 1 + ε)·A): flat, so without gradient, beyond the bound (eq. 7 of the PPO paper)."""
    return torch.minimum(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon) * advantage)


def simple(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """−(r − 1 − sign(A)·ε)²: the same maximum as SPO, blind to the size of A (f_simple, §5.1 of the SPO paper)."""
    return -(ratio - 1 - advantage.sign() * epsilon).square()


@dataclass(frozen=True)
class Objective:
    """A named objective and what its signature says about it."""

    name: str
    function: Callable[..., Tensor]

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The per-sample data that the function asks for, in its order."""
        return tuple(name for name, p in self._parameters.items() if p.kind is not p.KEYWORD_ONLY)

    @cached_property
    def settings(self) -> dict[str, float]:
        """The settings of the function with their defaults."""
        return {name: p.default for name, p in self._parameters.items() if p.kind is p.KEYWORD_ONLY}

    @property
    def formula(self) -> str:
        return inspect.getdoc(self.function).split("\n")[0]

    @cached_property
    def _parameters(self):
        return inspect.signature(self.function).parameters


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("spo", spo),
        Objective("ppo-clip", ppo_clip),
        Objective("simple", simple),
    )
}
