"""A few samples' ratios, epoch by epoch, taken from what the update computes anyway."""

import numpy as np
import torch
from torch import Tensor

SAMPLES = 512
"""Of a batch; they are spread evenly over it, and are the same in every epoch."""


class RatioSampler:
    """Keeps the ratio, the advantage and the missing gradient of some samples of a batch in each epoch.

    While the epochs go on it only holds on to what they computed; `arrays` then takes the samples out of it at once.
    """

    def __init__(self, batch_size: int):
        self.numbers, count = np.arange(batch_size), min(SAMPLES, batch_size)
        self.chosen = np.arange(count) * batch_size // count
        self.orders: list[Tensor] = []
        self.parts: list[list[Tensor]] = []

    def __call__(self, order: Tensor, parts: list[Tensor]) -> None:
        """Take an epoch: the order of its samples, and of each minibatch that was run what the loss says (3, samples).

        Each sample is taken as its minibatch met it, before that minibatch's gradient step.
        """
        self.orders.append(order)
        self.parts.append(parts)

    def arrays(self, epsilon: float) -> dict[str, np.ndarray]:
        """Give what is kept on the disk: three arrays of (epochs, samples), and the width in force."""
        seen = torch.cat([part for parts in self.parts for part in parts], 1).cpu().numpy()
        counts = np.array([[sum(part.shape[1] for part in parts)] for parts in self.parts])
        places = np.stack([self._places(order) for order in self.orders])
        starts = np.cumsum(counts, 0) - counts
        ratio, advantage, is_alone = seen.take(starts + np.minimum(places, counts - 1), 1)
        ratio[places >= counts] = np.nan  # the epoch ended before their minibatch
        return {
            "ratio": ratio,
            "advantage": advantage,
            "zero_gradient": is_alone.astype(np.uint8),
            "epsilon": np.array([epsilon], dtype=np.float32),
        }

    def _places(self, order: Tensor) -> np.ndarray:
        """Find where in an epoch's order the chosen samples stand."""
        place = np.empty_like(self.numbers)
        place[order.numpy()] = self.numbers
        return place[self.chosen]
