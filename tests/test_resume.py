"""A run that was killed any number of times ends as one that never was: to the bit."""

import json
import random
import shutil
import signal
import time
from functools import partial
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest

import spo
from crash import SHORT, KillAt, child, killed_after, remains, start_or_resume, timeless
from probes import Catch, EndlessReward, Masked, Probe
from spo import checkpoint
from spo.errors import Refusal
from spo.rundir import RunDirectory

needs_envpool = pytest.mark.skipif(find_spec("envpool") is None, reason="needs the extra envpool")
OBJECTIVES = ("spo", "ppo-clip", "ppo-penalty", "trpo")


def whole(tmp_path, env="CartPole-v1", **settings):
    """What an uninterrupted run leaves."""
    start_or_resume(tmp_path / "whole", env, settings)
    return remains(tmp_path / "whole")


def stopped(out, env, settings, after: int):
    """A run whose process forgets everything after so many iterations, as if it had been killed there."""

    class Killed(BaseException):
        pass

    def stop(training, row):
        if training.iteration == after:
            raise Killed

    with pytest.raises(Killed):
        spo.train(env, **SHORT | settings, out=str(out), callback=stop)


def test_kills_at_random_moments(tmp_path, amount, capsys):
    """200 SIGKILLs over short runs of four objectives: nothing unreadable, nothing different."""
    seed = 20261116
    draw, kills, runs = random.Random(seed), 0, 0
    references = {name: whole(tmp_path / name, objective=name) for name in OBJECTIVES}
    assert not killed_after(60, tmp_path / "warm", "CartPole-v1", {})
    started = time.monotonic()
    assert not killed_after(60, tmp_path / "timed", "CartPole-v1", {})
    span = time.monotonic() - started
    while kills < amount(200, 1000):
        name = OBJECTIVES[runs % len(OBJECTIVES)]
        out = tmp_path / f"run-{runs}"
        for _ in range(draw.randint(4, 16)):
            kills += killed_after(draw.uniform(0, span), out, "CartPole-v1", {"objective": name})
        start_or_resume(out, "CartPole-v1", {"objective": name})
        assert remains(out) == references[name], f"seed {seed}, run {runs}, {name}"
        shutil.rmtree(out)
        runs += 1
    with capsys.disabled():
        print(f"\n{kills} kills over {runs} runs, seed {seed}")


def test_kills_at_every_step_of_publishing(tmp_path):
    """Before every fsync, rename, removal and cut of a run's life, also of its resumed life."""
    settings = {"steps": 32 * 4, "keep": 1}
    expected = whole(tmp_path, **settings)
    number, is_dead = 0, True
    while is_dead:
        number += 1
        out = tmp_path / "victim"
        process = child(out, "CartPole-v1", settings, KillAt(number))
        process.join()
        is_dead = process.exitcode == -signal.SIGKILL
        assert is_dead or process.exitcode == 0
        process = child(out, "CartPole-v1", settings, KillAt(number // 2 + 1))
        process.join()
        start_or_resume(out, "CartPole-v1", settings)
        assert remains(out) == expected, f"killed before operation {number}"
        assert not checkpoint.leftovers(RunDirectory(out))
        shutil.rmtree(out)
    assert number > 30  # four checkpoints of at least eight operations each


@pytest.mark.parametrize("objective", sorted(spo.objectives.OBJECTIVES))
def test_every_objective_resumes_exactly(objective, tmp_path):
    settings = {"objective": objective, "lr_schedule": "linear", "checkpoint_every": 3}
    expected = whole(tmp_path, "Pendulum-v1", **settings)
    stopped(tmp_path / "run", "Pendulum-v1", settings, after=5)
    start_or_resume(tmp_path / "run", "Pendulum-v1", settings)
    assert remains(tmp_path / "run") == expected


@pytest.mark.parametrize(
    "env, settings",
    [
        (Catch, {}),
        (Masked, {}),
        (EndlessReward, {"normalize_observation": "per-env", "normalize_reward": "per-env", "paper": True}),
        ("Acrobot-v1", {"backend": "process", "threads": 1}),
        ("CartPole-v1", {"lr_schedule": "adaptive-kl", "eval_every": 3, "tensorboard": True}),
    ],
    ids=["image", "masked", "per-env", "process", "adaptive-kl"],
)
def test_every_kind_of_run_resumes_exactly(env, settings, tmp_path):
    expected = whole(tmp_path, env, **settings)
    stopped(tmp_path / "run", env, settings, after=5)
    start_or_resume(tmp_path / "run", env, settings)
    assert remains(tmp_path / "run") == expected
    assert RunDirectory(tmp_path / "run").read_status()["exact"]
    if "eval_every" in settings:
        evaluations = [timeless(tmp_path / name / "evaluations.jsonl") for name in ("whole", "run")]
        assert evaluations[0] == evaluations[1] and len(evaluations[0]) == 2


def test_a_compiled_run_resumes_exactly(tmp_path):
    settings = {"compile": "on"}
    expected = whole(tmp_path, **settings)
    stopped(tmp_path / "run", "CartPole-v1", settings, after=5)
    start_or_resume(tmp_path / "run", "CartPole-v1", settings)
    assert remains(tmp_path / "run") == expected
    assert RunDirectory(tmp_path / "run").read_config()["resolved"]["update"] == "compiled"


@needs_envpool
def test_envpool_resumes_exactly_from_its_seams(tmp_path):
    settings = {"backend": "envpool", "seam_every": 3, "threads": 1}
    expected = whole(tmp_path, **settings)
    stopped(tmp_path / "run", "CartPole-v1", settings, after=5)
    assert [path.name for path in checkpoint.published(RunDirectory(tmp_path / "run"))] == ["00000003"]
    start_or_resume(tmp_path / "run", "CartPole-v1", settings)
    assert remains(tmp_path / "run") == expected
    cut = [row["episodes_cut"] for row in expected["metrics"]]
    assert cut[0] == 0 and cut[2] > 0 and sorted(cut) == cut


def test_atari_is_replayed_across_lives(tmp_path):
    """The game goes on over a lost life, which is an end for learning only: replay starts at the last real reset."""
    pytest.importorskip("ale_py")
    settings = {"preset": "atari", "backend": "gymnasium", "envs": 1, "horizon": 64, "minibatches": 1, "epochs": 1}
    settings |= {"steps": 64 * 8, "encoder": "small", "threads": 1}
    expected = whole(tmp_path, "Breakout", **settings)
    lives = []

    def stop_after_a_life(training, row):
        lives.append(training.envs.envs.envs[0].unwrapped.ale.lives())
        return lives[-1] == 5  # all of them: go on

    spo.train("Breakout", **SHORT | settings, out=str(tmp_path / "run"), callback=stop_after_a_life)
    assert 0 < lives[-1] < 5 and len(lives) < 8
    start_or_resume(tmp_path / "run", "Breakout", settings)
    assert remains(tmp_path / "run") == expected


class Forgetful(Probe):
    """Depends on a generator that no seed reaches."""

    stream = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see(float(self.stream.random())), {}

    def step(self, action):
        return self.see(float(self.stream.random())), 1.0, False, False, {}


@pytest.mark.parametrize(
    "env, settings, words",
    [
        (Forgetful, {}, "environment 0 started a new episode: its replay ended elsewhere"),
        (partial(EndlessReward, 1000), {"replay_limit": 40}, "episode of 80 steps is longer than --replay-limit 40"),
        (partial(gym.make_vec, "CartPole-v1", num_envs=2), {}, "a vector environment cannot be restored"),
    ],
    ids=["global generator", "too long", "vector"],
)
def test_what_cannot_be_exact_says_so(env, settings, words, tmp_path, capsys):
    settings |= {"checkpoint_every": 4}
    stopped(tmp_path / "run", env, settings, after=5)
    spo.resume(tmp_path / "run", env=env, quiet=True)
    assert words in capsys.readouterr().err
    status = RunDirectory(tmp_path / "run").read_status()
    assert status["state"] == "finished" and not status["exact"] and words in " ".join(status["departures"])


def test_a_finished_run_is_left_alone_and_can_be_lengthened(tmp_path, capsys):
    before = whole(tmp_path)
    spo.resume(tmp_path / "whole")
    assert "is finished; --steps with a larger number continues it" in capsys.readouterr().err
    assert remains(tmp_path / "whole") == before
    run = spo.resume(tmp_path / "whole", steps=32 * 12, quiet=True)
    assert "its length was changed from 256 to 384 steps" in capsys.readouterr().err
    rows = RunDirectory(run.directory).read_metrics()
    assert [row["iteration"] for row in rows] == list(range(1, 13))
    assert rows[8]["learning_rate"] == pytest.approx(rows[0]["learning_rate"] * 4 / 12)
    assert RunDirectory(run.directory).read_config()["lengthened"] == [{"iteration": 8, "from": 256, "to": 384}]
    with pytest.raises(Refusal, match="--steps 384 is not accepted: this run has made 384 steps already"):
        spo.resume(run.directory, steps=384)


def test_a_run_without_a_checkpoint_starts_again(tmp_path):
    expected = whole(tmp_path, checkpoint_every=0)
    stopped(tmp_path / "run", "CartPole-v1", {"checkpoint_every": 0}, after=3)
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # what stopping saved, and a kill would not have
    start_or_resume(tmp_path / "run", "CartPole-v1", {})
    assert remains(tmp_path / "run") == expected


def test_tensorboard_has_no_doubled_points(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    settings = {"tensorboard": True, "checkpoint_every": 3}
    assert killed_after(0.35, tmp_path / "run", "CartPole-v1", settings | {"steps": 32 * 60})
    start_or_resume(tmp_path / "run", "CartPole-v1", settings)
    files = list((tmp_path / "run" / "tensorboard").iterdir())
    steps = [event.step for file in files for event in EventFileLoader(str(file)).Load() if _is_loss(event)]
    assert steps == [row["env_steps"] for row in RunDirectory(tmp_path / "run").read_metrics()]


def _is_loss(event) -> bool:
    return any(value.tag == "losses/policy_loss" for value in event.summary.value)


def edited(run, **resolved):
    """config.json with another path, resealed as if it had been recorded."""
    record = checkpoint.unsealed(run.config.read_bytes())
    record["resolved"] |= resolved
    run.config.write_bytes(checkpoint.canonical(checkpoint.sealed(record)))


def test_a_path_that_cannot_be_had_is_named(tmp_path, monkeypatch):
    stopped(tmp_path / "run", "CartPole-v1", {}, after=2)
    run = RunDirectory(tmp_path / "run")
    edited(run, threads=4096)
    with pytest.raises(Refusal, match="--threads 4096 is not accepted"):
        spo.resume(run.path)
    edited(run, threads=1, update="compiled")
    monkeypatch.setenv("CXX", "/nonexistent")
    monkeypatch.setattr("torch.compile", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("no compiler")))
    with pytest.raises(Refusal, match="update was compiled, which cannot be had here .*no compiler"):
        spo.resume(run.path)


def test_other_versions_are_told_and_marked(tmp_path, monkeypatch, capsys):
    stopped(tmp_path / "run", "CartPole-v1", {}, after=2)
    monkeypatch.setattr("spo.trainer.versions", lambda: {"torch": "9.9"})
    spo.resume(tmp_path / "run", quiet=True)
    assert "and is 9.9" in capsys.readouterr().err
    assert not RunDirectory(tmp_path / "run").read_status()["exact"]


def test_nothing_that_a_file_names_is_imported(tmp_path, monkeypatch):
    """`resume` imports a user's objective only if the user names it again."""
    (tmp_path / "mine.py").write_text("def f(ratio, advantage):\n    return ratio * advantage\n")
    monkeypatch.syspath_prepend(tmp_path)
    stopped(tmp_path / "run", "CartPole-v1", {"objective": "mine:f"}, after=2)
    with pytest.raises(Refusal, match="repeat --objective mine:f to import it"):
        spo.resume(tmp_path / "run")
    with pytest.raises(Refusal, match="--objective spo is not this run's: it has mine:f"):
        spo.resume(tmp_path / "run", objective="spo")
    assert spo.resume(tmp_path / "run", objective="mine:f", quiet=True).summary["env_steps"] == 256


def test_a_callable_must_be_given_again(tmp_path):
    stopped(tmp_path / "run", Catch, {}, after=2)
    with pytest.raises(Refusal, match="was made by probes.Catch: pass it as spo.resume"):
        spo.resume(tmp_path / "run")
    with pytest.raises(Refusal, match="--env probes.Masked is not this run's: it has probes.Catch"):
        spo.resume(tmp_path / "run", env=Masked)


def test_two_processes_never_share_a_run(tmp_path):
    stopped(tmp_path / "run", "CartPole-v1", {}, after=2)
    run = RunDirectory(tmp_path / "run")
    with run.locked(), pytest.raises(Refusal, match="is in use by process [0-9]+ on "):
        spo.resume(run.path)
    spo.resume(run.path, quiet=True)


def test_the_state_holds_everything_that_changes(tmp_path):
    """Two trainings, one restored from the other's state: both go on alike, though one never lived its past."""
    from probes import training

    first, second = (training("Pendulum-v1", envs=2, horizon=32, seed=3, objective="ppo-penalty") for _ in range(2))
    for _ in range(3):
        first.iterate()
    second.restore(json.loads(json.dumps(checkpoint.split(first.state())[1])) | _arrays(first))
    assert first.iterate() == second.iterate()


def _arrays(training) -> dict:
    return checkpoint.join(*checkpoint.split(training.state()))
