"""Distributions for Box actions beside the paper's Gaussian, each exact unless its docstring says otherwise."""

import math

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from spo.models.distributions import BoxDistribution, Gaussian

NODES = 64
"""Points of the Gauss–Hermite quadrature for the entropy of a squashed Gaussian."""
EDGE = 1e-6
"""The least distance of a sample of a Beta distribution from 0 and 1, where its density may be 0 or infinite."""


class StateGaussian(Gaussian):
    """A Gaussian whose log standard deviation the network computes from the state, as it does the mean."""

    has_log_std = False

    def __init__(self, space: gym.spaces.Box, is_scaled: bool = False):
        super().__init__(space, is_scaled)
        self.outputs = self.params_size


class Squashed(Gaussian):
    """The hyperbolic tangent of a Gaussian, mapped to the bounds; what is learned from is the number before it.

    Densities are those of the environment's action and the KL is exact, for a bijection leaves it as it is. The
    entropy has no closed form: it is computed by Gauss–Hermite quadrature. The mode is the image of the Gaussian's, as
    everybody takes it; the density's own may lie at a bound.
    """

    def __init__(self, space: gym.spaces.Box):
        super().__init__(space)
        halves = (self.high.astype(np.float64) - self.low) / 2
        self.log_scale = float(np.log(halves).sum())  # of the map from ±1 to the bounds
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        self.nodes, self.weights = nodes.tolist(), (weights / math.sqrt(2 * math.pi)).tolist()

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return self.to_bounds(np.tanh(action))

    def best_action(self, params: Tensor) -> Tensor:
        return self.share_to_bounds(params[..., : self.size].tanh() * 0.5 + 0.5)

    def clipped_fraction(self, action: np.ndarray) -> float:
        return 0.0

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]  # a Gaussian's need no self
        return Gaussian.log_prob(params, action) - _log_slope(action).sum(-1) - self.log_scale

    def entropy(self, params: Tensor) -> Tensor:  # type: ignore[override]
        mean, log_std = params.chunk(2, dim=-1)
        nodes, weights = (params.new_tensor(numbers) for numbers in (self.nodes, self.weights))
        points = mean.unsqueeze(-1) + log_std.exp().unsqueeze(-1) * nodes
        return Gaussian.entropy(params) + (_log_slope(points) @ weights).sum(-1) + self.log_scale


def _log_slope(action: Tensor) -> Tensor:
    """log(1 − tanh²), without the difference that would vanish far from 0."""
    return 2 * (math.log(2) - action - functional.softplus(-2 * action))


class Beta(BoxDistribution):
    """Independent Beta distributions over the bounds. Parameters (…, 2D): of α and β, each 1 + softplus of its own.

    Learning sees shares of the way from the lower bound to the upper one.
    """

    def noise(self, generator: np.random.Generator, leading: tuple[int, ...]) -> np.ndarray:
        """A key for each sample: Beta variables take no fixed number of draws."""
        return generator.integers(0, 2**63, size=(*leading, 1), dtype=np.int64)

    def sample(self, params: np.ndarray, noise: np.ndarray) -> np.ndarray:
        alpha, beta = 1 + _softplus(params[..., : self.size]), 1 + _softplus(params[..., self.size :])
        draws = np.random.Generator(np.random.Philox(key=int(noise.flat[0]))).beta(alpha, beta)
        return np.clip(draws, EDGE, 1 - EDGE).astype(np.float32)

    def mode(self, params: np.ndarray) -> np.ndarray:
        above, below = _softplus(params[..., : self.size]), _softplus(params[..., self.size :])
        return above / np.maximum(above + below, np.finfo(np.float32).tiny)

    def to_env(self, action: np.ndarray) -> np.ndarray:
        return self.to_bounds(2 * action - 1)

    def best_action(self, params: Tensor) -> Tensor:
        above, below = functional.softplus(params).chunk(2, dim=-1)
        return self.share_to_bounds(above / (above + below).clamp(min=torch.finfo(torch.float32).tiny))

    def log_prob(self, params: Tensor, action: Tensor) -> Tensor:
        alpha, beta = _concentrations(params)
        widths = torch.from_numpy((self.high.astype(np.float64) - self.low).ravel()).to(params)
        shares = (alpha - 1) * action.log() + (beta - 1) * (-action).log1p()
        return (shares - _log_beta(alpha, beta) - widths.log()).sum(-1)

    def entropy(self, params: Tensor) -> Tensor:
        alpha, beta = _concentrations(params)
        widths = torch.from_numpy((self.high.astype(np.float64) - self.low).ravel()).to(params)
        total = alpha + beta
        parts = (total - 2) * total.digamma() - (alpha - 1) * alpha.digamma() - (beta - 1) * beta.digamma()
        return (_log_beta(alpha, beta) + parts + widths.log()).sum(-1)

    def kl(self, params: Tensor, other: Tensor) -> Tensor:
        alpha, beta = _concentrations(params)
        other_alpha, other_beta = _concentrations(other)
        total = alpha + beta
        parts = (alpha - other_alpha) * alpha.digamma() + (beta - other_beta) * beta.digamma()
        rest = (other_alpha + other_beta - total) * total.digamma()
        return (_log_beta(other_alpha, other_beta) - _log_beta(alpha, beta) + parts + rest).sum(-1)


def _concentrations(params: Tensor) -> tuple[Tensor, Tensor]:
    alpha, beta = (1 + functional.softplus(params)).chunk(2, dim=-1)
    return alpha, beta


def _log_beta(alpha: Tensor, beta: Tensor) -> Tensor:
    return alpha.lgamma() + beta.lgamma() - (alpha + beta).lgamma()


def _softplus(numbers: np.ndarray) -> np.ndarray:
    return np.logaddexp(numbers, np.float32(0))
