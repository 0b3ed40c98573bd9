"""Epochs of minibatch gradient steps: the first of the two rules that turn a batch into a better policy.

One step (gradient, clipping, Adam, statistics) is one function of tensors, so that eager and compiled training run
the same code.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spo.algorithms.adam import AdamState, adam_step, kl_adaptive_learning_rate
from spo.algorithms.batch import Batch
from spo.algorithms.losses import AdaptiveTensors, Loss, ValueLoss, divergences, gradient, normalize
from spo.algorithms.metrics import summarize_minibatches
from spo.algorithms.ratio_samples import RatioSampler
from spo.config.config import Config
from spo.objectives import inputs_of
from spo.runtime.signals import raise_if_interrupted
from spo.runtime.torch_tuning import compile_method, skip_guards


class GradientStep:
    """One gradient step as a function of tensors alone."""

    def __init__(self, loss: Loss | ValueLoss, config: Config):
        self.loss, self.max_norm, self.eps = loss, config.max_grad_norm, config.adam_eps
        self.names = (*loss.statistics, "grad_norm")
        self.kl_target = config.lr_kl_target
        self.stop_minibatches = config.bind(config.resolved_objective.stop_minibatches)

    def __call__(
        self,
        vector: Tensor,
        first: Tensor,
        second: Tensor,
        learning_rate: Tensor,
        corrections: Tensor,
        batch: Batch,
        adaptive: AdaptiveTensors,
    ) -> tuple[Tensor, Tensor | None]:
        """Step in place and return the statistics taken before the step, in the order of `names`, and of each sample.

        Samples are always returned, so that a compiled step is the same whether anybody keeps them or not.
        """
        with torch.no_grad():
            grad, stats = gradient(self.loss, vector, batch, adaptive)
            stats["grad_norm"] = norm = grad.square().sum().sqrt()
            if "minibatch_kl" in stats:
                learning_rate.copy_(kl_adaptive_learning_rate(learning_rate, stats["minibatch_kl"], self.kl_target))
            is_allowed = norm.isfinite()
            if self.stop_minibatches is not None:
                is_allowed = is_allowed & ~self.stop_minibatches(stats["ratio_deviation"])
            clipped = grad * (self.max_norm / (norm + 1e-6)).clamp(max=1.0)
            adam_step(vector, (first, second), clipped, is_allowed, learning_rate, corrections, self.eps)
            return torch.stack([stats[name] for name in self.names]), stats.get("samples")


class MinibatchEpochs:
    """Epochs of shuffled minibatches with Adam."""

    def __init__(self, loss: Loss | ValueLoss, config: Config, generator: np.random.Generator):
        self.loss, self.config, self.generator = loss, config, generator
        self.adam = AdamState.like(loss.parameters.vector)
        self.learning_rate = torch.tensor(config.learning_rate)
        self.stepper = GradientStep(loss, config)
        self.step: Callable[..., tuple[Tensor, Tensor | None]] = self.stepper.__call__
        self.around_epoch: Callable[[], AbstractContextManager[object]] = nullcontext

    def __call__(
        self,
        batch: Batch,
        learning_rate: float | None,
        adaptive: AdaptiveTensors,
        after_epoch: Callable[[Tensor, list[Tensor]], bool],
    ) -> dict[str, float]:
        """Step through shuffled minibatches, epoch after epoch, and return the statistics of those that were run.

        After each epoch `after_epoch` is given its order of the samples and what each minibatch says of its own, and
        says whether it was enough.
        """
        if learning_rate is not None:
            self.learning_rate.fill_(learning_rate)
        rows, weights = [], self.loss.parameters.vector
        epochs, is_over = 0, False
        while epochs < self.config.epochs and not is_over:
            order = torch.from_numpy(self.generator.permutation(self.config.batch_size))
            samples: list[Tensor] = []
            with self.around_epoch():
                for minibatch in self._minibatches(batch, order):
                    state = (weights, self.adam.first, self.adam.second, self.learning_rate, self.adam.corrections())
                    row, sample = self.step(*state, minibatch, adaptive)
                    rows.append(row)
                    samples.append(sample)
                    raise_if_interrupted()
                    is_over = self._should_stop(rows[-1])
                    if is_over:
                        break
                    self.adam.count += 1
            is_over = after_epoch(order, samples) or is_over
            epochs += 1
        return summarize_minibatches(self.stepper.names, torch.stack(rows)) | {"epochs": epochs}

    def state(self) -> dict[str, object]:
        return {
            "first": self.adam.first.cpu().numpy().copy(),
            "second": self.adam.second.cpu().numpy().copy(),
            "count": self.adam.count,
            "learning_rate": self.learning_rate.item(),
            "generator": self.generator.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.adam.first.copy_(torch.from_numpy(state["first"]))
        self.adam.second.copy_(torch.from_numpy(state["second"]))
        self.adam.count = state["count"]
        self.learning_rate.fill_(state["learning_rate"])
        self.generator.bit_generator.state = state["generator"]

    def compile(self, example: Batch, adaptive: AdaptiveTensors) -> None:
        """Compile the step on a copy of the state, or raise what the compiler raised."""
        step = compile_method(self.stepper.__call__, self.loss.parameters.vector.device)
        state = (self.loss.parameters.vector, self.adam.first, self.adam.second, self.learning_rate)
        example = preprocess(self.loss, example)
        step(*(tensor.clone() for tensor in state), self.adam.corrections(), example, adaptive)
        self.step, self.around_epoch = step, skip_guards  # all minibatches are like the example

    def _minibatches(self, batch: Batch, order: Tensor) -> Iterator[Batch]:
        """Permute once and slice, which is cheaper than gathering."""
        shuffled = batch.map(lambda tensor: tensor.index_select(0, order))
        for start in range(0, len(order), self.config.minibatch_size):
            yield shuffled.rows(start, start + self.config.minibatch_size)

    def _should_stop(self, row: Tensor) -> bool:
        stop_minibatches = self.stepper.stop_minibatches
        return stop_minibatches is not None and bool(stop_minibatches(row[self.stepper.names.index("ratio_deviation")]))


class MinibatchUpdate:
    """Improves policy and value together by gradient steps on one loss."""

    def __init__(self, loss: Loss, config: Config, generator: np.random.Generator):
        self.loss, self.config, self.objective = loss, config, config.resolved_objective
        self.epochs = MinibatchEpochs(loss, config, generator)
        name = self.objective.adaptive_setting
        self.adaptive_values = {name: config.objective_settings[name]} if name else {}
        self.stop_epochs = config.bind(self.objective.stop_epochs)
        self.needs_next_step = loss.needs_next_step

    def __call__(
        self,
        batch: Batch,
        learning_rate: float | None,
        record: Callable[[Tensor], object] | None = None,
        sampler: RatioSampler | None = None,
        widths: Mapping[str, float] | None = None,
    ) -> dict[str, float]:
        """Improve in place and return the iteration's statistics; `record` and `sampler` get what each epoch saw.

        `widths` are those that a schedule has for this iteration.
        """
        batch = preprocess(self.loss, normalize_over_batch(batch, self.config))
        used = self.adaptive_values | dict(widths or {})

        def after_epoch(order: Tensor, samples: list[Tensor]) -> bool:
            if sampler:
                sampler(order, samples)
            if record:
                record(self.advantage_in_epoch(batch.advantage, order))
            return self._has_moved_enough(batch)

        stats = self.epochs(batch, learning_rate, as_tensors(used), after_epoch)
        stats |= divergences(self.loss, batch)
        self._adapt(stats)
        if learning_rate is None:
            stats["learning_rate"] = self.epochs.learning_rate.item()
        return stats | used

    def advantage_in_epoch(self, advantage: Tensor, order: Tensor) -> Tensor:
        """Every sample's advantage (B,) as the objective saw it in an epoch: by minibatch standardised, if at all."""
        if not self.loss.normalize_advantage:
            return advantage
        seen = torch.empty_like(advantage)
        for chosen in order.split(self.config.minibatch_size):
            seen[chosen] = normalize(advantage[chosen], advantage[chosen])
        return seen

    def compile(self, example: Batch) -> None:
        self.epochs.compile(example, as_tensors(self.adaptive_values | self.config.widths_at(0)))

    def state(self) -> dict[str, object]:
        return {"epochs": self.epochs.state(), "fed_back": dict(self.adaptive_values)}

    def restore(self, state: dict[str, Any]) -> None:
        self.epochs.restore(state["epochs"])
        self.adaptive_values = dict(state["fed_back"])

    def _has_moved_enough(self, batch: Batch) -> bool:
        """Whether the policy has moved so far over the full batch that no further epoch is wanted."""
        if self.config.target_kl is None and self.stop_epochs is None:
            return False
        moved = divergences(self.loss, batch)
        if self.config.target_kl is not None and moved["kl"] > self.config.target_kl:
            return True
        return self.stop_epochs is not None and self.stop_epochs(moved["kl_reverse"])

    def _adapt(self, stats: dict[str, float]) -> None:
        adapt = self.objective.adapt
        settings: dict[str, Any] = self.config.settings_for(adapt) if adapt else {}
        if adapt is None or "off" in settings.values():
            return
        (name,) = self.adaptive_values
        known = [stats[other] for other in inputs_of(adapt)[1:]]
        self.adaptive_values[name] = adapt(self.adaptive_values[name], *known, **settings)


def as_tensors(settings: Mapping[str, float]) -> AdaptiveTensors:
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in settings.items()}


def preprocess(loss: Loss | ValueLoss, batch: Batch) -> Batch:
    """Convert observations once to the layout that the network reads fastest."""
    preprocess = loss.parameters.network.preprocess
    batch = batch._replace(observation=preprocess(batch.observation))
    if batch.next_step is None:
        return batch
    return batch._replace(next_step=batch.next_step._replace(observation=preprocess(batch.next_step.observation)))


def normalize_over_batch(batch: Batch, config: Config) -> Batch:
    """Advantages standardised over the whole batch, where the settings ask for that."""
    if config.normalize_advantage != "batch":
        return batch
    next_step, advantage = batch.next_step, normalize(batch.advantage, batch.advantage)
    if next_step is not None:
        next_step = next_step._replace(advantage=normalize(next_step.advantage, batch.advantage))
    return batch._replace(advantage=advantage, next_step=next_step)
