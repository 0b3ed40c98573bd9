"""Whole runs: learning, repetition, the run directory, and what a program does with it."""

import copy
import gzip
import hashlib
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch

import spo
import spo.runs.loggers
from probes import ActionReward, Catch, EndlessReward, iterate, training
from spo.errors import SpoError
from spo.runs.directory import FORMER_NAMES, RunDirectory
from spo.runs.profile import advice
from spo.runs.summary import summarize
from test_learning import SETTINGS

TIMES = ("wall_time", "steps_per_second")
METRICS = """iteration env_steps wall_time steps_per_second learning_rate policy_loss value_loss entropy
explained_variance grad_norm ratio_deviation ratio_deviation_max ratio_deviation_sample_max kl kl_reverse clip_fraction
zero_gradient_fraction""".split()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run that several tests look at."""
    out = tmp_path_factory.mktemp("runs") / "short"
    return spo.train(
        "CartPole-v1", preset="classic", steps="4k", eval_every=2, tensorboard=True, quiet=True, out=str(out)
    )


def timeless(path) -> list[dict]:
    """Rows without their times, and without the evaluations that only some of the runs make."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: row[name] for name in row if name not in TIMES and not name.startswith("eval_")} for row in rows]


def test_a_run_learns(tmp_path):
    """Seeds 1 to 10 come to 210 to 433 in the last tenth of the run, and to 479 to 500 without chance."""
    settings = SETTINGS | {"preset": "classic", "steps": 25 * 1024, "compile": "off", "quiet": True}
    result = spo.train("CartPole-v1", **settings, out=str(tmp_path / "run"))
    assert result.summary["return"] > 100
    assert spo.evaluate(result.directory).return_mean > 200


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_same_command_gives_the_same_bytes(env, tmp_path):
    for name in ("first", "second"):
        spo.train(env, preset="classic", steps="5k", seed=5, quiet=True, out=str(tmp_path / name))
    first, second = RunDirectory(tmp_path / "first"), RunDirectory(tmp_path / "second")
    assert timeless(first.metrics) == timeless(second.metrics)
    assert first.episodes.read_bytes() == second.episodes.read_bytes()
    digests = [hashlib.sha256((run.policy / "policy.safetensors").read_bytes()).digest() for run in (first, second)]
    assert digests[0] == digests[1]


def test_evaluation_does_not_disturb_training(run, tmp_path):
    plain = spo.train("CartPole-v1", preset="classic", steps="4k", quiet=True, out=str(tmp_path / "plain"))
    assert timeless(plain.directory / "metrics.jsonl") == timeless(run.directory / "metrics.jsonl")


def test_files_and_keys_of_the_run_directory(run):
    directory = RunDirectory(run.directory)
    config = directory.read_config()
    assert config["settings"]["env"] == "CartPole-v1" and config["settings"]["epsilon"] is None
    assert config["resolved"]["objective_settings"] == {"epsilon": 0.2}
    assert config["resolved"]["update"] == "eager" and config["resolved"]["threads"] == 1
    assert {"python", "torch", "gymnasium"} <= set(config["versions"])
    status = json.loads(directory.status.read_text())
    progress = {"iteration": 3, "env_steps": 3072, "checkpoint": 3}
    assert status == {"state": "finished", "reason": None, **progress, "exact": True, "departures": []}
    rows = directory.read_metrics()
    assert len(rows) == 3 and set(METRICS) <= set(rows[0])
    assert list(directory.read_episodes()[0]) == ["env", "return", "length", "env_steps"]
    assert len(directory.evaluations.read_text().splitlines()) == 1


def test_tensorboard_has_the_tags_that_people_know(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.directory / "tensorboard"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    assert {"charts/episodic_return", "charts/SPS", "losses/policy_loss", "charts/ratio_deviation"} <= tags
    rows = RunDirectory(run.directory).read_metrics()
    written = [(event.step, event.value) for event in events.Scalars("charts/ratio_deviation")]
    assert written == [(row["env_steps"], pytest.approx(row["ratio_deviation"], rel=1e-6)) for row in rows]


def test_tensorboard_calls_each_number_what_others_call_it(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    directory = RunDirectory(tmp_path)
    directory.config.write_text("{}")
    sink, row = spo.runs.loggers.TensorBoardLogger(directory), {"env_steps": 7, "wall_time": 1.0}
    row |= {name: float(number) for number, name in enumerate(METRICS) if name not in row}
    sink.write(row, [])
    sink.close()
    events = EventAccumulator(str(directory.tensorboard))
    events.Reload()
    expected = {"losses/clipfrac": "clip_fraction", "losses/zero_gradient_fraction": "zero_gradient_fraction"}
    expected |= {"charts/SPS": "steps_per_second", "losses/entropy": "entropy"}
    for tag, name in expected.items():
        assert [(event.step, event.value) for event in events.Scalars(tag)] == [(7, row[name])]


@pytest.mark.parametrize("is_packed", [False, True])
def test_rows_of_earlier_versions_are_read_under_todays_names(is_packed, tmp_path):
    directory = RunDirectory(tmp_path)
    old = {"iteration": 1, "ratio_deviation_max": 0.05, "ratio_max": 0.5, "outside_fraction": 0.25}
    new = {"iteration": 2, "ratio_deviation_max": 0.06, "ratio_deviation_sample_max": 0.6, "clip_fraction": 0.3}
    content = "".join(json.dumps(row) + "\n" for row in (new | {"iteration": 1}, new, old | {"iteration": 3})).encode()
    if is_packed:
        Path(f"{directory.metrics}.gz").write_bytes(gzip.compress(content))
    else:
        directory.metrics.write_bytes(content)
        assert directory.last_metrics() == directory.read_metrics()[-1]
    rows = directory.read_metrics()
    assert [row["iteration"] for row in rows] == [1, 2, 3] and {frozenset(row) for row in rows} == {frozenset(new)}
    assert (rows[2]["ratio_deviation_sample_max"], rows[2]["clip_fraction"]) == (0.5, 0.25)


def test_a_run_of_an_earlier_version_goes_on_under_todays_names(tmp_path, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    former = {today: name for name, today in FORMER_NAMES.items()}
    settings = {"preset": "classic", "steps": 64, "envs": 2, "horizon": 16, "tensorboard": True, "quiet": True}
    with monkeypatch.context() as earlier:
        line = spo.runs.loggers._line
        earlier.setattr(spo.runs.loggers, "_line", lambda row: line({former.get(key, key): row[key] for key in row}))
        spo.train(ActionReward, **settings, out=str(tmp_path / "run"))
    directory = RunDirectory(tmp_path / "run")
    assert "ratio_max" in json.loads(directory.metrics.read_text().splitlines()[0])
    spo.resume(directory.path, env=ActionReward, steps=128, quiet=True)
    rows = directory.read_metrics()
    assert len(rows) == 4 and {frozenset(row) for row in rows} == {frozenset(rows[-1])}
    assert "ratio_max" not in json.loads(directory.metrics.read_text().splitlines()[-1])
    events = EventAccumulator(str(directory.tensorboard))
    events.Reload()
    written = [event.value for event in events.Scalars("losses/clipfrac")]
    assert written == [pytest.approx(row["clip_fraction"], rel=1e-6) for row in rows]


def test_a_loaded_policy_acts_as_the_trained_one(run):
    loaded = spo.load(run.directory)
    observations = np.random.default_rng(0).normal(size=(9, 4))
    assert (loaded.act(observations) == run.policy.act(observations)).all()
    assert loaded.act(observations[0]) == loaded.act(observations)[0]
    assert loaded.act(observations, deterministic=False).shape == (9,)


def test_a_run_stands_for_its_directory(run):
    assert os.fspath(run) == str(run.directory)
    observations = np.random.default_rng(0).normal(size=(9, 4))
    assert (spo.load(run).act(observations) == run.policy.act(observations)).all()
    assert spo.evaluate(run, episodes=1, seed=np.int64(4)) == spo.evaluate(run.directory, episodes=1, seed=4)
    assert spo.resume(run, quiet=True).directory == run.directory


@pytest.mark.parametrize("take", [spo.load, spo.evaluate, spo.resume])
def test_what_names_no_run_is_told_what_does(take, run):
    accepted = "it must be the path of a run directory, or what spo.train returned"
    with pytest.raises(spo.ConfigError, match=f"^a Policy is not accepted in place of a run: {accepted}$"):
        take(run.policy)


@pytest.mark.parametrize("encoder", ["small", "nature", "resnet18"])
def test_an_encoder_of_images_is_refused_where_there_are_none(encoder, tmp_path, monkeypatch):
    """A run of an earlier version, which accepted it without effect, is loaded and goes on."""
    settings = {"preset": "classic", "envs": 2, "horizon": 16, "steps": 64, "compile": "off", "quiet": True}
    settings |= {"encoder": encoder, "out": str(tmp_path / "run")}
    told = (
        rf"^--encoder {encoder} does not fit observation space Box\(.*\), in which is no image: it must be auto, mlp or"
    )
    with pytest.raises(spo.ConfigError, match=told):
        spo.train("CartPole-v1", **settings)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("spo.runs.start._check_encoder", lambda trainer: None)
    earlier = spo.train("CartPole-v1", **settings)
    monkeypatch.undo()
    assert spo.load(earlier).act([0.0] * 4) == earlier.policy.act([0.0] * 4)
    assert spo.resume(earlier, steps=128, quiet=True).summary["env_steps"] == 128


def test_an_encoder_of_images_is_taken_where_there_is_one(tmp_path):
    settings = {"preset": "classic", "envs": 2, "horizon": 16, "steps": 32, "compile": "off", "quiet": True}
    assert spo.train(Catch, **settings, encoder="small", out=str(tmp_path / "run")).policy.spec.encoder == "small"


def test_continuous_actions_are_within_the_space(tmp_path):
    result = spo.train("Pendulum-v1", preset="classic", steps="1100", quiet=True, out=str(tmp_path / "run"))
    policy = spo.load(result.directory)
    action = policy.act(np.full((50, 3), 9.0), deterministic=False)
    assert action.shape == (50, 1) and np.abs(action).max() <= 2.0 and np.abs(action).std() > 0


def test_evaluation_repeats_and_is_written(run):
    first = spo.evaluate(run.directory, episodes=3, seed=4)
    assert spo.evaluate(run.directory, episodes=3, seed=4) == first
    assert spo.evaluate(run.directory, episodes=3, seed=5).returns != first.returns
    assert json.loads((run.directory / "evaluation.json").read_text())["seed"] == 5


def test_evaluation_leaves_the_statistics_alone(run):
    before = spo.load(run.directory).normalizer.moments.mean.copy()
    policy = run.policy
    spo.evaluate(run.directory, episodes=2)
    assert (policy.normalizer.moments.mean == before).all()


def test_video(run, tmp_path):
    import imageio.v2 as imageio

    result = spo.evaluate(run.directory, episodes=1, video=str(tmp_path / "episode.mp4"))
    frames = imageio.mimread(tmp_path / "episode.mp4", memtest=False)
    assert len(frames) == result.lengths[0] + 1
    assert frames[0].shape[2] == 3 and np.std(frames[0]) > 0


@pytest.mark.parametrize("damage", ["flip", "truncate", "swap", "activation", "huge", "json"])
def test_a_damaged_policy_is_refused(run, tmp_path, damage):
    shutil.copytree(run.directory / "policy", tmp_path / "policy")
    tensors, described = tmp_path / "policy/policy.safetensors", tmp_path / "policy/policy.json"
    content, spec = bytearray(tensors.read_bytes()), json.loads(described.read_text())
    if damage == "flip":
        content[-1] ^= 1
    elif damage == "truncate":
        content = content[:-8]
    elif damage == "swap":
        spec["hidden"] = [32, 32]
    elif damage == "activation":
        spec["activation"] = "__import__('os')"
    elif damage == "huge":
        spec["hidden"] = [10**9, 10**9]
    tensors.write_bytes(bytes(content))
    described.write_text("{" if damage == "json" else json.dumps(spec))
    with pytest.raises(SpoError, match="damaged"):
        spo.load(tmp_path)


def test_training_goes_on_from_another_run(run, tmp_path):
    seen = []
    settings = {"preset": "classic", "steps": "1100", "quiet": True, "learning_rate": 1e-12}
    spo.train(
        "CartPole-v1",
        init_from=str(run.directory),
        out=str(tmp_path / "on"),
        callback=lambda t, _: seen.append(t),
        **settings,
    )
    before, after = run.policy, seen[0].snapshot_policy()
    assert np.allclose(after.network.actor[0].weight, before.network.actor[0].weight, atol=1e-6)
    assert after.normalizer.moments.count > before.normalizer.moments.count
    with pytest.raises(SpoError, match="--init-from .* of another shape"):
        spo.train("CartPole-v1", init_from=str(run.directory), hidden=(8,), out=str(tmp_path / "no"), **settings)


def test_a_callback_sees_every_iteration_and_can_end_the_run(tmp_path):
    rows = []

    def callback(training, row):
        rows.append(row)
        return len(rows) < 2

    spo.train("CartPole-v1", preset="classic", steps="50k", quiet=True, out=str(tmp_path / "run"), callback=callback)
    assert [row["iteration"] for row in rows] == [1, 2]
    assert spo.load(tmp_path / "run") is not None


@pytest.mark.parametrize("answer, is_the_end", [(False, True), (np.False_, True), (np.True_, False), (None, False),
                                                (0, False), ("", False)])  # fmt: skip
def test_a_callback_ends_the_run_with_false_alone(answer, is_the_end):
    run = training(ActionReward, envs=2, horizon=8, minibatches=2, steps=32)
    run.fit(lambda row, episodes: None, lambda trainer, row: answer)
    assert run.iteration == (1 if is_the_end else 2)


def test_a_callable_makes_the_environment(tmp_path):
    result = spo.train(ActionReward, preset="classic", steps="1100", quiet=True, out=str(tmp_path / "run"))
    assert spo.evaluate(result.directory, ActionReward, episodes=2).lengths == [1, 1]
    limited = spo.train(
        EndlessReward, preset="classic", steps="1100", env_arg={"limit": 3}, quiet=True, out=str(tmp_path / "3")
    )
    assert RunDirectory(limited.directory).read_episodes()[0]["length"] == 3


def test_an_id_that_names_a_module_is_imported_only_when_the_user_repeats_it(tmp_path):
    gym.register("probes/Action-v0", entry_point="probes:ActionReward", max_episode_steps=5)
    result = spo.train("probes:probes/Action-v0", preset="classic", steps="1100", quiet=True, out=str(tmp_path / "run"))
    with pytest.raises(SpoError, match="names a module of yours: repeat --env"):
        spo.evaluate(result.directory)
    assert spo.evaluate(result.directory, "probes:probes/Action-v0", episodes=1).lengths == [1]


def test_a_failed_run_says_why(tmp_path):
    class Broken(ActionReward):
        def step(self, action):
            raise ValueError("no such gear")

    with pytest.raises(SpoError, match="no such gear"):
        spo.train(Broken, preset="classic", steps="1100", quiet=True, out=str(tmp_path / "run"))
    status = json.loads((tmp_path / "run/status.json").read_text())
    assert status["state"] == "failed" and "environment 0 raised ValueError: no such gear" in status["reason"]


def test_an_environment_that_fails_in_evaluation_is_told(run):
    class Broken(ActionReward):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(4, np.float32), {}

        def step(self, action):
            raise OSError("no screen")

    with pytest.raises(SpoError, match="the environment raised OSError in an evaluation: no screen"):
        spo.evaluate(run.directory, Broken)


def test_without_a_compiler_training_goes_on_eager_and_says_so(tmp_path, monkeypatch, capfd):
    def broken(*_, **__):
        raise RuntimeError("no C++ compiler\nand a long story")

    monkeypatch.setattr("torch.compile", broken)
    out = tmp_path / "run"
    spo.train("CartPole-v1", preset="classic", steps="1100", compile="on", out=str(out))
    assert "update eager (compiling failed: RuntimeError: no C++ compiler)" in capfd.readouterr().err
    assert RunDirectory(out).read_config()["resolved"]["update"] == "eager"


def test_the_return_over_the_last_tenth():
    rows = [{"env_steps": 1000, "wall_time": 2.0, "ratio_deviation_max": 0.1}]
    episodes = [{"return": float(step), "env_steps": step} for step in range(10, 1001, 10)]
    summary = summarize(rows, episodes, 1000)
    assert summary["return"] == np.mean(range(910, 1001, 10)) and not summary["return_from_last_episodes"]
    sparse = summarize(rows, episodes[::20], 1000)
    assert sparse["return_from_last_episodes"] and sparse["return"] == np.mean([10, 210, 410, 610, 810])


def test_the_authors_behaviour_is_four_things(tmp_path):
    from spo.config.sources import make_config

    plain, paper = make_config("Hopper-v4"), make_config("Hopper-v4", paper=True)
    changed = {name for name in vars(plain) if getattr(plain, name) != getattr(paper, name)}
    assert changed == {"paper", "truncation", "normalize_observation", "normalize_reward"}
    assert paper.truncation == "terminal" and paper.normalize_observation == paper.normalize_reward == "per-env"
    assert make_config("Hopper-v4", paper=True, truncation="bootstrap").truncation == "bootstrap"
    assert make_config("Hopper-v4", paper=True, normalize_reward="off").normalize_reward == "off"


@pytest.mark.parametrize("paper, finals", [(False, 0), (True, 32)])
def test_the_authors_behaviour_counts_final_observations(paper, finals):
    run = training(lambda: EndlessReward(4), paper=paper)
    iterate(run, 1)
    # 8 environments: a first observation and 128 steps, with 32 episodes of 4 steps among them
    assert round(run.observation_normalizer.moments.count.sum()) == 8 * (1 + 128 + finals)


@pytest.mark.parametrize("objective", ["spo", "trpo"])
def test_ratios_are_recorded_after_every_epoch(objective, run, tmp_path):
    """Ratios start at 1 before the first epoch, and their mean deviation grows; recording changes nothing else."""
    from safetensors.numpy import load

    settings = {"preset": "classic", "steps": "4k", "objective": objective, "record_ratios": (2,), "quiet": True}
    made = spo.train("CartPole-v1", **settings, out=str(tmp_path / "run"))
    assert [path.name for path in (made.directory / "ratios").iterdir()] == ["2.safetensors"]
    recorded = load((made.directory / "ratios" / "2.safetensors").read_bytes())
    row = RunDirectory(made.directory).read_metrics()[1]
    epochs = 1 if objective == "trpo" else row["epochs"]
    assert recorded["ratio"].shape == recorded["advantage"].shape == (epochs, 1024)
    deviation = np.abs(recorded["ratio"] - 1).mean(axis=1)
    if objective == "trpo":
        assert deviation[0] == pytest.approx(row["ratio_deviation"], rel=1e-4)
    else:
        assert 0 < deviation[0] < deviation[-1] and row["ratio_deviation"] < deviation[-1]
        assert timeless(made.directory / "metrics.jsonl") == timeless(run.directory / "metrics.jsonl")
        weights = [each.directory / "policy" / "policy.safetensors" for each in (made, run)]
        assert weights[0].read_bytes() == weights[1].read_bytes()


@pytest.mark.parametrize("normalize", ["minibatch", "batch", "off"])
def test_the_recorded_advantages_are_those_that_the_objective_saw(normalize, monkeypatch):
    """Of every sample in every epoch, where its minibatch stood in that epoch's order."""
    made = training("CartPole-v1", envs=4, horizon=32, minibatches=4, epochs=3, normalize_advantage=normalize)
    batch, surrogate, seen = made.advantages(made.collector.collect()), made.update.loss.surrogate, []
    original = surrogate.function
    monkeypatch.setattr(surrogate, "function", lambda r, a, **own: seen.append(a.clone()) or original(r, a, **own))
    generator, recorded = copy.deepcopy(made.update.epochs.generator), []
    made.update(batch, 1e-3, recorded.append)
    assert len(recorded) == 3 and len(seen) == 2 * 3 * 4  # of each minibatch the value and the slope are asked for
    for epoch, advantage in enumerate(recorded):
        in_order = torch.cat(seen[8 * epoch : 8 * epoch + 8 : 2])
        assert torch.allclose(advantage[torch.from_numpy(generator.permutation(128))], in_order, atol=1e-5)
    assert torch.allclose(recorded[0], recorded[1], atol=1e-5) == (normalize != "minibatch")
    assert torch.equal(recorded[0], batch.advantage) == (normalize == "off")


def test_an_epoch_that_the_objective_ended_is_recorded_too():
    made = training("CartPole-v1", objective="espo", deviation_limit=1e-4, record_ratios=(1,))
    (row,) = iterate(made, 1)
    assert made.ratios["ratio"].shape == made.ratios["advantage"].shape == (row["epochs"], made.config.batch_size)
    assert row["epochs"] == 1


def test_a_profile_says_where_the_time_went(tmp_path, capsys):
    settings = {"preset": "classic", "steps": "4k", "out": str(tmp_path / "run")}
    spo.train("CartPole-v1", **settings, profile=True)
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.split("where the time went")[1].splitlines()[1:-1]]
    shares = {" ".join(name): float(share.rstrip("%")) for *name, share in rows}
    assert set(shares) == {
        "stepping",
        "acting",
        "normalising",
        "advantage",
        "update",
        "logging",
        "checkpoint",
        "the rest",
    }
    assert sum(shares.values()) == pytest.approx(100, abs=1) and list(shares.values()) == sorted(shares.values())[::-1]
    assert shares["stepping"] > 1 and shares["update"] > 1
    assert "what would help most: " in printed


@pytest.mark.parametrize("steps, told", [(160, "fewer --epochs than 10"), (4000, "--compile on")])
def test_a_profile_advises_to_compile_only_where_that_pays(steps, told):
    stepper = SimpleNamespace(__call__=lambda: None)
    update = SimpleNamespace(epochs=SimpleNamespace(step=stepper.__call__, stepper=stepper))
    trainer = SimpleNamespace(config=SimpleNamespace(gradient_steps=steps, epochs=10), update=update)
    assert advice("update", trainer).startswith(told)


def test_a_profiled_run_is_the_same_run(run, tmp_path):
    settings = {"preset": "classic", "steps": "4k", "quiet": True, "profile": True, "out": str(tmp_path / "run")}
    profiled = spo.train("CartPole-v1", **settings)
    assert timeless(profiled.directory / "metrics.jsonl") == timeless(run.directory / "metrics.jsonl")


def test_a_width_that_is_adapted_is_told_everywhere(tmp_path):
    """Row, TensorBoard and recorded ratios have the width of the iteration, config.json the one at the start."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from spo.experiments.figure_data.recorded_ratios import read_ratios

    settings = {"preset": "classic", "steps": "4k", "objective": "spo-adaptive", "record_ratios": (2,), "quiet": True}
    run = RunDirectory(spo.train("CartPole-v1", **settings, tensorboard=True, out=str(tmp_path / "run")).directory)
    widths = [row["epsilon"] for row in run.read_metrics()]
    assert widths[0] == run.read_config()["resolved"]["objective_settings"]["epsilon"] == 0.2 != widths[1]
    events = EventAccumulator(str(run.tensorboard))
    events.Reload()
    assert [event.value for event in events.Scalars("charts/epsilon")] == pytest.approx(widths)
    assert read_ratios((run.path,), 2)[0].epsilon == widths[1]
