"""A few samples' ratios, epoch by epoch, taken from what the update computes anyway."""

import numpy as np
import torch
from torch import Tensor

SAMPLES = 512
"""Of a batch; they are spread evenly over it, and are the same in every epoch."""


class RatioSampler:
    """Keeps the ratio, the advantage and the missing gradient of some samples of a batch in each epoch."""

    def __init__(self, batch_size: int):
        self.batch_size = batch_size
        count = min(SAMPLES, batch_size)
        self.chosen = torch.arange(count) * batch_size // count
        self.epochs: list[Tensor] = []

    def __call__(self, order: Tensor, parts: list[Tensor]) -> None:
        """Take an epoch: the order of its samples, and of each minibatch that was run what the loss says (3, samples).

        Each sample is taken as its minibatch met it, before that minibatch's gradient step.
        """
        seen = torch.cat(parts, 1).cpu()
        place = torch.full((self.batch_size,), -1)
        place[order[: seen.shape[1]]] = torch.arange(seen.shape[1])
        place = place[self.chosen]
        values = seen[:, place.clamp(min=0)]
        values[0, place < 0] = torch.nan  # the epoch ended before their minibatch
        self.epochs.append(values)

    def arrays(self, epsilon: float) -> dict[str, np.ndarray]:
        """Give what is kept on the disk: three arrays of (epochs, samples), and the width in force."""
        ratio, advantage, is_alone = torch.stack(self.epochs, 1).numpy()
        return {
            "ratio": ratio,
            "advantage": advantage,
            "zero_gradient": is_alone.astype(np.uint8),
            "epsilon": np.array([epsilon], dtype=np.float32),
        }
