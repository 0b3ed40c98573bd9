"""Losses as functions of the flat parameter vector and a minibatch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from spo.algorithms.batch import Batch, NextStep
from spo.algorithms.metrics import POLICY_STATISTICS, Stats, gradient_statistics, ratio_statistics, sample_statistics
from spo.config.config import Config
from spo.errors import ConfigError
from spo.models.distributions import Distribution
from spo.models.networks import FlatParameters
from spo.objectives import clamp_log_ratio, ratio_of, settings_of

AdaptiveTensors = dict[str, Tensor]
"""Settings that change during a run, as tensors, so that a compiled step need not be compiled again."""


def normalize(advantage: Tensor, reference: Tensor) -> Tensor:
    """Minus the mean and divided by the standard deviation of the reference."""
    return (advantage - reference.mean()) / (reference.std() + 1e-8)


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, bound: float | None) -> Tensor:
    """½·mean of the squared error, or of the larger of it and the error of the value clipped around the old one."""
    error = (value - target).square()
    if bound is not None:
        clipped = old_value + (value - old_value).clamp(-bound, bound)
        error = torch.maximum(error, (clipped - target).square())
    return 0.5 * error.mean()


def gradient(function: Callable[..., Any], variable: Tensor, *arguments: object) -> tuple[Tensor, Any]:
    """Gradient of a scalar function at a variable, and what the function returns beside the scalar.

    torch.func is what a fullgraph compilation can trace; plain autograd is a third faster without one.
    """
    if torch.compiler.is_compiling():
        return torch.func.grad(function, has_aux=True)(variable.detach(), *arguments)
    leaf = variable.detach().requires_grad_()
    with torch.enable_grad():
        scalar, auxiliary = function(leaf, *arguments)
    return torch.autograd.grad(scalar, leaf)[0], auxiliary


@dataclass
class Surrogate:
    """An objective with its settings bound, and the names of what it takes, in its order."""

    function: Callable[..., Tensor]
    inputs: tuple[str, ...]

    @classmethod
    def of(cls, config: Config) -> "Surrogate":
        objective, values = config.resolved_objective, config.objective_settings
        moving = {objective.adaptive_setting, *config.widths_at(0)}
        own = {name: values[name] for name in settings_of(objective.function) if name not in moving}
        return cls(partial(objective.function, **own), objective.inputs)

    def arguments(self, log_ratio: Tensor, inputs: dict[str, Tensor]) -> list[Tensor]:
        """What to call the function with; everything but the ratio comes from `inputs`."""
        inputs = inputs | {"ratio": log_ratio.exp(), "log_ratio": log_ratio}
        return [inputs[name] for name in self.inputs]

    def log_ratio_gradient(self, log_ratio: Tensor, inputs: dict[str, Tensor], adaptive: AdaptiveTensors) -> Tensor:
        """r·∂f/∂r per sample: what the objective does with each sample's probability."""
        inputs = {name: tensor.detach() for name, tensor in inputs.items()}
        return gradient(lambda x: (self.function(*self.arguments(x, inputs), **adaptive).sum(), ()), log_ratio)[0]


@dataclass
class Loss:
    """policy loss + c₁·value loss − c₂·entropy.

    Holds plain values only, so that a compiled step depends on nothing else.
    """

    parameters: FlatParameters
    distribution: Distribution
    surrogate: Surrogate
    value_coef: float
    entropy_coef: float
    clip_range: float  # where no width is adapted
    value_clip_range: float | None
    normalize_advantage: bool
    measures_kl: bool
    statistics = POLICY_STATISTICS

    @property
    def needs_next_step(self) -> bool:
        return bool({"next_ratio", "next_advantage", "has_next"} & set(self.surrogate.inputs))

    def __call__(self, vector: Tensor, batch: Batch, adaptive: AdaptiveTensors) -> tuple[Tensor, Stats]:
        dist_params, value = self.parameters.call(vector, batch.observation)
        dist_params = self.apply_mask(dist_params, batch.mask)
        log_ratio = self.log_ratio(dist_params, batch)
        inputs = self.inputs(vector, dist_params, batch)
        arguments = self.surrogate.arguments(clamp_log_ratio(log_ratio), inputs)
        policy_loss = -self.surrogate.function(*arguments, **adaptive).mean()
        entropy = self.distribution.entropy(dist_params).mean()
        value_error = value_loss(value, batch.old_value, batch.value_target, self.value_clip_range)
        total = policy_loss + self.value_coef * value_error - self.entropy_coef * entropy
        stats = {"policy_loss": policy_loss, "value_loss": value_error, "entropy": entropy}
        stats |= ratio_statistics(log_ratio, adaptive.get("epsilon", self.clip_range))
        sample_gradient = self.surrogate.log_ratio_gradient(clamp_log_ratio(log_ratio), inputs, adaptive)
        stats |= gradient_statistics(sample_gradient, inputs["advantage"])
        stats["samples"] = sample_statistics(log_ratio, inputs["advantage"], sample_gradient)
        if self.measures_kl:
            stats["minibatch_kl"] = self.distribution.kl(batch.old_dist_params, dist_params).mean()
        return total, {name: stat.detach() for name, stat in stats.items()}

    def inputs(self, vector: Tensor, dist_params: Tensor, batch: Batch) -> dict[str, Tensor]:
        """What the objective asks for besides the ratio, and nothing else."""
        inputs = {"advantage": self._normalize(batch.advantage, batch)}
        if "old_log_prob" in self.surrogate.inputs:
            inputs["old_log_prob"] = batch.old_log_prob
        if "kl" in self.surrogate.inputs:
            inputs["kl"] = self.distribution.kl(batch.old_dist_params, dist_params)
        if "kl_reverse" in self.surrogate.inputs:
            inputs["kl_reverse"] = self.distribution.kl(dist_params, batch.old_dist_params)
        if self.needs_next_step and batch.next_step is not None:
            inputs |= self._next_inputs(vector, batch.next_step, batch)
        return inputs

    def _next_inputs(self, vector: Tensor, step: NextStep, batch: Batch) -> dict[str, Tensor]:
        dist_params = self.apply_mask(self.parameters.call(vector, step.observation, part="dist_params"), step.mask)
        log_ratio = self.log_ratio(dist_params, step)
        advantage = self._normalize(step.advantage, batch)
        return {"next_ratio": ratio_of(log_ratio), "next_advantage": advantage, "has_next": step.has_next}

    def dist_params_of(self, vector: Tensor, batch: Batch) -> Tensor:
        """The distributions that a parameter vector gives the batch's states."""
        dist_params = self.parameters.call(vector, batch.observation, part="dist_params")
        return self.apply_mask(dist_params, batch.mask)

    def log_ratio(self, dist_params: Tensor, batch: Batch | NextStep) -> Tensor:
        """log π_new(a|s) − log π_old(a|s) of each sample."""
        return self.distribution.log_prob(dist_params, batch.action) - batch.old_log_prob

    def apply_mask(self, dist_params: Tensor, mask: Tensor | None) -> Tensor:
        return dist_params if mask is None else self.distribution.mask(dist_params, mask)

    def _normalize(self, advantage: Tensor, batch: Batch) -> Tensor:
        return normalize(advantage, batch.advantage) if self.normalize_advantage else advantage


@dataclass
class ValueLoss:
    """c₁·value loss alone, for a rule that improves the policy in another way."""

    parameters: FlatParameters
    value_coef: float
    value_clip_range: float | None
    statistics = ("value_loss",)

    def __call__(self, vector: Tensor, batch: Batch, adaptive: AdaptiveTensors) -> tuple[Tensor, Stats]:
        value = self.parameters.call(vector, batch.observation, part="value_alone")
        error = value_loss(value, batch.old_value, batch.value_target, self.value_clip_range)
        return self.value_coef * error, {"value_loss": error.detach()}


def make_loss(parameters: FlatParameters, distribution: Distribution, config: Config) -> Loss:
    surrogate = Surrogate.of(config)
    if config.resolved_objective.needs_probabilities and distribution.is_continuous:
        raise ConfigError(
            f"--objective {config.objective} is not accepted for Box actions: it weighs with the probability of an"
            " action, and a density has no scale; accepted are Discrete, MultiDiscrete and MultiBinary"
        )
    _check_objective(config, surrogate)
    return Loss(
        parameters,
        distribution,
        surrogate,
        value_coef=config.value_coef,
        entropy_coef=config.entropy_coef,
        clip_range=config.clip_range,
        value_clip_range=config.value_clip_range,
        normalize_advantage=config.normalize_advantage == "minibatch",
        measures_kl=config.lr_schedule == "adaptive-kl",
    )


def _check_objective(config: Config, surrogate: Surrogate) -> None:
    """Try a user's function once on a few samples, because (B,) against (B, 1) would broadcast silently."""
    samples = torch.linspace(0.5, 1.5, 6)
    advantage = torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0, 2.0])
    inputs = {name: samples.abs() for name in ("kl", "kl_reverse", "next_ratio", "next_advantage", "has_next")}
    inputs |= {"advantage": advantage, "old_log_prob": -samples}
    name = config.resolved_objective.adaptive_setting
    moving = ({name: config.objective_settings[name]} if name else {}) | config.widths_at(0)
    adaptive = {name: torch.tensor(value) for name, value in moving.items()}
    log_ratio = samples.log().requires_grad_()
    try:
        with torch.enable_grad():
            result = surrogate.function(*surrogate.arguments(log_ratio, inputs), **adaptive)
        shape, is_finite, follows = tuple(result.shape), bool(result.isfinite().all()), result.requires_grad
    except Exception as error:  # whatever a user's function raises
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"--objective {config.objective} failed on a sample: {reason}") from error
    if shape != samples.shape:
        raise ConfigError(f"--objective {config.objective} returned shape {shape} for 6 samples; accepted is (6,)")
    if not is_finite:
        what = "a value that is not finite for ratios from 0.5 to 1.5"
        raise ConfigError(f"--objective {config.objective} returned {what}")
    if not follows:
        what = "a value without a gradient: it must depend on the ratio or log_ratio"
        raise ConfigError(f"--objective {config.objective} returned {what}")


NUMBERS_AT_ONCE = 2**23
"""Observation elements per forward pass without gradients, so that activations fit the cache."""


@torch.no_grad()
def divergences(loss: Loss, batch: Batch) -> dict[str, float]:
    """Closed-form divergences between old and new policy over the full batch."""
    old, new = batch.old_dist_params, new_dist_params(loss, batch)
    kl, kl_reverse = loss.distribution.kl(old, new), loss.distribution.kl(new, old)
    return {
        "kl": kl.mean().item(),
        "kl_max": kl.max().item(),
        "kl_reverse": kl_reverse.mean().item(),
        "kl_reverse_max": kl_reverse.max().item(),
    }


def new_dist_params(loss: Loss, batch: Batch) -> Tensor:
    """The policy's parameters for the full batch (B, P), in passes over few enough images for the caches."""
    rows = max(1, NUMBERS_AT_ONCE // batch.observation[0].numel())
    parts = [batch.rows(start, start + rows) for start in range(0, len(batch.observation), rows)]
    return torch.cat([loss.dist_params_of(loss.parameters.vector, part) for part in parts])


@torch.no_grad()
def ratios(loss: Loss, batch: Batch) -> Tensor:
    """Every sample's ratio of the new policy to the old (B,), within what a float holds."""
    return ratio_of(loss.log_ratio(new_dist_params(loss, batch), batch))
