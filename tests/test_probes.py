"""Both rules of improvement on tasks whose values and best actions are known; test_learning has all objectives."""

import numpy as np
import pytest
import torch

from probes import (
    CONTINUOUS,
    DISCRETE,
    ActionReward,
    ConstantReward,
    DelayedReward,
    EndlessReward,
    ObservedReward,
    iterate,
    training,
)

SPACES = {"discrete": DISCRETE, "continuous": CONTINUOUS}
SETTINGS = {
    "envs": 4,
    "horizon": 64,
    "minibatches": 4,
    "epochs": 4,
    "learning_rate": 0.01,
    "lr_schedule": "constant",
    "hidden": (16,),
    "critic_hidden": (16,),
    "normalize_observation": "off",
    "normalize_reward": "off",
    "value_clip": "off",
    "gamma": 0.5,
}


def learned(env, space: str, objective: str, iterations: int):
    run = training(lambda: env(SPACES[space]), objective=objective, **SETTINGS)
    iterate(run, iterations)
    return run


def values(run, *observations: float) -> list[float]:
    return run.network(torch.tensor(observations).unsqueeze(-1), "value").tolist()


@pytest.mark.parametrize(
    "objective, space",
    [
        ("spo", "discrete"),
        ("trpo", "continuous"),
        pytest.param("spo", "continuous", marks=pytest.mark.rest),
        pytest.param("trpo", "discrete", marks=pytest.mark.rest),
    ],
)
class TestProbes:
    def test_constant_reward(self, objective, space):
        assert values(learned(ConstantReward, space, objective, 10), 0.0) == pytest.approx([1.0], abs=0.1)

    def test_reward_that_depends_on_the_observation(self, objective, space):
        run = learned(ObservedReward, space, objective, 15)
        assert values(run, -1.0, 1.0) == pytest.approx([-1.0, 1.0], abs=0.1)

    def test_delayed_reward(self, objective, space):
        assert values(learned(DelayedReward, space, objective, 15), 0.0, 1.0) == pytest.approx([0.5, 1.0], abs=0.1)

    def test_reward_that_depends_on_the_action(self, objective, space):
        """Seeds 1 to 10 come to a probability above 0.99, and to an action of 0.47 to 0.59."""
        run = learned(ActionReward, space, objective, 25)
        params = run.network(torch.zeros(1, 1), "dist_params")
        if space == "discrete":
            assert params.softmax(-1)[0, 1] > 0.8
        else:
            assert params[0, 0].item() == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize("truncation, lam", [("bootstrap", 0.9), pytest.param("terminal", 1.0, marks=pytest.mark.rest)])
def test_value_of_an_endless_task(truncation, lam):
    """1 / (1 − γ) if a cut episode goes on in value; otherwise the mean of what is left until the cut."""
    gamma, limit = 0.9, 10
    settings = SETTINGS | {"gamma": gamma, "lam": lam, "horizon": 40, "truncation": truncation}
    run = training(lambda: EndlessReward(limit), **settings)
    iterate(run, 80)
    cut = np.mean([(1 - gamma**left) / (1 - gamma) for left in range(1, limit + 1)])
    expected = 1 / (1 - gamma) if truncation == "bootstrap" else cut
    assert values(run, 0.0) == pytest.approx([expected], rel=0.03)
