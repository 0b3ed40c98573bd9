"""Environments that raise now and then: the run ends, or goes on if that is asked for."""

import json
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import spo
from spo.envs.make import EnvMaker
from spo.envs.subproc import SubprocVecEnv
from spo.envs.sync import MOST_WARNINGS, SyncVecEnv
from spo.errors import EnvError


class Breaking(gym.Env):
    """Raises in the step of an episode that it is told to, and works until then."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, at: int = 3):
        self.at = at

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._seen(), {}

    def _seen(self):
        return np.full(2, self.time / 10, np.float32)

    def step(self, action):
        self.time += 1
        if self.time == self.at:
            raise RuntimeError("gearbox broke")
        return self._seen(), 1.0, False, False, {}


def make(at: int, on_error: str = "restart") -> EnvMaker:
    return EnvMaker(Breaking, {"at": at}, on_error=on_error)


def test_an_episode_is_cut_where_its_environment_raised(capfd):
    envs = SyncVecEnv(make(3), range(2), seed=1)
    envs.reset()
    first = envs.envs[0]
    steps = [envs.step(np.zeros(2, int)) for _ in range(4)]
    assert [step.restarts for step in steps] == [0, 0, 2, 0]
    cut = steps[2]
    assert cut.truncated.all() and not cut.terminated.any() and not cut.reward.any()
    np.testing.assert_allclose(cut.final_observation, 0.2)  # the last that was seen
    np.testing.assert_allclose(cut.observation, 0.0)
    assert [(episode.total_reward, episode.length) for episode in cut.episodes] == [(2.0, 3), (2.0, 3)]
    assert envs.envs[0] is not first
    told = capfd.readouterr().err.splitlines()[1]
    assert told.startswith("warning: environment 1 raised RuntimeError: gearbox broke (its step 3) (line ")
    assert told.endswith("; its episode is cut, and it is made anew")


def test_restarts_are_counted_and_only_the_first_ones_told(capfd):
    envs = SyncVecEnv(make(2), range(2), seed=1)
    envs.reset()
    assert sum(envs.step(np.zeros(2, int)).restarts for _ in range(10)) == 10
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == MOST_WARNINGS and "test_restart.py, in step)" in lines[0]
    assert lines[-1].endswith("it is made anew; from here on they are only counted")


def test_workers_count_their_restarts():
    envs = SubprocVecEnv(partial(SyncVecEnv, make_env=make(2), seed=1), 2, 2, 300)
    try:
        envs.reset()
        assert [envs.step(np.zeros(2, int)).restarts for _ in range(2)] == [0, 2]
    finally:
        envs.close()


@pytest.mark.parametrize("at, on_error, step", [(1, "restart", 1), (3, "stop", 3)])
def test_what_would_come_again_or_was_not_asked_for_ends_the_run(at, on_error, step):
    envs = SyncVecEnv(make(at, on_error), range(2), seed=1)
    envs.reset()
    with pytest.raises(EnvError, match=f"environment 0 raised RuntimeError: gearbox broke .its step {step}"):
        for _ in range(4):
            envs.step(np.zeros(2, int))


def test_a_run_goes_on_and_counts(tmp_path, capfd):
    settings = {
        "preset": "classic",
        "steps": 64,
        "envs": 2,
        "horizon": 16,
        "minibatches": 2,
        "epochs": 1,
    }
    spo.train(Breaking, on_env_error="restart", env_arg={"at": 5}, out=str(tmp_path / "run"), **settings)
    assert "environments made anew      12 (--on-env-error restart)" in capfd.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["env_restarts"] for row in rows] == [6, 12]
