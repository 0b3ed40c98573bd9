"""Environments that misbehave. What steps them in another process imports this module, and so no torch, no tests."""

import os
import signal
import time

import gymnasium as gym
import numpy as np

from probes import Counting, Probe


class Faulty(Probe):
    """Misbehaves in the third step of its life."""

    lives = 0

    def __init__(self, deed: str):
        super().__init__(gym.spaces.Box(-1.0, 1.0, (1,), np.float32))
        self.deed, self.time = deed, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see(0.0), {}

    def step(self, action):
        self.time += 1
        observation, reward = self.see(0.0), 1.0
        if self.time == 3:
            observation, reward = getattr(self, self.deed)() or (observation, reward)
        return observation, reward, False, False, {}

    def raises(self):
        raise RuntimeError("no more")

    def exits(self):
        raise SystemExit(3)

    def is_killed(self):
        os.kill(os.getpid(), 9)

    def hangs(self):
        time.sleep(3600)

    def sees_nan(self):
        return self.see(np.nan), 1.0

    def is_paid_infinity(self):
        return self.see(0.0), np.inf

    def sees_too_much(self):
        return np.array([1e200]), 1.0

    def is_paid_too_much(self):
        return self.see(0.0), 1e200

    def sees_another_shape(self):
        return np.zeros(2, np.float32), 1.0

    def sees_another_type(self):
        return np.array(["text"]), 1.0


class FaultyLater(Faulty):
    """The first of a process behaves, and trains; those that are made for evaluations do not."""

    made = 0

    def __init__(self, deed: str):
        FaultyLater.made += 1
        super().__init__("behaves" if FaultyLater.made == 1 else deed)

    def behaves(self):
        return None


class Misbehaving(Counting):
    """Does something at its fifth step."""

    def __init__(self, deed: str):
        super().__init__()
        self.deed, self.steps = deed, 0

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            if self.deed == "raise":
                raise RuntimeError("gearbox broke")
            if self.deed == "exit":
                os._exit(7)
            if self.deed == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.deed == "hang":
                time.sleep(3600)
        return super().step(action)


class Elsewhere:
    """Makes environments that misbehave in every process but this one."""

    def __init__(self, deed: str):
        self.deed, self.home = deed, os.getpid()

    def __call__(self):
        return Counting() if os.getpid() == self.home else Misbehaving(self.deed)
