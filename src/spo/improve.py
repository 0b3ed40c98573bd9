"""The rule that turns a rollout into a better policy: epochs of minibatch gradient steps.

One step (gradient, clipping, Adam, statistics) is one function of tensors, so that eager and compiled training run
the same code.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spo.config import Config
from spo.distributions import Distribution
from spo.errors import Refusal
from spo.networks import FlatParameters
from spo.rollout import Rollout

MEANS = (
    "policy_loss",
    "value_loss",
    "entropy",
    "grad_norm",
    "ratio_deviation",
    "outside_fraction",
    "zero_gradient_fraction",
    "rollback_fraction",
)
MAXIMA = ("ratio_deviation_max", "ratio_max")
FIRST_BETA, SECOND_BETA = 0.9, 0.999
LARGEST_LOG_RATIO, LARGEST_LOGGED_LOG_RATIO = 15.0, 80.0

Batch = dict[str, Tensor]


@dataclass
class AdamState:
    """Moments of the gradient, and how many steps they have seen."""

    first: Tensor
    second: Tensor
    count: int = 0

    @classmethod
    def like(cls, vector: Tensor) -> "AdamState":
        return cls(torch.zeros_like(vector), torch.zeros_like(vector))


def make_batch(rollout: Rollout, advantage: Tensor, distribution: Distribution, device: str) -> Batch:
    """The rollout flattened from (T, N) to (B,), with what learning needs."""
    batch = {
        "observation": rollout.observation,
        "action": rollout.action,
        "old_log_prob": distribution.log_prob(rollout.params, rollout.action),
        "old_value": rollout.value,
        "old_params": rollout.params,
        "value_target": rollout.value + advantage,
        "advantage": advantage,
    }
    return {name: tensor.flatten(0, 1).to(device) for name, tensor in batch.items()}


def example_batch(inputs: tuple[int, ...], distribution: Distribution, size: int) -> Batch:
    """A batch of zeros with the shapes and types of a real one, to compile with."""
    action = torch.from_numpy(np.zeros((size, *distribution.action_shape), distribution.action_dtype))
    scalars = ("old_log_prob", "old_value", "value_target", "advantage")
    return {"observation": torch.zeros(size, *inputs), "action": action} | {n: torch.zeros(size) for n in scalars}


def normalized(advantage: Tensor) -> Tensor:
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def bounded(log_ratio: Tensor, largest: float = LARGEST_LOG_RATIO) -> Tensor:
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
    """An objective with its settings, ready to be evaluated on a minibatch."""

    function: Callable[..., Tensor]
    inputs: tuple[str, ...]
    settings: dict[str, float]

    def __call__(self, log_ratio: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """f per sample, (B,); everything but the ratio comes from `inputs`."""
        inputs = inputs | {"ratio": log_ratio.exp(), "log_ratio": log_ratio}
        return self.function(*(inputs[name] for name in self.inputs), **self.settings)

    def slope(self, log_ratio: Tensor, inputs: dict[str, Tensor]) -> Tensor:
        """r·∂f/∂r per sample: what the objective does with each sample's probability."""
        inputs = {name: tensor.detach() for name, tensor in inputs.items()}
        return gradient(lambda x: (self(x, inputs).sum(), ()), log_ratio)[0]


@dataclass
class Loss:
    """policy loss + c₁·value loss − c₂·entropy, as a function of the flat parameters and a minibatch.

    Holds plain values only, so that a compiled step depends on nothing else.
    """

    parameters: FlatParameters
    distribution: Distribution
    surrogate: Surrogate
    value_coef: float
    entropy_coef: float
    ratio_bound: float
    value_bound: float | None
    normalizes_minibatch: bool
    fields: tuple[str, ...] = ("observation", "action", "old_log_prob", "old_value", "value_target", "advantage")

    def __call__(self, vector: Tensor, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        params, value = self.parameters.call(vector, batch["observation"])
        log_ratio = self.distribution.log_prob(params, batch["action"]) - batch["old_log_prob"]
        advantage = normalized(batch["advantage"]) if self.normalizes_minibatch else batch["advantage"]
        inputs = {"advantage": advantage}
        policy_loss = -self.surrogate(bounded(log_ratio), inputs).mean()
        entropy = self.distribution.entropy(params).mean()
        value_error = value_loss(value, batch["old_value"], batch["value_target"], self.value_bound)
        total = policy_loss + self.value_coef * value_error - self.entropy_coef * entropy
        stats = {"policy_loss": policy_loss, "value_loss": value_error, "entropy": entropy}
        stats |= ratio_statistics(log_ratio, self.ratio_bound)
        stats |= slope_statistics(self.surrogate.slope(bounded(log_ratio), inputs), advantage)
        return total, {name: stat.detach() for name, stat in stats.items()}


def make_loss(parameters: FlatParameters, distribution: Distribution, config: Config) -> Loss:
    objective = config.resolved_objective
    return Loss(
        parameters,
        distribution,
        Surrogate(objective.function, objective.inputs, config.objective_settings),
        value_coef=config.value_coef,
        entropy_coef=config.entropy_coef,
        ratio_bound=config.ratio_bound,
        value_bound=config.value_bound,
        normalizes_minibatch=config.normalize_advantage == "minibatch",
    )


def ratio_statistics(log_ratio: Tensor, bound: float) -> dict[str, Tensor]:
    """How far the ratios have left 1, from log-ratios capped only so that JSON stays finite."""
    deviation = (log_ratio.detach().clamp(max=LARGEST_LOGGED_LOG_RATIO).exp() - 1).abs()
    mean = deviation.mean()
    outside = (deviation > bound).float().mean()
    return {
        "ratio_deviation": mean,
        "ratio_deviation_max": mean,
        "ratio_max": deviation.max(),
        "outside_fraction": outside,
    }


def slope_statistics(slope: Tensor, advantage: Tensor) -> dict[str, Tensor]:
    """Which samples the objective leaves alone, and which it pulls back against their advantage."""
    return {
        "zero_gradient_fraction": (slope == 0).float().mean(),
        "rollback_fraction": (slope * advantage < 0).float().mean(),
    }


def adam_step(
    vector: Tensor, first: Tensor, second: Tensor, gradient: Tensor, scales: Tensor, max_norm: float, eps: float
) -> Tensor:
    """Clips the gradient to a norm and steps in place; does nothing if it is not finite. Returns the norm before."""
    norm = gradient.square().sum().sqrt()
    finite = norm.isfinite()
    gradient = gradient * (max_norm / (norm + 1e-6)).clamp(max=1.0)
    new_first = first + (1 - FIRST_BETA) * (gradient - first)
    new_second = SECOND_BETA * second + (1 - SECOND_BETA) * gradient.square()
    change = scales[0] * new_first / ((new_second * scales[1]).sqrt() + eps)
    vector.copy_(torch.where(finite, vector - change, vector))
    first.copy_(torch.where(finite, new_first, first))
    second.copy_(torch.where(finite, new_second, second))
    return norm


def adam_scales(learning_rate: float, count: int) -> Tensor:
    """Step size and scale of the second moment with Adam's bias corrections, computed in double precision."""
    return torch.tensor([learning_rate / (1 - FIRST_BETA**count), 1 / (1 - SECOND_BETA**count)])


def make_step(loss: Loss, max_norm: float, eps: float) -> Callable[..., Tensor]:
    """One gradient step as a function of tensors; returns the statistics, MEANS then MAXIMA, as one tensor."""

    def step(vector: Tensor, first: Tensor, second: Tensor, scales: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad():
            slope, stats = gradient(loss, vector, batch)
            stats["grad_norm"] = adam_step(vector, first, second, slope, scales, max_norm, eps)
            return torch.stack([stats[name] for name in MEANS + MAXIMA])

    return step


class GradientEpochs:
    """Epochs of shuffled minibatches."""

    def __init__(self, loss: Loss, config: Config, generator: np.random.Generator):
        self.loss, self.config, self.generator = loss, config, generator
        self.adam = AdamState.like(loss.parameters.vector)
        self.step = make_step(loss, config.max_grad_norm, config.adam_eps)

    def __call__(self, batch: Batch, learning_rate: float) -> dict[str, float]:
        """Improves the policy in place and returns the statistics of the minibatches that were run."""
        if self.config.normalize_advantage == "batch":
            batch = batch | {"advantage": normalized(batch["advantage"])}
        rows, epochs = [], 0
        while epochs < self.config.epochs and not (epochs and self._target_kl_exceeded(batch)):
            rows += self._epoch(batch, learning_rate)
            epochs += 1
        return _summary(torch.stack(rows)) | divergences(self.loss, batch) | {"epochs": epochs}

    def compile(self, batch: Batch) -> None:
        """Compiles the step on a copy of the state, or raises what the compiler raised."""
        step = torch.compile(self.step, fullgraph=True, dynamic=False)
        minibatch = {name: batch[name][: self.config.minibatch_size] for name in self.loss.fields}
        state = (self.loss.parameters.vector, self.adam.first, self.adam.second)
        step(*(tensor.clone() for tensor in state), adam_scales(0.0, 1), minibatch)
        self.step = step

    def _epoch(self, batch: Batch, learning_rate: float) -> list[Tensor]:
        """Permutes once and slices, which is cheaper than gathering every minibatch."""
        size = self.config.minibatch_size
        order = torch.from_numpy(self.generator.permutation(self.config.batch_size))
        shuffled = {name: batch[name][order] for name in self.loss.fields}
        rows = []
        for start in range(0, len(order), size):
            self.adam.count += 1
            scales = adam_scales(learning_rate, self.adam.count)
            minibatch = {name: tensor[start : start + size] for name, tensor in shuffled.items()}
            rows.append(self.step(self.loss.parameters.vector, self.adam.first, self.adam.second, scales, minibatch))
        return rows

    def _target_kl_exceeded(self, batch: Batch) -> bool:
        target = self.config.target_kl
        return target is not None and divergences(self.loss, batch)["kl"] > target


def _summary(rows: Tensor) -> dict[str, float]:
    """Means and maxima over the minibatches (M, statistics) that were run."""
    if not torch.isfinite(rows).all():
        raise _diverged(rows)
    split = len(MEANS)
    means = dict(zip(MEANS, rows[:, :split].mean(0).tolist()))
    return means | dict(zip(MAXIMA, rows[:, split:].amax(0).tolist()))


@torch.no_grad()
def divergences(loss: Loss, batch: Batch) -> dict[str, float]:
    """Closed-form divergences between old and new policy over the full batch."""
    old, new = batch["old_params"], loss.parameters.network.params(batch["observation"])
    kl, kl_reverse = loss.distribution.kl(old, new), loss.distribution.kl(new, old)
    return {
        "kl": kl.mean().item(),
        "kl_max": kl.max().item(),
        "kl_reverse": kl_reverse.mean().item(),
        "kl_reverse_max": kl_reverse.max().item(),
    }


def _diverged(rows: Tensor) -> Refusal:
    """Names the first statistic that is not finite; the parameters are still those before that step."""
    step, column = (~torch.isfinite(rows)).nonzero()[0].tolist()
    name = (MEANS + MAXIMA)[column].replace("_", " ")
    value = rows[step, column].item()
    return Refusal(f"training diverged: the {name} became {value} at minibatch {step + 1} of the iteration")


def explained_variance(value: Tensor, target: Tensor) -> float:
    """1 − Var(target − value) / Var(target): 1 is perfect, 0 no better than a constant (or nothing to explain)."""
    variance = target.var().item()
    return 1 - (target - value).var().item() / variance if variance > 0 else 0.0
