"""Convolutional encoders: images in, features out."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spo.errors import Refusal
from spo.spaces import Image, ObservationLayout

ENCODERS = ("auto", "mlp", "small", "nature", "resnet18")
SMALLEST_FOR_NATURE = 36
CHANNELS_FIRST, CHANNELS_LAST = (1, 3, 5), (3, 5, 1)
"""How the numbers of a folded block follow each other: pixels of one channel, or channels of one pixel. What lies in
memory in that order is copied in runs, which is several times faster."""
BLOCK = 4
"""The stride of the first convolution of `nature`: bytes in a row of a block, as many as in a 32-bit number."""


def folded(image: Tensor, size: int, order: tuple[int, int, int]) -> Tensor:
    """(B, C, H, W) with blocks of size × size pixels as channels: (B, C·size², H/size, W/size), channels last.

    Of an image and of a kernel alike: the one convolved with the other, without a stride, gives what both gave before
    with a stride of `size`. Gradients take a quarter less time so on a CPU, whose kernels like many channels.
    """
    blocks = image.unflatten(3, (-1, size)).unflatten(2, (-1, size))
    return blocks.permute(0, 2, 4, *order).flatten(3).permute(0, 3, 1, 2)


class FoldedConv2d(nn.Conv2d):
    """A convolution that does without its stride where that pays: where a gradient is wanted, on a CPU."""

    def forward(self, image: Tensor) -> Tensor:
        size = self.stride[0]
        divides = all(length % size == 0 for length in (*image.shape[2:], *self.kernel_size))
        if not divides or not torch.is_grad_enabled() or image.device.type != "cpu":
            return super().forward(image)
        return F.conv2d(folded(image, size, CHANNELS_LAST), folded(self.weight, size, CHANNELS_LAST), self.bias)


class BytesConv2d(nn.Conv2d):
    """A first convolution, of pixels or of prepared bytes, which it does without its stride of `BLOCK`."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, scale: float):
        super().__init__(inputs, outputs, kernel_size, BLOCK)
        self.scale = scale  # what bytes are divided by
        self.settled: Tensor | None = None

    def prepared(self, image: Tensor) -> Tensor:
        """Images of bytes folded, as (B, H/4, W/4·16·C): what is read in every epoch is prepared once."""
        is_foldable = all(length % BLOCK == 0 for length in image.shape[2:]) and image.dtype == torch.uint8
        if image.ndim == 3 or not is_foldable or image.device.type != "cpu":
            return image
        rows = image.contiguous().view(torch.int32).unflatten(2, (-1, BLOCK))
        return rows.permute(0, 2, 4, 1, 3).flatten(2).view(torch.uint8)

    def forward(self, image: Tensor) -> Tensor:
        if image.ndim == 4:
            return super().forward(image)
        blocks = image.to(torch.float32).unflatten(2, (-1, BLOCK * BLOCK * self.in_channels))
        kernel = self._kernel() if self.settled is None else self.settled
        return F.conv2d(blocks.permute(0, 3, 1, 2), kernel, self.bias)

    def settle(self) -> None:
        """Keeps what would be computed from the weights for every image: for weights that stay as they are."""
        self.settled = self._kernel()

    def _kernel(self) -> Tensor:
        """Times the scale, because there are more bytes than weights to multiply."""
        return folded(self.weight * (1 / self.scale), BLOCK, CHANNELS_FIRST)


def orthogonal(layer: nn.Module, gain: float, generator: torch.Generator) -> nn.Module:
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def small(image: Image, generator: torch.Generator) -> nn.Sequential:
    """One convolution for images of MinAtar's size (10 × 10)."""
    channels, height, width = image.shape
    gain = math.sqrt(2)
    convolution = orthogonal(nn.Conv2d(channels, 16, 3), gain, generator)
    linear = orthogonal(nn.Linear(16 * (height - 2) * (width - 2), 128), gain, generator)
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), linear, nn.ReLU())


def nature(image: Image, generator: torch.Generator) -> nn.Sequential:
    """The network of Mnih et al. (2015): three convolutions and 512 features."""
    convolutions = (BytesConv2d(image.shape[0], 32, 8, image.scale), FoldedConv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3))
    layers, size = [], image.shape[1:]
    for convolution in convolutions:
        layers += [orthogonal(convolution, math.sqrt(2), generator), nn.ReLU()]
        kernel, stride = convolution.kernel_size[0], convolution.stride[0]
        size = tuple((length - kernel) // stride + 1 for length in size)
    linear = orthogonal(nn.Linear(64 * size[0] * size[1], 512), math.sqrt(2), generator)
    return nn.Sequential(*layers, nn.Flatten(), linear, nn.ReLU())


class ResidualBlock(nn.Module):
    """Two 3 × 3 convolutions around a shortcut, without batch normalisation."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


def resnet18(image: Image, generator: torch.Generator) -> nn.Sequential:
    """ResNet-18 (He et al., 2016) without batch normalisation, as the authors train it: PyTorch's default weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        layers: list[nn.Module] = [nn.Conv2d(image.shape[0], 64, 7, 2, padding=3, bias=False), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, padding=1))
        for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
            layers += [ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 512))


TRUNKS = {"small": (small, 128), "nature": (nature, 512), "resnet18": (resnet18, 512)}
"""Each trunk, and how many features it gives."""


def trunk_for(image: Image, encoder: str) -> str:
    """The named trunk, or for auto the one that fits the image's size."""
    fits_nature = min(image.shape[1:]) >= SMALLEST_FOR_NATURE
    if encoder == "auto":
        return "nature" if fits_nature else "small"
    if encoder == "nature" and not fits_nature:
        size = f"{image.shape[1]} × {image.shape[2]}"
        raise Refusal(
            f"--encoder nature needs images of at least 36 × 36, these have {size}; accepted: small, resnet18"
        )
    return encoder


class Encoder(nn.Module):
    """One trunk for each image; whatever else is seen joins their features as it is."""

    def __init__(self, layout: ObservationLayout, encoder: str, generator: torch.Generator):
        super().__init__()
        self.images, self.is_image, self.vector_size = layout.images, layout.is_image, layout.vector_size
        names = [trunk_for(image, encoder) for image in layout.images]
        self.trunks = nn.ModuleList(TRUNKS[name][0](image, generator) for name, image in zip(names, self.images))
        self.outputs = layout.vector_size + sum(TRUNKS[name][1] for name in names)

    def forward(self, observation: Tensor) -> Tensor:
        if self.is_image:
            return self._features(0, self.prepared(observation))
        sizes = [self.vector_size, *(math.prod(image.shape) for image in self.images)]
        vector, *images = observation.split(sizes, dim=-1)
        shaped = [image.unflatten(-1, self.images[index].shape) for index, image in enumerate(images)]
        return torch.cat([vector, *(self._features(index, image) for index, image in enumerate(shaped))], dim=-1)

    def prepared(self, observation: Tensor) -> Tensor:
        """The same observations in the order that the first convolution reads, if it has one of its own."""
        first = self.trunks[0][0]
        return first.prepared(observation) if self.is_image and isinstance(first, BytesConv2d) else observation

    def _features(self, index: int, image: Tensor) -> Tensor:
        """Channels-last in memory, which convolutions on the CPU prefer: converted in the pass that makes floats."""
        if image.ndim == 4:
            pixels = image.to(torch.float32, memory_format=torch.channels_last)
            image = pixels * (1 / self.images[index].scale)
        return self.trunks[index](image)
