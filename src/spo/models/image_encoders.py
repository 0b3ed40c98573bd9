"""Encoders: images in, features out. Each imports torch by itself, so that settings read their names without it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from spo.errors import SpoError
from spo.spaces import Image

if TYPE_CHECKING:
    import torch
    from torch import nn

SMALLEST, SMALLEST_FOR_NATURE = 3, 36


def small(image: Image, generator: torch.Generator) -> nn.Sequential:
    """One convolution for images of MinAtar's size (10 × 10)."""
    from torch import nn

    from spo.models.layers import orthogonal

    channels, height, width = image.shape
    gain = math.sqrt(2)
    convolution = orthogonal(nn.Conv2d(channels, 16, 3), gain, generator)
    linear = orthogonal(nn.Linear(16 * (height - 2) * (width - 2), 128), gain, generator)
    return nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), linear, nn.ReLU())


def nature(image: Image, generator: torch.Generator) -> nn.Sequential:
    """The network of Mnih et al. (2015): three convolutions and 512 features."""
    from torch import nn

    from spo.models.cpu_convolutions import ByteConv2d, SpaceToDepthConv2d
    from spo.models.layers import orthogonal

    convolutions = (
        ByteConv2d(image.shape[0], 32, 8, image.scale),
        SpaceToDepthConv2d(32, 64, 4, 2),
        nn.Conv2d(64, 64, 3),
    )
    layers, size = [], image.shape[1:]
    for convolution in convolutions:
        layers += [orthogonal(convolution, math.sqrt(2), generator), nn.ReLU()]
        kernel, stride = convolution.kernel_size[0], convolution.stride[0]
        size = tuple((length - kernel) // stride + 1 for length in size)
    linear = orthogonal(nn.Linear(64 * size[0] * size[1], 512), math.sqrt(2), generator)
    return nn.Sequential(*layers, nn.Flatten(), linear, nn.ReLU())


def resnet18(image: Image, generator: torch.Generator) -> nn.Sequential:
    """ResNet-18 (He et al., 2016) without batch normalisation, as the authors train it: PyTorch's default weights."""
    import torch
    from torch import nn

    from spo.models.layers import ResidualBlock

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator.initial_seed())
        layers: list[nn.Module] = [nn.Conv2d(image.shape[0], 64, 7, 2, padding=3, bias=False), nn.ReLU()]
        layers.append(nn.MaxPool2d(3, 2, padding=1))
        for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
            layers += [ResidualBlock(inputs, outputs, stride), ResidualBlock(outputs, outputs, 1)]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 512))


ENCODERS = {"small": (small, 128), "nature": (nature, 512), "resnet18": (resnet18, 512)}
"""What reads an image, by name, and how many features it gives."""
ENCODER_NAMES = ("auto", "mlp", *ENCODERS)
"""What a setting or a file may name: `auto` chooses by the image's size, `mlp` flattens it."""


def encoder_for(image: Image, encoder: str) -> str:
    """Return the name of the encoder to use: the one asked for, or for auto the one that fits the image's size."""
    size = f"{image.shape[1]} × {image.shape[2]}"
    if min(image.shape[1:]) < SMALLEST:
        raise SpoError(f"images of {size} are too small for an encoder: --encoder mlp reads them as numbers")
    fits_nature = min(image.shape[1:]) >= SMALLEST_FOR_NATURE
    if encoder == "auto":
        return "nature" if fits_nature else "small"
    if encoder == "nature" and not fits_nature:
        accepted = ", ".join(name for name in ENCODERS if name != "nature")
        raise SpoError(f"--encoder nature needs images of at least 36 × 36, these have {size}; accepted: {accepted}")
    return encoder
