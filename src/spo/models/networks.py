"""Policy and value networks, and the flat vector that holds all their parameters."""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from spo.models.cpu_convolutions import ByteConv2d
from spo.models.distributions import Distribution
from spo.models.encoders import make_encoder
from spo.models.layers import orthogonal
from spo.spaces import ObservationLayout

ACTIVATIONS: dict[str, tuple[type[nn.Module], Callable]] = {
    "tanh": (nn.Tanh, lambda x: np.tanh(x, out=x)),
    "relu": (nn.ReLU, lambda x: np.maximum(x, 0, out=x)),
    "elu": (nn.ELU, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "silu": (nn.SiLU, lambda x: x / (1 + np.exp(-x))),
}
"""Each activation twice: for learning in torch, and for acting in NumPy."""
LARGEST_NETWORK = 2**27
"""Parameters. A checkpoint holds them three times, and has to stay below `runtime.files.LARGEST_FILE`."""


def mlp(sizes: list[int], activation: str, head_gain: float, generator: torch.Generator) -> nn.Sequential:
    """Linear layers with an activation between them, orthogonal with gain √2 and `head_gain` for the last."""
    layers = []
    for position, (inputs, outputs) in enumerate(zip(sizes[:-1], sizes[1:])):
        is_head = position == len(sizes) - 2
        layers.append(orthogonal(nn.Linear(inputs, outputs), head_gain if is_head else math.sqrt(2), generator))
        if not is_head:
            layers.append(ACTIVATIONS[activation][0]())
    return nn.Sequential(*layers)


class ActorCritic(nn.Module):
    """The distribution's parameters (B, P) and the value (B,) of observations (B, …).

    Actor and critic are separate networks; where there are images, both read the features of one encoder.
    """

    def __init__(
        self,
        layout: ObservationLayout,
        distribution: Distribution,
        hidden: tuple[int, ...],
        critic_hidden: tuple[int, ...],
        activation: str,
        encoder: str = "auto",
        seed: int = 0,
    ):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.activation = activation
        self.encoder = make_encoder(layout, encoder, generator)
        inputs = self.encoder.outputs if self.encoder else layout.shape[0]
        self.actor = mlp([inputs, *hidden, distribution.outputs], activation, 0.01, generator)
        self.log_std = nn.Parameter(torch.zeros(distribution.outputs)) if distribution.has_log_std else None
        self.critic = mlp([inputs, *critic_hidden, 1], activation, 1.0, generator)

    def forward(self, observation: Tensor, part: str | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Both outputs, or one of them: "dist_params", "value", or the value without a gradient for the encoder."""
        features = observation if self.encoder is None else self.encoder(observation)
        if part == "dist_params":
            return self._params(features)
        if part == "value":
            return self._value(features)
        if part == "value_alone":
            return self._value(features.detach())
        return self._params(features), self._value(features)

    def preprocess(self, observation: Tensor) -> Tensor:
        """The same observations, in an order that is read faster where they are read often."""
        return observation if self.encoder is None else self.encoder.preprocess(observation)

    def sync_weights(self) -> None:
        """Cache what is derived from the weights, until the next update."""
        for module in self.modules():
            if isinstance(module, ByteConv2d):
                module.sync_weights()

    def _params(self, features: Tensor) -> Tensor:
        outputs = self.actor(features)
        if self.log_std is None:
            return outputs
        return torch.cat([outputs, self.log_std.expand_as(outputs)], dim=-1)

    def _value(self, features: Tensor) -> Tensor:
        return self.critic(features).squeeze(-1)


class FlatParameters:
    """All parameters of a network as one vector, of which the network's own parameters are views.

    One vector makes the optimiser a handful of operations whatever the network, and second-order methods natural.
    """

    def __init__(self, network: nn.Module):
        self.network = network
        named = dict(network.named_parameters())
        self.names = tuple(named)
        self.shapes = [parameter.shape for parameter in named.values()]
        self.sizes = [parameter.numel() for parameter in named.values()]
        self.vector = torch.cat([parameter.detach().flatten() for parameter in named.values()])
        for parameter, view in zip(named.values(), self.unflatten(self.vector).values()):
            parameter.requires_grad_(False)
            parameter.data = view

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Names to views of any vector of this layout; `split` so that the gradient is one concatenation."""
        chunks = vector.split(self.sizes)
        return {name: chunk.view(shape) for name, chunk, shape in zip(self.names, chunks, self.shapes)}

    def call(self, vector: Tensor, observation: Tensor, part: str | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """The network's output, or a part of it, with the parameters of `vector`."""
        return torch.func.functional_call(self.network, self.unflatten(vector), (observation, part))

    @property
    def policy_size(self) -> int:
        """How many entries, from the start of the vector, belong to the policy; the rest is the critic's."""
        return sum(size for name, size in zip(self.names, self.sizes) if not name.startswith("critic."))
