"""Environments whose right answers are known, and a way to train on them without a run directory."""

import os
import sys
import time
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

if TYPE_CHECKING:  # a worker process that steps one of these needs no torch, which takes seconds to import
    from spo.trainer import Trainer

DISCRETE = gym.spaces.Discrete(2)
CONTINUOUS = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
THREADS = min(int(os.environ.get("SPO_TEST_THREADS", 1)), os.cpu_count())
"""Of torch in a test process: the suite runs in as many processes as there are cores."""
MADE: list["Trainer"] = []
"""Trainings of the test that runs, whose environments are closed after it: a watchdog keeps them alive till then."""


class Probe(gym.Env):
    """A base for tiny environments: one number to see, two actions or one number to do."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, action_space: gym.Space = DISCRETE):
        self.action_space = action_space

    def see(self, value: float) -> np.ndarray:
        return np.array([value], dtype=np.float32)


class ConstantReward(Probe):
    """One step, always reward 1: the value is 1."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see(0.0), {}

    def step(self, action):
        return self.see(0.0), 1.0, True, False, {}


class ObservedReward(Probe):
    """One step, reward = observation, which is ±1 at random: the value is the observation."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.sign = float(self.np_random.choice([-1.0, 1.0]))
        return self.see(self.sign), {}

    def step(self, action):
        return self.see(self.sign), self.sign, True, False, {}


class DelayedReward(Probe):
    """Two steps, reward 1 after the second: the values are γ and 1."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.see(0.0), {}

    def step(self, action):
        self.time += 1
        return self.see(1.0), float(self.time == 2), self.time == 2, False, {}


class ActionReward(Probe):
    """One step; the right action is 1 (discrete) or 0.5 (continuous)."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see(0.0), {}

    def step(self, action):
        reward = float(action) if self.action_space == DISCRETE else -float((action[0] - 0.5) ** 2)
        return self.see(0.0), reward, True, False, {}


class Approach(Probe):
    """Eight steps on a line, from anywhere near its origin and best towards it: the reward is −(distance)²."""

    def __init__(self):
        super().__init__(CONTINUOUS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.place = 0, float(self.np_random.uniform(-1, 1))
        return self.see(self.place), {}

    def step(self, action):
        self.time += 1
        self.place += 0.5 * float(action[0])
        return self.see(self.place), -(self.place**2), self.time == 8, False, {}


class EndlessReward(Probe):
    """Reward 1 for ever, cut every `limit` steps, and nothing to see: the value is 1 / (1 − γ)."""

    def __init__(self, limit: int = 10):
        super().__init__()
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.see(0.0), {}

    def step(self, action):
        self.time += 1
        return self.see(0.0), 1.0, False, self.time == self.limit, {}


class Busy(Probe):
    """Works for every step, and never ends: where nothing runs, its time does not pass."""

    def __init__(self, seconds: float):
        super().__init__()
        self.seconds = seconds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see(0.0), {}

    def step(self, action):
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return self.see(0.0), 1.0, False, False, {}


class Lives(Probe):
    """A walk of three lives: a reset after the loss of one goes on with it, any other starts a new walk."""

    life_lost = False

    def reset(self, *, seed=None, options=None):
        if not self.life_lost:
            super().reset(seed=seed)
            self.lives, self.place = 3, 0.0
        self.life_lost = False
        return self.see(self.place), {}

    def step(self, action):
        self.place += float(self.np_random.normal())
        is_lost = bool(self.np_random.random() < 0.1)
        self.lives -= is_lost
        self.life_lost = is_lost and self.lives > 0
        return self.see(self.place), 1.0, is_lost, False, {"life_lost": self.life_lost}


class Counting(gym.Env):
    """Observation = (environment, episode, step). Episodes have 3 steps, then 4, …; odd ones are cut."""

    observation_space = gym.spaces.Box(0, np.inf, (3,), np.float64)
    action_space = DISCRETE
    made = 0

    def __init__(self):
        self.index, Counting.made = Counting.made, Counting.made + 1
        self.episode, self.seeds = -1, []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.episode, self.time = self.episode + 1, 0
        return self.observed(), {}

    def step(self, action):
        self.time += 1
        is_over = self.time == 3 + self.episode
        is_even = self.episode % 2 == 0
        return self.observed(), float(self.time), is_over and is_even, is_over and not is_even, {}

    def observed(self) -> np.ndarray:
        return np.array([self.index, self.episode, self.time], dtype=np.float64)


class Witness(gym.Env):
    """Observes whether its process has imported torch."""

    observation_space, action_space = gym.spaces.Box(0, 1, (1,), np.float32), DISCRETE

    def reset(self, *, seed=None, options=None):
        return np.float32(["torch" in sys.modules]), {}

    def step(self, action):
        return np.float32(["torch" in sys.modules]), 0.0, False, False, {}


class Spaces(gym.Env):
    """Any pair of spaces, sampled at random; the reward is 1 for ever."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.time += 1
        return self.observation_space.sample(), 1.0, self.time == 7, False, {}


class Masked(gym.Env):
    """Allows a random half of its actions, remembers what it was asked to do, and rewards the largest allowed one."""

    observation_space = gym.spaces.Box(0, 1, (6,), np.float32)
    action_space = gym.spaces.Discrete(6)
    forbidden = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.shown()

    def shown(self):
        self.allowed = self.np_random.random(6) < 0.5
        self.allowed[self.np_random.integers(6)] = True
        return self.np_random.random(6, dtype=np.float32), {"action_mask": self.allowed.astype(np.int8)}

    def step(self, action):
        Masked.forbidden += not self.allowed[action]
        reward = float(action == np.flatnonzero(self.allowed)[-1])
        self.time += 1
        observation, info = self.shown()
        return observation, reward, self.time == 20, False, info


class Catch(gym.Env):
    """A ball falls through a square picture; a paddle below moves left, stays or moves right. Return ±1."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self, size: int = 10):
        self.size = size
        self.observation_space = gym.spaces.Box(0, 255, (size, size, 2), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.row, self.ball, self.paddle = 0, int(self.np_random.integers(self.size)), self.size // 2
        return self.picture(), {}

    def step(self, action):
        self.paddle = min(self.size - 1, max(0, self.paddle + int(action) - 1))
        self.row += 1
        is_over = self.row == self.size - 1
        reward = (1.0 if abs(self.paddle - self.ball) <= 1 else -1.0) if is_over else 0.0
        return self.picture(), reward, is_over, False, {}

    def picture(self) -> np.ndarray:
        image = np.zeros(self.observation_space.shape, np.uint8)
        image[self.row, self.ball, 0] = 255
        image[self.size - 1, self.paddle, 1] = 255
        return image


def training(env, **settings) -> "Trainer":
    """A training on an environment id or a maker of one; eager and with the threads of a test process unless asked,
    because threads of several processes on the same cores wait for each other; with the classic preset."""
    from spo.config.sources import make_config
    from spo.envs.factory import env_maker
    from spo.runs.start import name_of
    from spo.trainer import Trainer

    name = env if isinstance(env, str) else name_of(env)
    defaults = {"preset": "classic", "steps": 10**6, "compile": "off", "threads": THREADS}
    config = make_config(name, **defaults | settings)
    MADE.append(Trainer(config, env_maker(config, env)))
    return MADE[-1]


def accepts_box(objective: str) -> bool:
    """Whether a registered objective goes with Box actions."""
    from spo.objectives import OBJECTIVES

    return not OBJECTIVES[objective].needs_probabilities


def iterate(run: "Trainer", times: int) -> list[dict]:
    """So many iterations; their metrics rows."""
    return [run.iterate()[0] for _ in range(times)]
