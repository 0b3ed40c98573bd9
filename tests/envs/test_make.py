"""What is accepted as an environment, and what is said of what is not."""

import gymnasium as gym
import numpy as np
import pytest

import spo
from spo.errors import EnvError


class Old(gym.Env):
    """Speaks the old gym's dialect, in the ways that it is told to."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, dialect: str):
        self.dialect = dialect

    def reset(self, **keywords):
        if self.dialect == "seed":
            raise TypeError("Old.reset() got an unexpected keyword argument 'seed'")
        observation = np.zeros(2, np.float32)
        return observation if self.dialect == "reset" else (observation, {})

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, {}


SHORT = {"preset": "classic", "steps": 64, "envs": 2, "horizon": 32, "minibatches": 2, "quiet": True}


@pytest.mark.parametrize(
    "dialect, told",
    [
        ("seed", "environment 0 raised TypeError in reset: .*this looks like the old gym: .* takes seed and options"),
        (
            "step",
            "environment 0 raised ValueError: .*this looks like the old gym: step has to return obs",
        ),
    ],
)
def test_the_old_gym_is_recognised(dialect, told, tmp_path):
    with pytest.raises(EnvError, match=told):
        spo.train(lambda: Old(dialect), out=str(tmp_path / "run"), **SHORT)


@pytest.mark.parametrize(
    "env, told",
    [
        (
            Old("step"),
            r"an environment that exists already \(Old\) is not accepted: .* pass its class, its id",
        ),
        (gym.make_vec("CartPole-v1", num_envs=3), "a vector environment that exists .* lambda: envs, with envs=3"),
        (5, "environment 5 is not accepted: it must be an id, or a class or function that makes one"),
    ],
    ids=["instance", "vector", "number"],
)
def test_what_makes_no_environment_is_refused(env, told):
    with pytest.raises(EnvError, match=told):
        spo.train(env, **SHORT)
