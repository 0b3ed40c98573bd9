"""A rollout as one flat batch, with all that learning needs."""

import numpy as np
import torch
from torch import Tensor

from spo.models.distributions import Distribution
from spo.rollout import Rollout
from spo.spaces import ObservationLayout

Batch = dict[str, Tensor]


def make_batch(
    rollout: Rollout, advantage: Tensor, distribution: Distribution, device: str, with_next_step: bool = False
) -> Batch:
    """The rollout flattened from (T, N) to (B,), with what learning needs."""
    batch = {
        "observation": rollout.observation,
        "action": rollout.action,
        "old_log_prob": distribution.log_prob(rollout.dist_params, rollout.action),
        "old_value": rollout.value,
        "old_dist_params": rollout.dist_params,
        "value_target": rollout.value + advantage,
        "advantage": advantage,
    }
    if rollout.mask is not None:
        batch["mask"] = rollout.mask
    if with_next_step:
        batch |= shift_to_next_step(batch, rollout.done)
    return {name: tensor.flatten(0, 1).to(device) for name, tensor in batch.items()}


def shift_to_next_step(batch: Batch, done: Tensor) -> Batch:
    """For each (t, n) what belongs to (t + 1, n); no pair crosses an episode's or the rollout's end."""
    has_next = (~done).float()
    has_next[-1] = 0.0
    names = [name for name in ("observation", "action", "old_log_prob", "advantage", "mask") if name in batch]
    shifted = {f"next_{name}": torch.cat([batch[name][1:], batch[name][-1:]]) for name in names}
    return shifted | {"has_next": has_next}


def example_batch(layout: ObservationLayout, distribution: Distribution, size: int, masked: bool = False) -> Batch:
    """A batch of zeros with the shapes and types of a real one, to compile with; no two tensors are the same."""
    batch = {}
    for prefix in ("", "next_"):
        observation = np.zeros((size, *layout.shape), layout.dtype)
        action = np.zeros((size, *distribution.action_shape), distribution.action_dtype)
        batch |= {f"{prefix}observation": torch.from_numpy(observation), f"{prefix}action": torch.from_numpy(action)}
        batch |= {f"{prefix}{name}": torch.zeros(size) for name in ("old_log_prob", "advantage")}
        if masked:
            batch[f"{prefix}mask"] = torch.ones(size, distribution.params_size, dtype=torch.bool)
    batch |= {name: torch.zeros(size) for name in ("old_value", "value_target", "has_next")}
    return batch | {"old_dist_params": torch.zeros(size, distribution.params_size)}
