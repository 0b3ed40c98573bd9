"""Losses as functions of the flat parameter vector and a minibatch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from spo.algorithms.batch import Batch
from spo.algorithms.metrics import POLICY_STATISTICS, Stats, ratio_statistics, sample_statistics, slope_statistics
from spo.config.config import Config
from spo.errors import ConfigError
from spo.models.distributions import Distribution
from spo.models.networks import FlatParameters
from spo.objectives import settings_of

LARGEST_LOG_RATIO = 15.0
Feedback = dict[str, Tensor]
"""Settings that change during a run, as tensors, so that a compiled step need not be compiled again."""


def normalize(advantage: Tensor, reference: Tensor) -> Tensor:
    """Minus the mean and divided by the standard deviation of the reference."""
    return (advantage - reference.mean()) / (reference.std() + 1e-8)


def clamp_log_ratio(log_ratio: Tensor, largest: float = LARGEST_LOG_RATIO) -> Tensor:
    """The log-ratio with its value capped and its gradient kept: no overflow, and a way back."""
    return log_ratio + (log_ratio.clamp(max=largest) - log_ratio).detach()


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, bound: float | None) -> Tensor:
    """½·mean of the squared error, or of the larger of it and the error of the value clipped around the old one."""
    error = (value - target).square()
    if bound is not None:
        clipped = old_value + (value - old_value).clamp(-bound, bound)
        error = torch.maximum(error, (clipped - target).square())
    return 0.5 * error.mean()


def gradient(function: Callable, variable: Tensor, *arguments) -> tuple[Tensor, object]:
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
        moving = {objective.fed_back, *config.widths_at(0)}
        own = {name: values[name] for name in settings_of(objective.function) if name not in moving}
        return cls(partial(objective.function, **own), objective.inputs)

    def arguments(self, log_ratio: Tensor, inputs: dict[str, Tensor]) -> list[Tensor]:
        """What to call the function with; everything but the ratio comes from `inputs`."""
        inputs = inputs | {"ratio": log_ratio.exp(), "log_ratio": log_ratio}
        return [inputs[name] for name in self.inputs]

    def slope(self, log_ratio: Tensor, inputs: dict[str, Tensor], feedback: Feedback) -> Tensor:
        """r·∂f/∂r per sample: what the objective does with each sample's probability."""
        inputs = {name: tensor.detach() for name, tensor in inputs.items()}
        return gradient(lambda x: (self.function(*self.arguments(x, inputs), **feedback).sum(), ()), log_ratio)[0]


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
    ratio_bound: float  # where no width is fed back
    value_bound: float | None
    normalizes_advantage: bool
    measures_kl: bool
    masked: bool
    statistics = POLICY_STATISTICS

    @property
    def fields(self) -> tuple[str, ...]:
        """What of a batch this loss reads."""
        fields = ["observation", "action", "old_log_prob", "old_value", "value_target", "advantage"]
        if self.measures_kl or {"kl", "kl_reverse"} & set(self.surrogate.inputs):
            fields.append("old_params")
        if self.needs_next_step:
            fields += ["next_observation", "next_action", "next_old_log_prob", "next_advantage", "has_next"]
        if self.masked:
            fields += ["mask", "next_mask"] if self.needs_next_step else ["mask"]
        return tuple(fields)

    @property
    def needs_next_step(self) -> bool:
        return bool({"ratio_next", "advantage_next", "has_next"} & set(self.surrogate.inputs))

    def __call__(self, vector: Tensor, batch: Batch, feedback: Feedback) -> tuple[Tensor, Stats]:
        params, value = self.parameters.call(vector, batch["observation"])
        params = self.allowed(params, batch.get("mask"))
        log_ratio = self.distribution.log_prob(params, batch["action"]) - batch["old_log_prob"]
        inputs = self.inputs(vector, params, batch)
        arguments = self.surrogate.arguments(clamp_log_ratio(log_ratio), inputs)
        policy_loss = -self.surrogate.function(*arguments, **feedback).mean()
        entropy = self.distribution.entropy(params).mean()
        value_error = value_loss(value, batch["old_value"], batch["value_target"], self.value_bound)
        total = policy_loss + self.value_coef * value_error - self.entropy_coef * entropy
        stats = {"policy_loss": policy_loss, "value_loss": value_error, "entropy": entropy}
        stats |= ratio_statistics(log_ratio, feedback.get("epsilon", self.ratio_bound))
        slope = self.surrogate.slope(clamp_log_ratio(log_ratio), inputs, feedback)
        stats |= slope_statistics(slope, inputs["advantage"])
        stats["samples"] = sample_statistics(log_ratio, inputs["advantage"], slope)
        if self.measures_kl:
            stats["minibatch_kl"] = self.distribution.kl(batch["old_params"], params).mean()
        return total, {name: stat.detach() for name, stat in stats.items()}

    def inputs(self, vector: Tensor, params: Tensor, batch: Batch) -> dict[str, Tensor]:
        """What the objective asks for besides the ratio, and nothing else."""
        inputs = {"advantage": self._standardized(batch["advantage"], batch)}
        if "old_log_prob" in self.surrogate.inputs:
            inputs["old_log_prob"] = batch["old_log_prob"]
        if "kl" in self.surrogate.inputs:
            inputs["kl"] = self.distribution.kl(batch["old_params"], params)
        if "kl_reverse" in self.surrogate.inputs:
            inputs["kl_reverse"] = self.distribution.kl(params, batch["old_params"])
        if self.needs_next_step:
            next_params = self.parameters.call(vector, batch["next_observation"], part="params")
            next_params = self.allowed(next_params, batch.get("next_mask"))
            log_ratio = self.distribution.log_prob(next_params, batch["next_action"]) - batch["next_old_log_prob"]
            inputs["ratio_next"] = clamp_log_ratio(log_ratio).exp()
            inputs["advantage_next"] = self._standardized(batch["next_advantage"], batch)
            inputs["has_next"] = batch["has_next"]
        return inputs

    def policy_params(self, vector: Tensor, batch: Batch) -> Tensor:
        """The distributions that a parameter vector gives the batch's states."""
        return self.allowed(self.parameters.call(vector, batch["observation"], part="params"), batch.get("mask"))

    def allowed(self, params: Tensor, mask: Tensor | None) -> Tensor:
        return params if mask is None else self.distribution.mask(params, mask)

    def _standardized(self, advantage: Tensor, batch: Batch) -> Tensor:
        return normalize(advantage, batch["advantage"]) if self.normalizes_advantage else advantage


@dataclass
class ValueLoss:
    """c₁·value loss alone, for a rule that improves the policy in another way."""

    parameters: FlatParameters
    value_coef: float
    value_bound: float | None
    fields = ("observation", "old_value", "value_target")
    statistics = ("value_loss",)

    def __call__(self, vector: Tensor, batch: Batch, feedback: Feedback) -> tuple[Tensor, Stats]:
        value = self.parameters.call(vector, batch["observation"], part="value_alone")
        error = value_loss(value, batch["old_value"], batch["value_target"], self.value_bound)
        return self.value_coef * error, {"value_loss": error.detach()}


def make_loss(parameters: FlatParameters, distribution: Distribution, config: Config, masked: bool = False) -> Loss:
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
        ratio_bound=config.clip_range,
        value_bound=config.value_clip_range,
        normalizes_advantage=config.normalize_advantage == "minibatch",
        measures_kl=config.lr_schedule == "adaptive-kl",
        masked=masked,
    )


def _check_objective(config: Config, surrogate: Surrogate) -> None:
    """Tries a user's function once on a few samples, because (B,) against (B, 1) would broadcast silently."""
    samples = torch.linspace(0.5, 1.5, 6)
    advantage = torch.tensor([1.0, -1.0, 0.5, -0.5, 0.0, 2.0])
    inputs = {name: samples.abs() for name in ("kl", "kl_reverse", "ratio_next", "advantage_next", "has_next")}
    inputs |= {"advantage": advantage, "old_log_prob": -samples}
    fed_back = config.resolved_objective.fed_back
    moving = ({fed_back: config.objective_settings[fed_back]} if fed_back else {}) | config.widths_at(0)
    feedback = {name: torch.tensor(value) for name, value in moving.items()}
    try:
        result = surrogate.function(*surrogate.arguments(samples.log(), inputs), **feedback)
        shape, is_finite = tuple(result.shape), bool(result.isfinite().all())
    except Exception as error:  # whatever a user's function raises
        reason = f"{type(error).__name__}: {error}"
        raise ConfigError(f"--objective {config.objective} failed on a sample: {reason}") from error
    if shape != samples.shape:
        raise ConfigError(f"--objective {config.objective} returned shape {shape} for 6 samples; accepted is (6,)")
    if not is_finite:
        what = "a value that is not finite for ratios from 0.5 to 1.5"
        raise ConfigError(f"--objective {config.objective} returned {what}")


NUMBERS_AT_ONCE = 2**23
"""Observation elements per forward pass without gradients, so that activations fit the cache."""


@torch.no_grad()
def divergences(loss: Loss, batch: Batch) -> dict[str, float]:
    """Closed-form divergences between old and new policy over the full batch."""
    old, new = batch["old_params"], new_params(loss, batch)
    kl, kl_reverse = loss.distribution.kl(old, new), loss.distribution.kl(new, old)
    return {
        "kl": kl.mean().item(),
        "kl_max": kl.max().item(),
        "kl_reverse": kl_reverse.mean().item(),
        "kl_reverse_max": kl_reverse.max().item(),
    }


def new_params(loss: Loss, batch: Batch) -> Tensor:
    """The policy's parameters for the full batch (B, P), in passes over few enough images for the caches."""
    rows = max(1, NUMBERS_AT_ONCE // batch["observation"][0].numel())
    seen = {name: batch[name].split(rows) for name in ("observation", "mask") if name in batch}
    passes = [dict(zip(seen, tensors)) for tensors in zip(*seen.values())]
    return torch.cat([loss.policy_params(loss.parameters.vector, each) for each in passes])


@torch.no_grad()
def ratios(loss: Loss, batch: Batch) -> Tensor:
    """Every sample's ratio of the new policy to the old (B,), within what a float holds."""
    log_ratio = loss.distribution.log_prob(new_params(loss, batch), batch["action"]) - batch["old_log_prob"]
    return clamp_log_ratio(log_ratio).exp()
