"""Convolutions arranged so that a CPU computes them faster."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS_FIRST, CHANNELS_LAST = (1, 3, 5), (3, 5, 1)
"""How the numbers of a folded block follow each other: pixels of one channel, or channels of one pixel. What lies in
memory in that order is copied in runs, which is several times faster."""
BLOCK = 4
"""The stride of the first convolution of `nature`: bytes in a row of a block, as many as in a 32-bit number."""


def space_to_depth(image: Tensor, size: int, order: tuple[int, int, int]) -> Tensor:
    """(B, C, H, W) with blocks of size × size pixels as channels: (B, C·size², H/size, W/size), channels last.

    Of an image and of a kernel alike: the one convolved with the other, without a stride, gives what both gave before
    with a stride of `size`. Gradients take a quarter less time so on a CPU, whose kernels like many channels.
    """
    blocks = image.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return blocks.permute(0, 2, 4, *order).flatten(3).permute(0, 3, 1, 2)


class SpaceToDepthConv2d(nn.Conv2d):
    """A convolution that does without its stride where that pays: where a gradient is wanted, on a CPU."""

    def forward(self, image: Tensor) -> Tensor:
        size = self.stride[0]
        divides = all(length % size == 0 for length in (*image.shape[2:], *self.kernel_size))
        if not divides or not torch.is_grad_enabled() or image.device.type != "cpu":
            return super().forward(image)
        return F.conv2d(
            space_to_depth(image, size, CHANNELS_LAST), space_to_depth(self.weight, size, CHANNELS_LAST), self.bias
        )


class ByteConv2d(nn.Conv2d):
    """A first convolution, of pixels or of converted bytes, which it does without its stride of `BLOCK`."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, scale: float):
        super().__init__(inputs, outputs, kernel_size, BLOCK)
        self.scale = scale  # what bytes are divided by
        self.cached_kernel: Tensor | None = None

    def to_blocks(self, image: Tensor) -> Tensor:
        """Images of bytes folded, as (B, H/4, W/4·16·C): what is read in every epoch is converted once."""
        is_foldable = all(length % BLOCK == 0 for length in image.shape[2:]) and image.dtype == torch.uint8
        if image.ndim == 3 or not is_foldable or image.device.type != "cpu":
            return image
        rows = image.contiguous().view(torch.int32).unflatten(2, (-1, BLOCK))
        return rows.permute(0, 2, 4, 1, 3).flatten(2).view(torch.uint8)

    def forward(self, image: Tensor) -> Tensor:
        if image.ndim == 4:
            return super().forward(image)
        blocks = image.to(torch.float32).unflatten(2, (-1, BLOCK * BLOCK * self.in_channels))
        kernel = self._kernel() if self.cached_kernel is None else self.cached_kernel
        return F.conv2d(blocks.permute(0, 3, 1, 2), kernel, self.bias)

    def sync_weights(self) -> None:
        """Cache the rearranged kernel of the current weights."""
        self.cached_kernel = self._kernel()

    def _kernel(self) -> Tensor:
        """Times the scale, because there are more bytes than weights to multiply."""
        return space_to_depth(self.weight * (1 / self.scale), BLOCK, CHANNELS_FIRST)
