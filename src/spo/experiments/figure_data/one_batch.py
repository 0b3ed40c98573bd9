"""Objectives at work on one batch with random advantages (Fig. 7 of the SPO paper), as plain numbers.

The paper names no set-up. Here a Gaussian policy is all that moves: its states are fixed, its actions were drawn from
it as it was at first, and every step of Adam sees the whole batch. Ratios that were free to move one by one would not
show what matters, that a step for one sample moves the others too.
"""

from dataclasses import dataclass
from functools import partial

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from spo.algorithms.adam import AdamState, adam_step
from spo.algorithms.losses import Surrogate, clamp_log_ratio, gradient, normalize
from spo.algorithms.metrics import ratio_statistics
from spo.models.distributions import Gaussian
from spo.models.networks import ActorCritic, FlatParameters
from spo.objectives import OBJECTIVES, Objective
from spo.runtime.seeding import derive_seed, generator
from spo.runtime.torch_tuning import use_one_thread
from spo.spaces import ObservationLayout

NAMES = ("ppo-clip", "spo", "simple")
STATE_SIZE, ACTION_SIZE, SAMPLES = 17, 6, 2048
"""The sizes of HalfCheetah, and the paper's batch on MuJoCo."""
HIDDEN = (32, 32)
"""Too small to give each of so many samples the ratio it would like, so that they compete."""
LEARNING_RATE, ADAM_EPS, EPSILON = 3e-3, 1e-8, 0.2


@dataclass(frozen=True)
class BatchCurves:
    """What one objective does: a list of numbers over the steps for each seed."""

    surrogate: list[list[float]]
    ratio_deviation: list[list[float]]


@dataclass(frozen=True)
class OneBatch:
    """What objectives with this bound do, by name."""

    epsilon: float
    curves: dict[str, BatchCurves]


def one_batch_curves(
    names: tuple[str, ...] = NAMES, seeds: int = 5, steps: int = 300, samples: int = SAMPLES
) -> OneBatch:
    """For each objective and seed mean(r·A) and mean|r − 1| after 0, 1, … steps, on the same batch."""
    curves = {}
    with use_one_thread():  # matrices so small are ten times slower with more, beside other work
        for name in names:
            runs = [optimize(OBJECTIVES[name], Problem.draw(seed, samples), steps) for seed in range(1, seeds + 1)]
            curves[name] = BatchCurves(**{key: [[row[key] for row in rows] for rows in runs] for key in runs[0][0]})
    return OneBatch(EPSILON, curves)


@dataclass(frozen=True)
class Problem:
    """A policy, and what it did in a batch of random states, with random advantages."""

    parameters: FlatParameters
    distribution: Gaussian
    state: Tensor  # (B, S)
    action: Tensor  # (B, D)
    old_log_prob: Tensor  # (B,)
    advantage: Tensor  # (B,)

    @classmethod
    def draw(cls, seed: int, samples: int) -> "Problem":
        draw, distribution = generator(seed, "toy"), Gaussian(gym.spaces.Box(-1, 1, (ACTION_SIZE,)))
        layout = ObservationLayout(gym.spaces.Box(-np.inf, np.inf, (STATE_SIZE,)))
        network = ActorCritic(layout, distribution, HIDDEN, (), "tanh", seed=derive_seed(seed, "toy network"))
        parameters = FlatParameters(network)
        state, advantage = (
            torch.from_numpy(draw.standard_normal(shape, dtype=np.float32))
            for shape in ((samples, STATE_SIZE), samples)
        )
        old = parameters.call(parameters.vector, state, part="dist_params")
        action = torch.from_numpy(distribution.sample(old.numpy(), distribution.noise(draw, (samples,))))
        old_log_prob = distribution.log_prob(old, action)
        return cls(parameters, distribution, state, action, old_log_prob, normalize(advantage, advantage))

    def log_ratio(self, vector: Tensor) -> Tensor:
        params = self.parameters.call(vector, self.state, part="dist_params")
        return self.distribution.log_prob(params, self.action) - self.old_log_prob

    def measure(self, log_ratio: Tensor) -> dict[str, float]:
        deviation = ratio_statistics(log_ratio, EPSILON)["ratio_deviation"]
        return {
            "surrogate": (clamp_log_ratio(log_ratio).exp() * self.advantage).mean().item(),
            "ratio_deviation": deviation.item(),
        }


def optimize(objective: Objective, problem: Problem, steps: int) -> list[dict[str, float]]:
    """Maximise the objective with Adam over the full batch, and measure before the first step and after each."""
    surrogate = Surrogate(partial(objective.function, epsilon=EPSILON), objective.inputs)

    def loss(vector: Tensor) -> tuple[Tensor, Tensor]:
        log_ratio = problem.log_ratio(vector)
        arguments = surrogate.arguments(clamp_log_ratio(log_ratio), {"advantage": problem.advantage})
        return -surrogate.function(*arguments).mean(), log_ratio.detach()

    vector, rows = problem.parameters.vector, []
    adam, rate, always = AdamState.like(vector), torch.tensor(LEARNING_RATE), torch.tensor(True)
    for _ in range(steps + 1):
        grad, log_ratio = gradient(loss, vector)
        rows.append(problem.measure(log_ratio))
        adam_step(vector, (adam.first, adam.second), grad, always, rate, adam.corrections(), ADAM_EPS)
        adam.count += 1
    return rows
