"""A run that was killed any number of times ends as one that never was: to the bit."""

import json
import os
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
from crash import SHORT, KillAt, bits, child, killed_after, remains, start_or_resume, timeless
from lengths import leave_formulas
from probes import Catch, EndlessReward, Lives, Masked, Probe, accepts_box, training
from spo.envs.envpool import EnvPoolVecEnv
from spo.errors import SpoError
from spo.runs import checkpoint
from spo.runs.directory import RunDirectory
from spo.runtime import files
from spo.trainer import Trainer
from waiting import PATIENCE

needs_envpool = pytest.mark.skipif(find_spec("envpool") is None, reason="needs the extra envpool")
FED_BACK = [{"objective": "ppo-penalty"}, {"objective": "spo-adaptive"}, {"lr_schedule": "adaptive-kl"}]
FED_BACK += [{"objective": "clip-higher", "epsilon_schedule": "linear"}]
OBJECTIVES = ("spo", "ppo-clip", "ppo-penalty", "trpo")


def whole(tmp_path, env="CartPole-v1", **settings):
    """What an uninterrupted run leaves."""
    start_or_resume(tmp_path / "whole", env, settings)
    return remains(tmp_path / "whole")


class Killed(BaseException):
    """Stands for the end of a process."""


def stopped(out, env, settings, after: int):
    """A run that ends after so many iterations, whatever it was going to do."""

    def stop(training, row):
        if training.iteration == after:
            raise Killed

    with pytest.raises(Killed):
        spo.train(env, **SHORT | settings, out=str(out), callback=stop)


def test_kills_at_random_moments(tmp_path, amount, capsys):
    """SIGKILLs over short runs of four objectives: nothing unreadable, nothing different."""
    seed = 20261116
    draw, kills, runs = random.Random(seed), 0, 0
    references = {name: whole(tmp_path / name, objective=name) for name in OBJECTIVES}
    assert not killed_after(PATIENCE, tmp_path / "warm", "CartPole-v1", {})
    started = time.monotonic()
    assert not killed_after(PATIENCE, tmp_path / "timed", "CartPole-v1", {})
    span = time.monotonic() - started
    while kills < amount(15, 1000):
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


def test_kills_at_every_step_of_publishing(tmp_path, amount):
    """Before every fsync, rename, removal and cut of a run's life, also of its resumed life; in short every fifth."""
    settings = {"steps": 32 * 4, "keep": 1}
    expected = whole(tmp_path, **settings)
    number, is_dead = 0, True
    while is_dead:
        number += amount(5, 1)
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


@pytest.mark.parametrize("objective", leave_formulas(sorted(spo.objectives.OBJECTIVES)))
def test_every_objective_resumes_exactly(objective, tmp_path):
    settings = {"objective": objective, "lr_schedule": "linear", "checkpoint_every": 3}
    env = "Pendulum-v1" if accepts_box(objective) else "CartPole-v1"
    expected = whole(tmp_path, env, **settings)
    stopped(tmp_path / "run", env, settings, after=5)
    start_or_resume(tmp_path / "run", env, settings)
    assert remains(tmp_path / "run") == expected


@pytest.mark.parametrize(
    "env, settings",
    [
        (Catch, {}),
        (Masked, {}),
        pytest.param(Masked, {"backend": "process", "envs": 1, "threads": 1}, marks=pytest.mark.rest),
        (Lives, {}),
        (EndlessReward, {"normalize_observation": "per-env", "normalize_reward": "per-env", "paper": True}),
        ("Acrobot-v1", {"backend": "process", "threads": 1}),
        ("Acrobot-v1", {"backend": "shared", "threads": min(2, os.cpu_count())}),
        pytest.param(Masked, {"backend": "shared", "threads": min(2, os.cpu_count())}, marks=pytest.mark.rest),
        ("CartPole-v1", {"lr_schedule": "adaptive-kl", "eval_every": 3, "tensorboard": True}),
    ],
    ids=["image", "masked", "masked process", "lives", "per-env", "process", "shared", "masked shared", "adaptive-kl"],
)
def test_every_kind_of_run_resumes_exactly(env, settings, tmp_path):
    expected = whole(tmp_path, env, **settings)
    stopped(tmp_path / "run", env, settings, after=6)
    start_or_resume(tmp_path / "run", env, settings)
    assert remains(tmp_path / "run") == expected
    assert RunDirectory(tmp_path / "run").read_status()["exact"]
    if "eval_every" in settings:
        evaluations = [timeless(tmp_path / name / "evaluations.jsonl") for name in ("whole", "run")]
        assert evaluations[0] == evaluations[1] and len(evaluations[0]) == 2


@needs_envpool
def test_envpool_resumes_exactly_from_its_seams(tmp_path):
    settings = {"backend": "envpool", "rebuild_every": 3, "checkpoint_every": 2, "keep": 8, "threads": 1}
    expected = whole(tmp_path, **settings)
    names = [path.name for path in checkpoint.list_checkpoints(RunDirectory(tmp_path / "whole"))]
    assert names == ["00000008", "00000006", "00000003"]  # the first seam in every two iterations, and the end
    stopped(tmp_path / "run", "CartPole-v1", settings, after=7)
    assert [path.name for path in checkpoint.list_checkpoints(RunDirectory(tmp_path / "run"))] == [
        "00000006",
        "00000003",
    ]
    start_or_resume(tmp_path / "run", "CartPole-v1", settings)
    assert remains(tmp_path / "run") == expected
    cut = [row["episodes_cut"] for row in expected["metrics"]]
    assert cut[0] == 0 and cut[2] > 0 and sorted(cut) == cut


def test_atari_is_replayed_across_lives(tmp_path):
    """The game goes on over a lost life, which is an end for learning only: replay starts at the last real reset."""
    pytest.importorskip("ale_py")
    settings = {"preset": "atari", "backend": "gymnasium", "envs": 1, "horizon": 64, "minibatches": 1, "epochs": 1}
    settings |= {"steps": 64 * 8, "encoder": "mlp", "threads": 1}
    expected = whole(tmp_path, "Breakout", **settings)
    lives = []

    def stop_after_a_life(training, row):
        lives.append(training.envs.envs.envs[0].unwrapped.ale.lives())
        return lives[-1] == 5  # all of them: go on

    spo.train("Breakout", **SHORT | settings, out=str(tmp_path / "run"), callback=stop_after_a_life)
    assert 0 < lives[-1] < 5 and len(lives) < 8
    start_or_resume(tmp_path / "run", "Breakout", settings)
    assert remains(tmp_path / "run") == expected


@needs_envpool
def test_a_pool_that_starts_differently_is_told():
    pool = EnvPoolVecEnv("CartPole-v1", 2, seed=1, threads=1, env_arg={})
    pool.reset()
    state = pool.state()
    assert pool.restore(state) == {}
    state["observation"][1] += 1
    assert pool.restore(state) == {1: "EnvPool starts it differently now"}
    pool.close()


class Forgetful(Probe):
    """Depends on a generator that no seed reaches: in what it shows, or in what it pays."""

    stream = np.random.default_rng(0)

    def __init__(self, pays: bool = False):
        super().__init__()
        self.pays = pays

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.see(0.0 if self.pays else float(self.stream.random())), {}

    def step(self, action):
        shown, paid = (0.0, float(self.stream.random())) if self.pays else (float(self.stream.random()), 1.0)
        return self.see(shown), paid, False, False, {}


class Fragile(EndlessReward):
    """The third and fourth of its kind, which a resumed run makes, break once."""

    made = 0

    def __init__(self):
        super().__init__(1000)
        Fragile.made += 1
        self.breaks = Fragile.made > 2

    def step(self, action):
        if self.breaks:
            self.breaks = False
            raise RuntimeError("gearbox broke")
        return super().step(action)


@pytest.mark.parametrize(
    "env, settings, words",
    [
        (Forgetful, {}, "environment 0 started a new episode: its replay ended elsewhere"),
        (partial(Forgetful, pays=True), {}, "environment 0 started a new episode: its replay ended elsewhere"),
        (Fragile, {}, "environment 1 started a new episode: its replay failed: gearbox broke"),
        (partial(EndlessReward, 1000), {"replay_limit": 40}, "episode of 80 steps is longer than --replay-limit 40"),
        (partial(gym.make_vec, "CartPole-v1", num_envs=2), {}, "a vector environment cannot be restored"),
    ],
    ids=["what is shown", "what is paid", "fragile", "too long", "vector"],
)
def test_what_cannot_be_exact_says_so(env, settings, words, tmp_path, capsys):
    settings |= {"checkpoint_every": 4}
    stopped(tmp_path / "run", env, settings, after=5)
    spo.resume(tmp_path / "run", env=env, quiet=True)
    assert words in capsys.readouterr().err
    status = RunDirectory(tmp_path / "run").read_status()
    assert status["state"] == "finished" and not status["exact"] and words in " ".join(status["departures"])
    snapshot, _ = checkpoint.load_newest(RunDirectory(tmp_path / "run"))
    assert snapshot.state["episodes_cut"] == 2


def test_where_a_replay_fails_a_new_episode_starts_from_nothing():
    first, second = (training(Forgetful, envs=2, horizon=8, minibatches=2) for _ in range(2))
    first.iterate()
    second.restore(first.state())
    envs, collector = second.envs, second.collector
    assert not envs.episodes.length.any() and not envs.episodes.total_reward.any()
    assert (collector.observation == second.observation_normalizer(envs.observation)).all()


def test_a_finished_run_is_left_alone_and_can_be_lengthened(tmp_path, capsys):
    before = whole(tmp_path)
    spo.resume(tmp_path / "whole")
    assert "is finished; --steps with a larger number continues it" in capsys.readouterr().err
    assert remains(tmp_path / "whole") == before
    shutil.rmtree(tmp_path / "whole" / "policy")
    spo.resume(tmp_path / "whole", quiet=True)
    assert remains(tmp_path / "whole") == before
    run = spo.resume(tmp_path / "whole", steps=32 * 12, quiet=True)
    assert "its length was changed from 256 to 384 steps" in capsys.readouterr().err
    rows = RunDirectory(run.directory).read_metrics()
    assert [row["iteration"] for row in rows] == list(range(1, 13))
    assert rows[8]["learning_rate"] == pytest.approx(rows[0]["learning_rate"] * 4 / 12)
    assert RunDirectory(run.directory).read_config()["lengthened"] == [{"iteration": 8, "from": 256, "to": 384}]
    with pytest.raises(SpoError, match="--steps 384 is not accepted: this run has made 384 steps already"):
        spo.resume(run.directory, steps=384)


def test_a_run_that_its_callback_ended_goes_on(tmp_path):
    expected = whole(tmp_path)
    spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "run"), callback=lambda training, row: training.iteration < 5)
    status = RunDirectory(tmp_path / "run").read_status()
    assert (status["state"], status["reason"]) == ("interrupted", "ended by its callback")
    spo.resume(tmp_path / "run", quiet=True)
    assert remains(tmp_path / "run") == expected


def test_a_run_that_is_given_its_own_length_stays_exact(tmp_path, capsys):
    expected = whole(tmp_path)
    stopped(tmp_path / "run", "CartPole-v1", {}, after=3)
    spo.resume(tmp_path / "run", steps=np.int64(256), quiet=True)
    assert remains(tmp_path / "run") == expected and "changed" not in capsys.readouterr().err
    run = RunDirectory(tmp_path / "run")
    assert run.read_status()["exact"] and "lengthened" not in run.read_config()


def test_a_run_without_a_checkpoint_starts_again(tmp_path):
    expected = whole(tmp_path, checkpoint_every=0)
    stopped(tmp_path / "run", "CartPole-v1", {"checkpoint_every": 0}, after=3)
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # what stopping saved, and a kill would not have
    start_or_resume(tmp_path / "run", "CartPole-v1", {})
    assert remains(tmp_path / "run") == expected


def test_tensorboard_has_no_doubled_points(tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    settings = {"tensorboard": True, "checkpoint_every": 3}
    stopped(tmp_path / "run", "CartPole-v1", settings, after=5)
    run = RunDirectory(tmp_path / "run")
    shutil.rmtree(run.checkpoints / "00000005")  # which a kill would not have left: iterations 4 and 5 come again
    start_or_resume(run.path, "CartPole-v1", settings)
    events = [event for file in run.tensorboard.iterdir() for event in EventFileLoader(str(file)).Load()]
    assert steps_of("losses/policy_loss", events) == [row["env_steps"] for row in run.read_metrics()]
    assert steps_of("charts/episodic_return", events) == [row["env_steps"] for row in run.read_episodes()]


def steps_of(tag: str, events: list) -> list[int]:
    return sorted(event.step for event in events for value in event.summary.value if value.tag == tag)


def edited(run, **resolved):
    """config.json with another path, resealed as if it had been recorded."""
    record = files.verify_checksum(run.config.read_bytes())
    record["resolved"] |= resolved
    run.config.write_bytes(checkpoint.canonical_json(files.add_checksum(record)))


def test_a_path_that_cannot_be_had_is_named(tmp_path, monkeypatch):
    stopped(tmp_path / "run", "CartPole-v1", {}, after=2)
    run = RunDirectory(tmp_path / "run")
    edited(run, threads=1, update="compiled")
    compiler = "spo.algorithms.minibatch_update.compile_method"
    monkeypatch.setattr(compiler, lambda *_: (_ for _ in ()).throw(RuntimeError("no compiler")))
    with pytest.raises(SpoError, match="update was compiled, which cannot be had here .*no compiler"):
        spo.resume(run.path)


def test_a_run_goes_on_with_fewer_cores_than_it_had_and_says_so(tmp_path, capsys):
    stopped(tmp_path / "run", "CartPole-v1", {}, after=2)
    run = RunDirectory(tmp_path / "run")
    edited(run, threads=4096)
    spo.resume(run.path, quiet=True)
    told = f"threads were 4096 and are {os.cpu_count()}"
    assert told in capsys.readouterr().err and told in run.read_status()["departures"]


def test_the_recorded_path_is_taken(tmp_path):
    """What was chosen when the run began, not what would be chosen now."""
    stopped(tmp_path / "run", "CartPole-v1", {}, after=2)
    run, seen = RunDirectory(tmp_path / "run"), []
    edited(run, backend="process", rebuild_every=7, threads=1)
    shutil.rmtree(run.checkpoints)
    spo.resume(run.path, quiet=True, callback=lambda training, row: seen.append(training) or False)
    config = seen[0].config
    assert (seen[0].backend, config.rebuild_every, config.threads) == ("process", 7, 1)


@needs_envpool
def test_a_run_that_an_earlier_version_recorded_is_resumed(tmp_path):
    """Its config.json calls the interval seam_every and knows nothing of wrappers."""
    settings = {"backend": "envpool", "seam_every": 3, "threads": 1}
    expected = whole(tmp_path, **settings)
    stopped(tmp_path / "run", "CartPole-v1", settings, after=4)
    run = RunDirectory(tmp_path / "run")
    as_before(run)
    start_or_resume(run.path, "CartPole-v1", settings)
    assert remains(run.path) == expected


def as_before(run):
    """Rewrites config.json, and the copies in checkpoints, as earlier versions wrote it."""
    record = files.verify_checksum(run.config.read_bytes())
    del record["settings"]["atari_wrappers"]
    for part in ("settings", "resolved"):
        record[part]["seam_every"] = record[part].pop("rebuild_every")
    run.config.write_bytes(checkpoint.canonical_json(files.add_checksum(record)))


def test_a_run_killed_while_it_compiles_is_resumed(tmp_path, monkeypatch):
    expected = whole(tmp_path)

    def die(training):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Trainer, "choose_update_path", die)
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "run"))
    spo.resume(tmp_path / "run", quiet=True)
    assert remains(tmp_path / "run") == expected
    assert RunDirectory(tmp_path / "run").read_config()["resolved"]["update"] == "eager"


@pytest.mark.parametrize(
    "change, told",
    [
        ({"activation": "relu"}, "activation tanh, and this run has relu"),
        ({"normalize_observation": "off"}, "normalize-observation on, and this run has off"),
        ({"distribution": "gaussian-state"}, "distribution gaussian, and this run has gaussian-state"),
        ({"action_scale": "bounds"}, "action-scale off, and this run has bounds"),
    ],
    ids=["activation", "normalisation", "distribution", "scale"],
)
def test_a_policy_that_would_mean_something_else_is_not_gone_on_from(change, told, tmp_path):
    """Its tensors fit, or nearly: nothing else would tell."""
    first = spo.train("Pendulum-v1", **SHORT, out=str(tmp_path / "first"))
    settings = SHORT | {"out": str(tmp_path / "second"), "init_from": str(first.directory)}
    with pytest.raises(SpoError, match=f"--init-from .* holds a policy with {told}"):
        spo.train("Pendulum-v1", **settings | change)
    spo.train("Pendulum-v1", **settings)


def test_the_run_that_another_began_from_is_not_needed_again(tmp_path):
    whole(tmp_path)
    stopped(tmp_path / "run", "CartPole-v1", {"init_from": str(tmp_path / "whole")}, after=2)
    shutil.rmtree(tmp_path / "whole")
    assert spo.resume(tmp_path / "run", quiet=True).summary["env_steps"] == 256


@pytest.mark.parametrize("what, name", [("versions", "torch"), ("machine", "processor")])
def test_other_surroundings_are_told_and_marked_for_good(what, name, tmp_path, monkeypatch, capsys):
    stopped(tmp_path / "run", "CartPole-v1", {}, after=2)
    monkeypatch.setattr(f"spo.runs.resume.{what}", lambda: {name: "9.9"})
    spo.resume(tmp_path / "run", quiet=True, callback=lambda training, row: training.iteration < 4)
    assert f"{name} was" in (told := capsys.readouterr().err) and "and is 9.9" in told
    monkeypatch.undo()
    spo.resume(tmp_path / "run", quiet=True)
    assert not RunDirectory(tmp_path / "run").read_status()["exact"]


def test_nothing_that_a_file_names_is_imported(tmp_path, monkeypatch):
    """`resume` imports a user's objective only if the user names it again."""
    (tmp_path / "mine.py").write_text("def f(ratio, advantage):\n    return ratio * advantage\n")
    monkeypatch.syspath_prepend(tmp_path)
    stopped(tmp_path / "run", "CartPole-v1", {"objective": "mine:f"}, after=2)
    with pytest.raises(SpoError, match="repeat --objective mine:f to import it"):
        spo.resume(tmp_path / "run")
    with pytest.raises(SpoError, match="--objective spo is not this run's: it has mine:f"):
        spo.resume(tmp_path / "run", objective="spo")
    assert spo.resume(tmp_path / "run", objective="mine:f", quiet=True).summary["env_steps"] == 256


def test_a_callable_must_be_given_again(tmp_path):
    stopped(tmp_path / "run", Catch, {}, after=2)
    with pytest.raises(SpoError, match="was made by probes.Catch: pass it as spo.resume"):
        spo.resume(tmp_path / "run")
    with pytest.raises(SpoError, match="--env probes.Masked is not this run's: it has probes.Catch"):
        spo.resume(tmp_path / "run", env=Masked)


def test_two_processes_never_share_a_run(tmp_path):
    stopped(tmp_path / "run", "CartPole-v1", {}, after=2)
    run = RunDirectory(tmp_path / "run")
    with run.acquire_lock(), pytest.raises(SpoError, match="is in use by process [0-9]+ on "):
        spo.resume(run.path)
    spo.resume(run.path, quiet=True)


def test_a_directory_that_was_used_meanwhile_is_left_alone(tmp_path, monkeypatch):
    """Another process trains there after this one has looked, and before it takes the lock."""
    acquire_lock = RunDirectory.acquire_lock

    def late(run):
        monkeypatch.undo()
        start_or_resume(run.path, "CartPole-v1", {})
        return acquire_lock(run)

    monkeypatch.setattr(RunDirectory, "acquire_lock", late)
    with pytest.raises(SpoError, match="already holds a run"):
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "run"))


@pytest.mark.parametrize("settings", FED_BACK, ids=str)
def test_the_state_holds_everything_that_changes(settings):
    """Two trainings, one restored from the other's state: both go on alike, though one never lived its past."""
    first, second = (training("Pendulum-v1", envs=2, horizon=96, seed=3, **settings) for _ in range(2))
    for _ in range(3):
        first.add_times(first.iterate()[0], seconds=1.5)
    arrays, values = checkpoint.split(first.state())
    second.restore(checkpoint.join(arrays, json.loads(json.dumps(values))))
    assert bits(second.state()) == bits(first.state())
    assert first.iterate() == second.iterate()


def test_the_state_is_a_copy():
    """What a signal saves in the middle of an iteration is what was there before it."""
    run = training("CartPole-v1", envs=2, horizon=32, objective="ppo-penalty")
    run.iterate()
    state = run.state()
    before = bits(state)
    run.iterate()
    run.inexact_reasons.append("something else")
    assert bits(state) == before
    assert bits(run.state()) != before


def test_only_the_actions_of_running_episodes_are_remembered():
    run = training("CartPole-v1", envs=2, horizon=128)
    run.iterate()
    assert len(run.envs.actions) == run.envs.episodes.length.max() < 128
