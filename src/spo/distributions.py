"""Action distributions.

Each is a pair of halves around one array of parameters: acting in NumPy (noise, sample, mode, to_env), because an
environment wants arrays and small NumPy calls are cheap, and learning in torch (log_prob, entropy, kl).
"""

import math

import gymnasium as gym
import numpy as np
from torch import Tensor

from spo.errors import Refusal

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Gaussian:
    """Diagonal Gaussian for Box actions. Parameters (…, 2D): the mean, then the log standard deviation."""

    def __init__(self, space: gym.spaces.Box):
        self.shape = space.shape
        self.size = math.prod(space.shape)
        self.low, self.high = space.low, space.high
        self.outputs = self.size  # of the network; the log standard deviation does not depend on the state
        self.params_size = 2 * self.size
        self.has_log_std = True
        self.action_shape, self.action_dtype = (self.size,), np.float32

    def noise(self, generator: np.random.Generator, leading: tuple[int, ...]) -> np.ndarray:
        return generator.standard_normal((*leading, self.size), dtype=np.float32)

    def sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return params[..., : self.size] + np.exp(params[..., self.size :]) * noise

    def mode(self, params: np.ndarray) -> np.ndarray:
        return params[..., : self.size]

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """The action as the environment takes it: clipped, while learning keeps the unclipped one."""
        return np.minimum(np.maximum(action.reshape(-1, *self.shape), self.low), self.high)

    @staticmethod
    def log_prob(params: Tensor, action: Tensor) -> Tensor:
        mean, log_std = params.chunk(2, dim=-1)
        return (-0.5 * ((action - mean) * (-log_std).exp()).square() - log_std - HALF_LOG_TAU).sum(-1)

    @staticmethod
    def entropy(params: Tensor) -> Tensor:
        return (params.chunk(2, dim=-1)[1] + HALF_LOG_TAU + 0.5).sum(-1)

    @staticmethod
    def kl(params: Tensor, other: Tensor) -> Tensor:
        """KL(params ‖ other), summed over action dimensions."""
        mean, log_std = params.chunk(2, dim=-1)
        other_mean, other_log_std = other.chunk(2, dim=-1)
        spread = (2 * (log_std - other_log_std)).exp() + ((mean - other_mean) * (-other_log_std).exp()).square()
        return (other_log_std - log_std + 0.5 * (spread - 1)).sum(-1)


class Categorical:
    """Discrete actions. Parameters (…, K): unnormalised log-probabilities."""

    def __init__(self, space: gym.spaces.Discrete):
        self.size = self.outputs = self.params_size = int(space.n)
        self.start = int(space.start)
        self.has_log_std = False
        self.action_shape, self.action_dtype = (), np.int64

    def noise(self, generator: np.random.Generator, leading: tuple[int, ...]) -> np.ndarray:
        return generator.gumbel(size=(*leading, self.size)).astype(np.float32)

    def sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return (params + noise).argmax(-1)

    def mode(self, params: np.ndarray) -> np.ndarray:
        return params.argmax(-1)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return action + self.start

    @staticmethod
    def log_prob(params: Tensor, action: Tensor) -> Tensor:
        return params.log_softmax(-1).gather(-1, action.unsqueeze(-1)).squeeze(-1)

    @staticmethod
    def entropy(params: Tensor) -> Tensor:
        log_prob = params.log_softmax(-1)
        return -(log_prob.exp() * log_prob).sum(-1)

    @staticmethod
    def kl(params: Tensor, other: Tensor) -> Tensor:
        """KL(params ‖ other), from log-softmax so that no probability needs a small constant."""
        log_prob = params.log_softmax(-1)
        return (log_prob.exp() * (log_prob - other.log_softmax(-1))).sum(-1)


Distribution = Gaussian | Categorical


def distribution_for(space: gym.Space) -> Distribution:
    """The distribution that fits an action space."""
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Gaussian(space)
    if isinstance(space, gym.spaces.Discrete):
        return Categorical(space)
    raise Refusal(f"action space {space} is not supported; accepted are Box of floats and Discrete")
