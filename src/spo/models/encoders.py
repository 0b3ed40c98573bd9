"""What reads observations before actor and critic do: images by an encoder, or anything by a module of the user's."""

import importlib
import math

import torch
from torch import Tensor, nn

from spo.errors import ConfigError
from spo.models.cpu_convolutions import ByteConv2d
from spo.models.image_encoders import ENCODERS, encoder_for
from spo.spaces import ObservationLayout


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
                observation = torch.rand(2, *layout.shape)
                features, again = self(observation), self(observation)
            except Exception as error:  # whatever the user's code raises
                raise ConfigError(f"--encoder {name} failed on observations {layout.shape}: {error}") from error
        if features.ndim != 2 or len(features) != 2:
            problem = f"it returned {tuple(features.shape)} for 2 observations of {layout.shape}"
            raise ConfigError(f"--encoder {name} is not accepted: {problem}; it must return (2, features)")
        if any(True for _ in self.network.buffers()):
            raise ConfigError(f"--encoder {name} is not accepted: it has buffers, and only parameters are saved")
        if not (features.is_meta or torch.allclose(features, again, rtol=1e-3, atol=1e-5)):  # sums may differ in order
            problem = "it gives other features for the same observations, as dropout does"
            raise ConfigError(f"--encoder {name} is not accepted: {problem}; no run with it could be repeated")
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
