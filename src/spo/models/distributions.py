"""Action distributions: the contract, and the one that fits each kind of action space.

Each is a pair of halves around one array of parameters: acting in NumPy (noise, sample, mode, to_env), because an
environment wants arrays and small NumPy calls are cheap, and learning in torch (log_prob, entropy, kl).
"""

import math
from abc import abstractmethod
from typing import Protocol

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spo.errors import ConfigError

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class Distribution(Protocol):
    """A distribution over the actions of one space, for parameters (…, P) that a network computes.

    Derive from it: by default there are no masks, nothing is clipped, and there is nothing to save.
    """

    outputs: int  # of the policy's network
    has_log_std: bool = False  # whether as many log standard deviations follow the outputs, the same in every state
    params_size: int  # P: the outputs, and the log standard deviations if there are any
    action_shape: tuple[int, ...]  # of an action as it is sampled and learned from
    action_dtype: type  # of the same
    is_continuous: bool = False  # whether it has densities, which ratios of probabilities cannot be made of

    @abstractmethod
    def noise(self, generator: np.random.Generator, leading: tuple[int, ...]) -> np.ndarray:
        """Draw all randomness of so many samples at once (*leading, …)."""

    @abstractmethod
    def sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Return the actions that the noise selects: the same noise and parameters give the same actions."""

    @abstractmethod
    def mode(self, params: np.ndarray) -> np.ndarray:
        """Return the most likely actions."""

    @abstractmethod
    def to_env(self, action: np.ndarray) -> np.ndarray:
        """Return actions (N, …) as the environment takes them, within its bounds."""

    @abstractmethod
    def best_action(self, params: Tensor) -> Tensor:
        """Return what `to_env` makes of the mode, in torch: exported policies act with it."""

    @abstractmethod
    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        """Return the log-probability, or log-density, of each action (…)."""

    @abstractmethod
    def entropy(self, params: Tensor) -> Tensor:
        """Return the entropy (…)."""

    @abstractmethod
    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        """Return KL(params ‖ other) (…)."""

    def mask(self, params: Tensor | np.ndarray, mask: Tensor | np.ndarray) -> Tensor | np.ndarray:
        """Return parameters that give the actions outside the mask (…, P) no probability, or refuse."""
        raise ConfigError(f"an action mask is not accepted by {type(self).__name__}: the actions must be Categorical")

    def clipped_fraction(self, action: np.ndarray) -> float:
        """Return the share of the components of sampled actions that `to_env` clips."""
        return 0.0

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the numbers that a policy has to save beside its parameters, by name."""
        return {}


class BoxDistribution(Distribution):
    """What distributions over a Box share: its bounds, and the way from actions of ±1 to them."""

    is_continuous = True

    def __init__(self, space: gym.spaces.Box):
        self.shape = space.shape
        self.size = math.prod(space.shape)
        self.low, self.high = space.low, space.high
        self.params_size = self.outputs = 2 * self.size
        self.action_shape, self.action_dtype = (self.size,), np.float32

    def to_bounds(self, action: np.ndarray) -> np.ndarray:
        """Map actions from ±1 to the bounds; what lies outside is clipped."""
        share = np.minimum(np.maximum(action.reshape(-1, *self.shape), -1), 1) * 0.5 + 0.5
        return np.minimum(np.maximum(self.low + share * (self.high - self.low), self.low), self.high)

    def share_to_bounds(self, share: Tensor) -> Tensor:
        """Map shares (B, D) of the way between the bounds to actions (B, …), in torch."""
        low, high = torch.from_numpy(self.low), torch.from_numpy(self.high)
        share = share.reshape(-1, *self.shape)
        return torch.minimum(torch.maximum(low + share * (high - low), low), high)

    def tensors(self) -> dict[str, np.ndarray]:
        return {"action.low": self.low, "action.high": self.high}


class Gaussian(BoxDistribution):
    """Diagonal Gaussian. Parameters (…, 2D): the mean, then the log standard deviation, the same in every state.

    Actions are in the environment's own unit, or with `is_scaled` in one in which its bounds are ±1.
    """

    has_log_std = True

    def __init__(self, space: gym.spaces.Box, is_scaled: bool = False):
        super().__init__(space)
        self.outputs, self.is_scaled = self.size, is_scaled

    def noise(self, generator: np.random.Generator, leading: tuple[int, ...]) -> np.ndarray:
        return generator.standard_normal((*leading, self.size), dtype=np.float32)

    def sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return params[..., : self.size] + np.exp(params[..., self.size :]) * noise

    def mode(self, params: np.ndarray) -> np.ndarray:
        return params[..., : self.size]

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """The action as the environment takes it: clipped, while learning keeps the unclipped one."""
        if self.is_scaled:
            return self.to_bounds(action)
        return np.minimum(np.maximum(action.reshape(-1, *self.shape), self.low), self.high)

    def best_action(self, params: Tensor) -> Tensor:
        mean = params[..., : self.size]
        if self.is_scaled:
            return self.share_to_bounds(mean.clamp(-1, 1) * 0.5 + 0.5)
        low, high = torch.from_numpy(self.low), torch.from_numpy(self.high)
        return torch.minimum(torch.maximum(mean.reshape(-1, *self.shape), low), high)

    def clipped_fraction(self, action: np.ndarray) -> float:
        low, high = (-1, 1) if self.is_scaled else (self.low.ravel(), self.high.ravel())
        return float(np.mean((action < low) | (action > high)))

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


class Categorical(Distribution):
    """Discrete and MultiDiscrete actions: independent choices. Parameters (…, ΣK): log-probabilities, unnormalised."""

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

    def best_action(self, params: Tensor) -> Tensor:
        choices = torch.stack([part.argmax(-1) for part in params.split(self.sizes, dim=-1)], dim=-1)
        return choices.reshape(-1, *self.shape) + torch.as_tensor(self.start)

    def mask(self, params: Tensor | np.ndarray, mask: Tensor | np.ndarray) -> Tensor | np.ndarray:
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


class Bernoulli(Distribution):
    """MultiBinary actions: independent coins. Parameters (…, D): the log-odds of 1."""

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

    def best_action(self, params: Tensor) -> Tensor:
        return (params > 0).to(torch.int8).reshape(-1, *self.shape)

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
