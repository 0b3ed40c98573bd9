"""Encoders: images in, features out; or what a module of the user's makes of any observation."""

import importlib
import math

import torch
from torch import Tensor, nn

from spo.errors import ConfigError, SpoError
from spo.models.cpu_convolutions import ByteConv2d, SpaceToDepthConv2d
from spo.spaces import Image, ObservationLayout

SMALLEST_FOR_NATURE = 36


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


ENCODERS = {"small": (small, 128), "nature": (nature, 512), "resnet18": (resnet18, 512)}
"""What reads an image, by name, and how many features it gives."""
ENCODER_NAMES = ("auto", "mlp", *ENCODERS)
"""What a setting or a file may name: `auto` chooses by the image's size, `mlp` flattens it."""


def encoder_for(image: Image, encoder: str) -> str:
    """Return the name of the encoder to use: the one asked for, or for auto the one that fits the image's size."""
    fits_nature = min(image.shape[1:]) >= SMALLEST_FOR_NATURE
    if encoder == "auto":
        return "nature" if fits_nature else "small"
    if encoder == "nature" and not fits_nature:
        size = f"{image.shape[1]} × {image.shape[2]}"
        accepted = ", ".join(name for name in ENCODERS if name != "nature")
        raise SpoError(f"--encoder nature needs images of at least 36 × 36, these have {size}; accepted: {accepted}")
    return encoder


class OwnEncoder(nn.Module):
    """A network of the user's own, between the packed observations (B, *shape) as floats and features (B, F).

    `package.module:Class` is made as `Class(shape)`; bytes arrive divided by 255, and numbers as they are normalised.
    """

    def __init__(self, layout: ObservationLayout, name: str, generator: torch.Generator):
        super().__init__()
        self.name, self.scale = name, layout.images[0].scale if layout.is_image else 1.0
        kind = find_own_encoder(name)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator.initial_seed())
            try:
                self.network = kind(layout.shape)
                features = self(torch.zeros(2, *layout.shape))
            except Exception as error:  # whatever the user's code raises
                raise ConfigError(f"--encoder {name} failed on observations {layout.shape}: {error}") from error
        if features.ndim != 2 or len(features) != 2:
            problem = f"it returned {tuple(features.shape)} for 2 observations of {layout.shape}"
            raise ConfigError(f"--encoder {name} is not accepted: {problem}; it must return (2, features)")
        if any(True for _ in self.network.buffers()):
            raise ConfigError(f"--encoder {name} is not accepted: it has buffers, and only parameters are saved")
        self.outputs = features.shape[1]

    def forward(self, observation: Tensor) -> Tensor:
        return self.network(observation.to(torch.float32) * (1 / self.scale))

    def preprocess(self, observation: Tensor) -> Tensor:
        return observation


def find_own_encoder(name: str) -> type[nn.Module]:
    """Import the class that `package.module:Class` names."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a user's module raises while it is imported
        raise ConfigError(f"--encoder {name} cannot be imported: {type(error).__name__}: {error}")
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ConfigError(f"--encoder {name} is a {type(found).__name__}; accepted is a class of torch.nn.Module")
    return found


def make_encoder(layout: ObservationLayout, name: str, generator: torch.Generator) -> nn.Module | None:
    """Make what reads observations before actor and critic do; vectors are read as they are."""
    if ":" in name:
        return OwnEncoder(layout, name, generator)
    return Encoder(layout, name, generator) if layout.images else None


class Encoder(nn.Module):
    """One trunk for each image; whatever else is seen joins their features as it is."""

    def __init__(self, layout: ObservationLayout, encoder: str, generator: torch.Generator):
        super().__init__()
        self.images, self.is_image, self.vector_size = layout.images, layout.is_image, layout.vector_size
        names = [encoder_for(image, encoder) for image in layout.images]
        self.trunks = nn.ModuleList(ENCODERS[name][0](image, generator) for name, image in zip(names, self.images))
        self.outputs = layout.vector_size + sum(ENCODERS[name][1] for name in names)

    def forward(self, observation: Tensor) -> Tensor:
        if self.is_image:
            return self._features(0, self.preprocess(observation))
        sizes = [self.vector_size, *(math.prod(image.shape) for image in self.images)]
        vector, *images = observation.split(sizes, dim=-1)
        shaped = [image.unflatten(-1, self.images[index].shape) for index, image in enumerate(images)]
        return torch.cat([vector, *(self._features(index, image) for index, image in enumerate(shaped))], dim=-1)

    def preprocess(self, observation: Tensor) -> Tensor:
        """The same observations in the order that the first convolution reads, if it has one of its own."""
        first = self.trunks[0][0]
        return first.to_blocks(observation) if self.is_image and isinstance(first, ByteConv2d) else observation

    def _features(self, index: int, image: Tensor) -> Tensor:
        """Channels-last in memory, which convolutions on the CPU prefer: converted in the pass that makes floats."""
        if image.ndim == 4:
            pixels = image.to(torch.float32, memory_format=torch.channels_last)
            image = pixels * (1 / self.images[index].scale)
        return self.trunks[index](image)
