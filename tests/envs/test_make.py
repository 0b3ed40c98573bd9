"""What is accepted as an environment, and what is said of what is not."""

import gymnasium as gym
import numpy as np
import pytest

import spo
from spo.envs.make import EnvMaker
from spo.errors import ConfigError, EnvError


class Doubling(gym.RewardWrapper):
    """Multiplies rewards."""

    def __init__(self, env: gym.Env, factor: float = 2.0):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward):
        return self.factor * reward


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


class Plain(gym.Env):
    """Is registered nowhere, and rewards each of three steps by 1."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), 1.0, self.time == 3, False, {}


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


class Blind(Old):
    observation_space = None


class Misspelt(gym.Env):
    action_spaces = observation_space = gym.spaces.Discrete(2)


@pytest.mark.parametrize(
    "env, told",
    [
        (lambda: Blind("step"), r"has no observation_space; accepted is a gymnasium.Space"),
        (Misspelt, r"has no action_space; accepted is a gymnasium.Space that its constructor sets"),
    ],
)
def test_an_environment_without_a_space_is_refused(env, told):
    with pytest.raises(EnvError, match=told):
        spo.train(env, **SHORT)


class Breaking(gym.vector.SyncVectorEnv):
    def step(self, actions):
        raise ZeroDivisionError("no wheels")


def make_breaking():
    return Breaking([lambda: gym.make("CartPole-v1")] * 2)


def test_a_vector_environment_that_raises_is_named():
    with pytest.raises(EnvError, match="the vector environment raised ZeroDivisionError in step: no wheels"):
        spo.train(make_breaking, **SHORT | {"envs": 2})


def test_evaluations_in_a_vector_environment_are_refused_before_anything_is_trained():
    with pytest.raises(ConfigError, match="--eval-every 3 is not accepted: what was given makes a vector environment"):
        spo.train(make_breaking, **SHORT | {"envs": 2, "eval_every": 3})


def test_a_class_that_is_registered_nowhere_is_made_by_its_name():
    assert isinstance(EnvMaker(f"{__name__}:Plain", {})(), Plain)
    with pytest.raises(EnvError, match=f"environment '{__name__}:Missing' is not a registered Gymnasium id"):
        EnvMaker(f"{__name__}:Missing", {})()


def test_wrappers_are_put_around_with_their_arguments():
    words = (f"{__name__}:Doubling", "factor=3", "gymnasium.wrappers:FrameStackObservation", "stack_size=4")
    env = EnvMaker(Plain, {}, wrappers=words)()
    env.reset(seed=1)
    observation, reward, *_ = env.step(0)
    assert reward == 3.0 and observation.shape == (4, 2)


@pytest.mark.parametrize(
    "name, told",
    [
        ("no_such_module:Class", "failed: ModuleNotFoundError"),
        ("gymnasium.wrappers:Missing", "failed: AttributeError"),
        ("gymnasium.wrappers:FrameStackObservation", "failed: TypeError"),
        ("builtins:id", "made a int; accepted is what makes a gymnasium.Env"),
    ],
)
def test_what_is_no_wrapper_is_refused(name, told):
    with pytest.raises(EnvError, match=f"--wrapper {name} {told}"):
        EnvMaker(Plain, {}, wrappers=(name,))()


def test_wrappers_of_a_run_are_named_again(tmp_path):
    words = ("gymnasium.wrappers:FrameStackObservation", "stack_size=2")
    run = spo.train(Plain, wrapper=words, out=str(tmp_path / "run"), **SHORT)
    assert run.policy.spec.observation_space.shape == (2, 2)
    with pytest.raises(ConfigError, match="repeat --wrapper gymnasium.wrappers:FrameStackObservation stack_size=2"):
        spo.evaluate(run.directory, env=Plain)
    assert spo.evaluate(run.directory, env=Plain, wrapper=words, episodes=2).returns == [3.0, 3.0]
    with pytest.raises(ConfigError, match="--wrapper .* is not accepted: it must be module:Class, each followed by"):
        spo.train(Plain, wrapper=("stack_size=2",), **SHORT)
