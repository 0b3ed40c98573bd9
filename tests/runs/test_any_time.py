"""What one has of a run that has not finished: its policy, its error's place, its directory for another try."""

import math
import signal
import sys

import gymnasium as gym
import numpy as np
import pytest

import spo
from spo import cli
from spo.errors import ConfigError, EnvError
from spo.runs.directory import RunDirectory
from spo.runtime.signals import Interrupted
from spo.trainer import Trainer

CARTPOLE = {"preset": "classic", "envs": 4, "horizon": 32, "steps": 4 * 128, "checkpoint_every": 2, "quiet": True}


class Faulty(gym.Env):
    """Raises in its own code at a step of its life."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, at: int = 5):
        self.at, self.steps, self.reward = at, 0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == self.at:
            self._read_the_map()
        return np.zeros(2, np.float32), self.reward, False, False, {}

    def _read_the_map(self):
        return [][7]


class Patient(Faulty):
    """Never raises."""

    def __init__(self, reward: float = 0.0):
        super().__init__(at=0)
        self.reward = reward


def stop_after(iterations):
    return lambda trainer, row: row["iteration"] < iterations


def fail_after(iterations):
    def fail(trainer, row):
        if row["iteration"] == iterations:
            raise RuntimeError("the power failed")

    return fail


def test_a_run_that_failed_has_the_policy_of_its_newest_checkpoint(tmp_path, capsys):
    """The checkpoint holds what the run was at that iteration, so a run that ended there has the same policy."""
    with pytest.raises(RuntimeError):
        spo.train("CartPole-v1", **CARTPOLE, out=str(tmp_path / "failed"), callback=fail_after(3))
    ended = spo.train("CartPole-v1", **CARTPOLE, out=str(tmp_path / "ended"), callback=stop_after(3))
    capsys.readouterr()
    policy = spo.load(tmp_path / "failed")
    assert "after iteration 3" in capsys.readouterr().err
    tensors = policy.tensors()
    assert tensors.keys() == ended.policy.tensors().keys()
    assert all(np.array_equal(tensors[name], tensor) for name, tensor in ended.policy.tensors().items())


def test_a_running_run_can_be_evaluated_and_begun_from(tmp_path, capsys):
    seen = []

    def look(trainer, row):
        if row["iteration"] == 3:
            seen.append(spo.evaluate(tmp_path / "run", episodes=1).return_mean)

    spo.train("CartPole-v1", **CARTPOLE, out=str(tmp_path / "run"), callback=look)
    assert len(seen) == 1 and seen[0] > 0
    with pytest.raises(RuntimeError):
        spo.train("CartPole-v1", **CARTPOLE, out=str(tmp_path / "failed"), callback=fail_after(3))
    settings = CARTPOLE | {"quiet": False, "init_from": str(tmp_path / "failed")}
    capsys.readouterr()
    spo.train("CartPole-v1", **settings, out=str(tmp_path / "next"))
    assert f"starts from the policy in {tmp_path / 'failed'}/checkpoints/00000003/policy" in capsys.readouterr().err


def test_a_damaged_policy_of_a_checkpoint_gives_way_to_an_older_one(tmp_path, capsys):
    settings = CARTPOLE | {"checkpoint_every": 1}
    with pytest.raises(RuntimeError):
        spo.train("CartPole-v1", **settings, out=str(tmp_path / "run"), callback=fail_after(3))
    newest = sorted((tmp_path / "run" / "checkpoints").glob("[0-9]*"))[-1] / "policy" / "policy.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    capsys.readouterr()
    spo.load(tmp_path / "run")
    assert "after iteration 2" in capsys.readouterr().err


def test_a_run_that_goes_on_is_not_taken_for_what_it_was(tmp_path, capsys):
    """The policy of an earlier end does not hide those of later checkpoints."""
    settings = CARTPOLE | {"steps": 6 * 128}
    spo.train("CartPole-v1", **settings, out=str(tmp_path / "run"), callback=stop_after(2))
    with pytest.raises(RuntimeError):
        spo.resume(tmp_path / "run", quiet=True, callback=fail_after(5))
    capsys.readouterr()
    spo.load(tmp_path / "run")
    assert "after iteration 5" in capsys.readouterr().err


@pytest.mark.parametrize("backend", ["gymnasium"])
def test_an_environments_error_keeps_its_cause_and_names_its_line(backend, tmp_path):
    settings = {"preset": "classic", "envs": 2, "horizon": 16, "steps": 64, "backend": backend, "quiet": True}
    with pytest.raises(spo.SpoError, match=r"raised IndexError.*test_any_time.py, in _read_the_map\), in iteration 1"):
        spo.train(Faulty, **settings, out=str(tmp_path / "run"))
    with pytest.raises(spo.SpoError) as refusal:
        spo.train(Faulty, **settings, out=str(tmp_path / "again"))
    assert isinstance(refusal.value.__cause__, IndexError)
    written = (tmp_path / "run" / "traceback.txt").read_text()
    assert "return [][7]" in written and "IndexError" in written


def refuse_to_compile(trainer):
    raise AssertionError("compiled first")


def test_a_fault_of_any_environment_comes_before_compiling(tmp_path, monkeypatch):
    """Also of the last one."""
    monkeypatch.setattr(Trainer, "choose_update_path", refuse_to_compile)
    settings = {"preset": "classic", "envs": 3, "horizon": 16, "steps": 96, "compile": "on", "quiet": True}
    faults = iter([0, 0, 1])
    with pytest.raises(spo.SpoError, match="environment 2 raised IndexError"):
        spo.train(lambda: Faulty(at=next(faults)), **settings, out=str(tmp_path / "run"))
    assert "return [][7]" in (tmp_path / "run" / "traceback.txt").read_text()


def test_a_reward_that_is_no_number_comes_before_compiling(tmp_path, monkeypatch):
    monkeypatch.setattr(Trainer, "choose_update_path", refuse_to_compile)
    settings = {"preset": "classic", "envs": 2, "horizon": 16, "steps": 64, "compile": "on", "quiet": True}
    with pytest.raises(spo.SpoError, match="reward of environment 0 is not finite .nan. at its step 1"):
        spo.train(lambda: Patient(reward=math.nan), **settings, out=str(tmp_path / "run"))


@pytest.mark.parametrize("env, settings", [("Pendulum-v1", {}), ("CartPole-v1", {"horizon": 1, "minibatches": 2})])
def test_the_step_before_compiling_is_the_first_of_the_rollout(env, settings, tmp_path, monkeypatch):
    rows, settings = [], CARTPOLE | settings
    for will_compile in (False, True):
        monkeypatch.setattr(Trainer, "will_compile", will_compile)
        monkeypatch.setattr(Trainer, "choose_update_path", lambda trainer: ("eager", "as asked"))
        run = spo.train(env, **settings, out=str(tmp_path / str(will_compile)), callback=stop_after(4))
        metrics = RunDirectory(run.directory).read_metrics()
        rows.append([row | {"wall_time": 0, "steps_per_second": 0} for row in metrics])
    assert rows[0] == rows[1] and len(rows[0]) == 4


def test_a_run_is_announced_before_its_environments_are_made(tmp_path, capsys):
    """They may take minutes."""
    told = []

    def make():
        told.append(capsys.readouterr().err)
        return Patient()

    spo.train(make, **CARTPOLE | {"quiet": False}, out=str(tmp_path / "run"), callback=stop_after(1))
    assert "seed 1 · 512 steps" in told[0]


def test_a_run_stopped_while_it_compiles_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def interrupt(trainer):
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(Trainer, "choose_update_path", interrupt)
    settings = CARTPOLE | {"compile": "on", "quiet": False}
    with pytest.raises(KeyboardInterrupt):
        spo.train(Patient, **settings, out=str(tmp_path / "run"))
    told = f"stopped while compiling; to go on: spo resume {tmp_path / 'run'} --env {Patient.__module__}:Patient"
    assert told in capsys.readouterr().err


def test_a_run_of_a_class_says_how_to_resume_it(tmp_path):
    """Below its error, where Python and the command line show it."""
    with pytest.raises(spo.SpoError) as refusal:
        spo.train(Faulty, preset="classic", envs=2, horizon=16, steps=64, quiet=True, out=str(tmp_path / "run"))
    assert f"spo resume {tmp_path / 'run'} --env {Faulty.__module__}:Faulty" in refusal.value.__notes__[0]
    assert "--overwrite" in refusal.value.__notes__[0]
    with pytest.raises(spo.SpoError) as refusal:
        spo.train(
            lambda: Faulty(), preset="classic", envs=2, horizon=16, steps=64, quiet=True, out=str(tmp_path / "two")
        )
    assert f"spo.resume({str(tmp_path / 'two')!r}, env=...)" in refusal.value.__notes__[0]


def test_the_command_line_says_how_to_go_on_below_the_error(tmp_path, monkeypatch, capsys):
    words = [
        "spo",
        "train",
        f"{__name__}:Faulty",
        "--preset",
        "classic",
        "--steps",
        "4k",
        "--out",
        str(tmp_path / "run"),
    ]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert (
        told[-2].startswith("error: environment 0 raised IndexError") and "_read_the_map), in iteration 1" in told[-2]
    )
    assert f"spo resume {tmp_path / 'run'} --env {__name__}:Faulty starts the run again" in told[-1]
    with pytest.raises(ConfigError, match="name another, or replace it: --overwrite"):
        cli.dispatch(words[1:])


def test_a_run_of_a_class_is_resumed_by_its_name(tmp_path):
    settings = {"preset": "classic", "envs": 2, "horizon": 16, "steps": 128, "quiet": True}
    spo.train(Patient, **settings, out=str(tmp_path / "run"), callback=stop_after(2))
    with pytest.raises(spo.ConfigError, match="was made by"):
        spo.resume(tmp_path / "run", quiet=True)
    named = f"{Patient.__module__}:Patient"
    with pytest.raises(spo.ConfigError, match=f"name it, as in --env {named}"):
        spo.evaluate(tmp_path / "run", episodes=1)
    assert spo.evaluate(tmp_path / "run", named, episodes=1, max_steps=3).lengths == [3]
    assert spo.resume(tmp_path / "run", env=named, quiet=True).summary["env_steps"] == 128


def test_overwrite_takes_a_directory_without_a_checkpoint_and_no_other(tmp_path):
    out = str(tmp_path / "run")
    with pytest.raises(spo.SpoError):
        spo.train(Faulty, preset="classic", envs=2, horizon=16, steps=64, quiet=True, out=out)
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="already holds a run"):
        spo.train("CartPole-v1", **CARTPOLE, out=out)
    spo.train("CartPole-v1", **CARTPOLE, out=out, overwrite=True)
    assert not (tmp_path / "run" / "traceback.txt").exists()
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    with pytest.raises(ConfigError, match="has a checkpoint"):
        spo.train("CartPole-v1", **CARTPOLE, out=out, overwrite=True)


def test_kinds_of_errors_are_told_apart(tmp_path):
    assert issubclass(EnvError, spo.SpoError)
    with pytest.raises(spo.CorruptRunError, match="is not a run directory"):
        spo.resume(tmp_path)
    with pytest.raises(spo.ConfigError, match="--episodes 0 is not accepted"):
        spo.evaluate(tmp_path, episodes=0)
