"""A rollout as one flat batch, with all that learning needs."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from spo.models.distributions import Distribution
from spo.rollout import Rollout
from spo.spaces import ObservationLayout


class NextStep(NamedTuple):
    """What belongs to the sample that follows each one in its episode, all (B, …)."""

    observation: Tensor
    action: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    has_next: Tensor  # 1.0, or 0.0 where the episode or the rollout ends: the rest is meaningless there
    mask: Tensor | None = None


class Batch(NamedTuple):
    """The samples of a rollout, all (B, …); a tuple of tensors, as torch.compile wants it."""

    observation: Tensor
    action: Tensor
    old_log_prob: Tensor
    old_value: Tensor
    old_dist_params: Tensor  # (B, P) of the old policy's distributions
    value_target: Tensor
    advantage: Tensor
    mask: Tensor | None = None  # (B, P) bool: the actions that were allowed; None if all always are
    next_step: NextStep | None = None  # where the objective asks for it

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """Apply a function to every tensor."""
        *own, next_step = self
        next_step = None if next_step is None else NextStep._make(_map(function, next_step))
        return Batch._make([*_map(function, own), next_step])

    def rows(self, start: int, stop: int) -> "Batch":
        return self.map(lambda tensor: tensor[start:stop])


def _map(function: Callable[[Tensor], Tensor], tensors: Iterable[Tensor | None]) -> Iterator[Any]:
    return (None if tensor is None else function(tensor) for tensor in tensors)


def make_batch(
    rollout: Rollout, advantage: Tensor, distribution: Distribution, device: str, with_next_step: bool = False
) -> Batch:
    """The rollout flattened from (T, N) to (B,), with what learning needs."""
    batch = Batch(
        observation=rollout.observation,
        action=rollout.action,
        old_log_prob=distribution.log_prob(rollout.dist_params, rollout.action),
        old_value=rollout.value,
        old_dist_params=rollout.dist_params,
        value_target=rollout.value + advantage,
        advantage=advantage,
        mask=rollout.mask,
    )
    if with_next_step:
        batch = batch._replace(next_step=shift_to_next_step(batch, rollout.done))
    return batch.map(lambda tensor: tensor.flatten(0, 1).to(device))


def shift_to_next_step(batch: Batch, done: Tensor) -> NextStep:
    """For each (t, n) what belongs to (t + 1, n); no pair crosses an episode's or the rollout's end."""
    has_next = (~done).float()
    has_next[-1] = 0.0
    own = NextStep(batch.observation, batch.action, batch.old_log_prob, batch.advantage, has_next, batch.mask)
    shifted = NextStep._make(_map(lambda tensor: torch.cat([tensor[1:], tensor[-1:]]), own))
    return shifted._replace(has_next=has_next)


def example_batch(
    layout: ObservationLayout,
    distribution: Distribution,
    size: int,
    masked: bool = False,
    with_next_step: bool = False,
) -> Batch:
    """A batch of zeros with the shapes and types of a real one, to compile with; no two tensors are the same."""

    def zeros(shape: tuple[int, ...] = (), dtype: type | np.dtype = np.float32) -> Tensor:
        return torch.from_numpy(np.zeros((size, *shape), dtype))

    def steps() -> tuple[Tensor, Tensor, Tensor]:
        return zeros(layout.shape, layout.dtype), zeros(distribution.action_shape, distribution.action_dtype), zeros()

    def mask() -> Tensor | None:
        return torch.ones(size, distribution.params_size, dtype=torch.bool) if masked else None

    dist_params = zeros((distribution.params_size,))
    next_step = NextStep(*steps(), zeros(), zeros(), mask()) if with_next_step else None
    return Batch(*steps(), zeros(), dist_params, zeros(), zeros(), mask(), next_step)
