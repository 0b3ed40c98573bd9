"""The second rule that turns a batch into a better policy: TRPO's natural-gradient step with a line search."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spo.algorithms.batch import Batch
from spo.algorithms.losses import Loss, ValueLoss, divergences, normalize
from spo.algorithms.metrics import gradient_statistics, ratio_statistics, sample_statistics
from spo.algorithms.minibatch_update import MinibatchEpochs, preprocess
from spo.algorithms.ratio_samples import RatioSampler
from spo.config.config import Config
from spo.objectives import ratio_of

SMALLEST_GRADIENT = 1e-8


def conjugate_gradient(
    product: Callable[[Tensor], Tensor], target: Tensor, steps: int, tolerance: float = 1e-10
) -> Tensor:
    """Solve product(x) = target for a symmetric positive definite product."""
    solution = torch.zeros_like(target)
    residual, direction = target.clone(), target.clone()
    size = residual.dot(residual)
    for _ in range(steps):
        if size < tolerance:
            break
        image = product(direction)
        length = size / direction.dot(image)
        solution += length * direction
        residual -= length * image
        new_size = residual.dot(residual)
        direction = residual + new_size / size * direction
        size = new_size
    return solution


class TRPOUpdate:
    """Maximises mean(r·A) subject to mean KL(old‖new) ≤ δ on the full batch; the critic trains by gradient epochs."""

    needs_next_step = False

    def __init__(self, loss: Loss, config: Config, generator: np.random.Generator):
        self.loss, self.config, self.parameters = loss, config, loss.parameters
        self.settings = config.objective_settings
        value_loss = ValueLoss(loss.parameters, config.value_coef, config.value_clip_range)
        self.epochs = MinibatchEpochs(value_loss, config, generator)

    def __call__(
        self,
        batch: Batch,
        learning_rate: float | None,
        record: Callable[[Tensor], object] | None = None,
        sampler: RatioSampler | None = None,
        widths: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Improve in place and return the iteration's statistics; ratios are those after the step."""
        advantage = batch.advantage
        if self.config.normalize_advantage != "off":
            advantage = normalize(advantage, advantage)
        batch = preprocess(self.loss, batch._replace(advantage=advantage))
        stats = self.policy_step(batch)
        if record:
            record(batch.advantage)
        after, samples = self._statistics_after(batch)
        stats |= after | divergences(self.loss, batch)
        if sampler:
            sampler(torch.arange(samples.shape[1]), [samples])
        critic = self.epochs(batch, learning_rate, {}, lambda order, samples: False)
        return stats | {name: critic[name] for name in ("value_loss", "epochs")}

    def compile(self, example: Batch) -> None:
        """Only the critic's step is compiled: the policy makes one step per iteration."""
        self.epochs.compile(example, {})

    def state(self) -> dict[str, object]:
        return {"epochs": self.epochs.state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.epochs.restore(state["epochs"])

    def policy_step(self, batch: Batch) -> dict[str, float]:
        """One step, or none: then the parameters are restored to the bit."""
        policy = self.parameters.vector[: self.parameters.policy_size]
        old = policy.clone()
        surrogate, grad = self._surrogate_and_gradient(batch)
        stats = {"grad_norm": grad.norm().item(), "step_fraction": 0.0}
        if not grad.isfinite().all() or grad.norm() < SMALLEST_GRADIENT:
            return stats
        step = self._natural_step(batch, grad)
        if step is None:
            return stats
        fraction = 1.0
        for _ in range(int(self.settings["backtrack_steps"])):
            policy.copy_(old + fraction * step)
            if self._is_accepted(batch, surrogate):
                return stats | {"step_fraction": fraction}
            fraction *= self.settings["backtrack"]
        policy.copy_(old)
        return stats

    def _natural_step(self, batch: Batch, grad: Tensor) -> Tensor | None:
        """√(2δ / xᵀHx)·x with Hx = g, or None if rounding made the Fisher matrix indefinite."""
        product = self._fisher_product(batch)
        solution = conjugate_gradient(product, grad, int(self.settings["cg_steps"]))
        curvature = solution.dot(product(solution))
        if not (curvature > 0 and solution.isfinite().all()):
            return None
        return (2 * self.settings["delta"] / curvature).sqrt() * solution

    def _fisher_product(self, batch: Batch) -> Callable[[Tensor], Tensor]:
        """v ↦ ∇(∇KL·v) + damping·v at the old policy."""
        leaf, dist_params = self._dist_params_of_leaf(batch)
        kl = self.loss.distribution.kl(batch.old_dist_params, dist_params).mean()
        (kl_gradient,) = torch.autograd.grad(kl, leaf, create_graph=True)

        def product(vector: Tensor) -> Tensor:
            (image,) = torch.autograd.grad(kl_gradient @ vector, leaf, retain_graph=True)
            return image + self.settings["damping"] * vector

        return product

    def _surrogate_and_gradient(self, batch: Batch) -> tuple[float, Tensor]:
        leaf, dist_params = self._dist_params_of_leaf(batch)
        surrogate = self._surrogate(batch, dist_params)
        return surrogate.item(), torch.autograd.grad(surrogate, leaf)[0]

    def _dist_params_of_leaf(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """A copy of the policy's parameters to differentiate by, and the distributions that they give."""
        size = self.parameters.policy_size
        leaf = self.parameters.vector[:size].clone().requires_grad_()
        with torch.enable_grad():
            vector = torch.cat([leaf, self.parameters.vector[size:]])
            return leaf, self.loss.dist_params_of(vector, batch)

    def _surrogate(self, batch: Batch, dist_params: Tensor) -> Tensor:
        with torch.enable_grad():
            return (ratio_of(self.loss.log_ratio(dist_params, batch)) * batch.advantage).mean()

    @torch.no_grad()
    def _is_accepted(self, batch: Batch, before: float) -> bool:
        dist_params = self.loss.dist_params_of(self.parameters.vector, batch)
        kl = self.loss.distribution.kl(batch.old_dist_params, dist_params).mean().item()
        return self._surrogate(batch, dist_params).item() > before and kl <= self.settings["delta"]

    @torch.no_grad()
    def _statistics_after(self, batch: Batch) -> tuple[dict[str, float], Tensor]:
        dist_params = self.loss.dist_params_of(self.parameters.vector, batch)
        log_ratio = self.loss.log_ratio(dist_params, batch)
        grad = ratio_of(log_ratio) * batch.advantage
        stats = ratio_statistics(log_ratio, self.loss.clip_range) | gradient_statistics(grad, batch.advantage)
        stats |= {"policy_loss": -grad.mean(), "entropy": self.loss.distribution.entropy(dist_params).mean()}
        samples = sample_statistics(log_ratio, batch.advantage, grad)
        return {name: stat.item() for name, stat in stats.items()}, samples
