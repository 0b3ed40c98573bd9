"""Acting with a network: in NumPy where that is faster, else in torch."""

import copy
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor

from spo.models.networks import ACTIVATIONS, ActorCritic
from spo.runtime.torch_tuning import use_one_thread

FEW = 100_000
"""Numbers in a batch of observations, up to which one thread reads it: eight images of 64 × 64. A second thread makes
these a tenth faster on an idle machine, and twenty times slower on one so busy that either waits for the other."""


class NumpyActor:
    """Acts with a multi-layer network on the CPU, two to three times faster than torch for a few environments.

    It reads the torch parameters' memory, so it always acts with the newest ones.
    """

    def __init__(self, network: ActorCritic):
        self.activation = ACTIVATIONS[network.activation][1]
        self.actor = [(layer.weight.numpy().T, layer.bias.numpy()) for layer in network.actor[::2]]
        self.critic = [(layer.weight.numpy().T, layer.bias.numpy()) for layer in network.critic[::2]]
        self.log_std = None if network.log_std is None else network.log_std.numpy()

    def sync_weights(self) -> None:
        """Nothing to prepare: there is no copy of the parameters."""

    def __call__(self, observation: np.ndarray) -> tuple[np.ndarray, None]:
        """Parameters, but no values: those of a whole rollout at once cost a fraction of so many calls."""
        return self.dist_params(observation), None

    def dist_params(self, observation: np.ndarray) -> np.ndarray:
        outputs = self._forward(self.actor, observation)
        if self.log_std is None:
            return outputs
        dist_params = np.empty((len(outputs), 2 * outputs.shape[-1]), np.float32)
        dist_params[:, : outputs.shape[-1]], dist_params[:, outputs.shape[-1] :] = outputs, self.log_std
        return dist_params

    def value(self, observation: np.ndarray) -> np.ndarray:
        return self._forward(self.critic, observation)[..., 0]

    def _forward(self, layers: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> np.ndarray:
        for weight, bias in layers[:-1]:
            x = x @ weight
            x += bias
            x = self.activation(x)
        weight, bias = layers[-1]
        return x @ weight + bias


class TorchActor:
    """Acts with any network on any device."""

    def __init__(self, network: ActorCritic, device: str):
        self.source, self.device = network, device
        self.network = network

    @torch.no_grad()
    def sync_weights(self) -> None:
        """Act with the weights as they are now, until the next call.

        Convolutions want their weights in another order, and what is put in order once need not be for every step.
        """
        if self.network is self.source:
            self.network = copy.deepcopy(self.source).to(memory_format=torch.channels_last)
        for own, source in zip(self.network.parameters(), self.source.parameters()):
            own.copy_(source)
        self.network.sync_weights()

    @torch.inference_mode()
    def __call__(self, observation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with self._threads(observation):
            dist_params, value = self.network(self._tensor(observation))
        return dist_params.cpu().numpy(), value.cpu().numpy()

    @torch.inference_mode()
    def dist_params(self, observation: np.ndarray) -> np.ndarray:
        with self._threads(observation):
            return self.network(self._tensor(observation), "dist_params").cpu().numpy()

    @torch.inference_mode()
    def value(self, observation: np.ndarray) -> np.ndarray:
        with self._threads(observation):
            return self.network(self._tensor(observation), "value").cpu().numpy()

    def _threads(self, observation: np.ndarray) -> AbstractContextManager:
        return use_one_thread() if observation.size <= FEW and self.device == "cpu" else nullcontext()

    def _tensor(self, observation: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(observation)).to(self.device)


Actor = NumpyActor | TorchActor


def actor_for(network: ActorCritic, device: str) -> Actor:
    has_fast_path = device == "cpu" and network.encoder is None
    return NumpyActor(network) if has_fast_path else TorchActor(network, device)
