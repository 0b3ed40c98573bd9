"""Action distributions.

Each is a pair of halves around one array of parameters: acting in NumPy (noise, sample, mode, to_env), because an
environment wants arrays and small NumPy calls are cheap, and learning in torch (log_prob, entropy, kl).
"""

import math

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spo.errors import SpoError

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


MASKED = -1e9
"""The logit of an action that must not be taken: its probability is exactly 0, and everything stays finite."""


class Categorical:
    """Discrete and MultiDiscrete actions: independent choices. Parameters (…, ΣK): log-probabilities, unnormalised."""

    has_log_std = False

    def __init__(self, space: gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        self.is_single = isinstance(space, gym.spaces.Discrete)
        self.sizes = (int(space.n),) if self.is_single else tuple(int(n) for n in space.nvec.ravel())
        self.start = int(space.start) if self.is_single else space.start
        self.shape = () if self.is_single else space.nvec.shape
        self.outputs = self.params_size = sum(self.sizes)
        self.action_shape, self.action_dtype = (() if self.is_single else (len(self.sizes),)), np.int64
        self.bounds = np.cumsum(self.sizes)[:-1].tolist()

    def noise(self, generator: np.random.Generator, leading: tuple[int, ...]) -> np.ndarray:
        return generator.gumbel(size=(*leading, self.params_size)).astype(np.float32)

    def sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return self.mode(params + noise)

    def mode(self, params: np.ndarray) -> np.ndarray:
        if self.is_single:
            return params.argmax(-1)
        return np.stack([part.argmax(-1) for part in np.split(params, self.bounds, axis=-1)], axis=-1)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return action.reshape(-1, *self.shape) + self.start

    def masked(self, params: Tensor | np.ndarray, mask: Tensor | np.ndarray) -> Tensor | np.ndarray:
        """Parameters that give the actions outside the mask (…, ΣK) no probability."""
        return (torch if isinstance(params, Tensor) else np).where(mask, params, MASKED)

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        actions = [action] if self.is_single else action.unbind(-1)
        return sum(
            log_prob.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
            for log_prob, chosen in zip(self._log_probs(params), actions)
        )

    def entropy(self, params: Tensor) -> Tensor:
        return sum(-(log_prob.exp() * log_prob).sum(-1) for log_prob in self._log_probs(params))

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """KL(params ‖ other), from log-softmax so that no probability needs a small constant."""
        pairs = zip(self._log_probs(params), self._log_probs(other))
        return sum((log_prob.exp() * (log_prob - other_log_prob)).sum(-1) for log_prob, other_log_prob in pairs)

    def _log_probs(self, params: Tensor) -> list[Tensor]:
        return [part.log_softmax(-1) for part in params.split(self.sizes, dim=-1)]


class Bernoulli:
    """MultiBinary actions: independent coins. Parameters (…, D): the log-odds of 1."""

    has_log_std = False

    def __init__(self, space: gym.spaces.MultiBinary):
        self.shape = space.shape
        self.outputs = self.params_size = math.prod(space.shape)
        self.action_shape, self.action_dtype = (self.params_size,), np.int8

    def noise(self, generator: np.random.Generator, leading: tuple[int, ...]) -> np.ndarray:
        return generator.logistic(size=(*leading, self.params_size)).astype(np.float32)

    def sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return self.mode(params + noise)

    def mode(self, params: np.ndarray) -> np.ndarray:
        return (params > 0).astype(np.int8)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return action.reshape(-1, *self.shape)

    @staticmethod
    def log_prob(params: Tensor, action: Tensor) -> Tensor:
        return (action * params - functional.softplus(params)).sum(-1)

    @staticmethod
    def entropy(params: Tensor) -> Tensor:
        return (functional.softplus(params) - params * params.sigmoid()).sum(-1)

    @staticmethod
    def kl(params: Tensor, other: Tensor) -> Tensor:
        """KL(params ‖ other), summed over coins."""
        difference = params.sigmoid() * (params - other)
        return (difference - functional.softplus(params) + functional.softplus(other)).sum(-1)


Distribution = Gaussian | Categorical | Bernoulli


def distribution_for(space: gym.Space) -> Distribution:
    """The distribution that fits an action space."""
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return Gaussian(space)
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return Categorical(space)
    if isinstance(space, gym.spaces.MultiBinary):
        return Bernoulli(space)
    accepted = "accepted are Box of floats, Discrete, MultiDiscrete and MultiBinary"
    raise SpoError(f"action space {space} is not supported; {accepted}")
