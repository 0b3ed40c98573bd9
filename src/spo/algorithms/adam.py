"""Adam on one flat vector, as functions of tensors, and the learning rate that follows the KL."""

from dataclasses import dataclass

import torch
from torch import Tensor

FIRST_BETA, SECOND_BETA = 0.9, 0.999
SMALLEST_LEARNING_RATE, LARGEST_LEARNING_RATE = 1e-5, 1e-2


@dataclass
class AdamState:
    """Moments of the gradient, and how many steps they have seen."""

    first: Tensor
    second: Tensor
    count: int = 0

    @classmethod
    def like(cls, vector: Tensor) -> "AdamState":
        return cls(torch.zeros_like(vector), torch.zeros_like(vector))

    def corrections(self) -> Tensor:
        """Adam's bias corrections of the next step, computed in double precision."""
        count = self.count + 1
        return torch.tensor([1 / (1 - FIRST_BETA**count), 1 / (1 - SECOND_BETA**count)])


def adam_step(
    vector: Tensor,
    moments: tuple[Tensor, Tensor],
    grad: Tensor,
    is_allowed: Tensor,
    learning_rate: Tensor,
    corrections: Tensor,
    eps: float,
) -> None:
    """Step in place, or change nothing at all where it is not allowed."""
    first, second = moments
    new_first = first + (1 - FIRST_BETA) * (grad - first)
    new_second = SECOND_BETA * second + (1 - SECOND_BETA) * grad.square()
    change = learning_rate * corrections[0] * new_first / ((new_second * corrections[1]).sqrt() + eps)
    vector.copy_(torch.where(is_allowed, vector - change, vector))
    first.copy_(torch.where(is_allowed, new_first, first))
    second.copy_(torch.where(is_allowed, new_second, second))


def kl_adaptive_learning_rate(learning_rate: Tensor, kl: Tensor, target: float) -> Tensor:
    """lr/1.5 if KL > 2·target, lr·1.5 if 0 < KL < target/2, within [1e-5, 1e-2]."""
    lower = (learning_rate / 1.5).clamp(min=SMALLEST_LEARNING_RATE)
    higher = (learning_rate * 1.5).clamp(max=LARGEST_LEARNING_RATE)
    adapted = torch.where((kl > 0) & (kl < target / 2), higher, learning_rate)
    return torch.where(kl > 2 * target, lower, adapted)
