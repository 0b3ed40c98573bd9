"""The samples of ratios that a run keeps for whoever watches: bounded, exact, and without a trace in the training."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load

import spo
from spo.algorithms.ratio_samples import SAMPLES, RatioSampler
from spo.config.sources import make_config
from spo.runs.ratio_samples import MOST_KEPT, NEWEST_KEPT, is_kept, keep_sample, prune_samples, spacing

SETTINGS = {"preset": "classic", "envs": 4, "horizon": 64, "epochs": 3, "steps": 1280, "quiet": True, "compile": "off"}
TIMES = ("wall_time", "steps_per_second")


def untimed(run) -> list[dict]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


def samples(run) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "ratio_samples").iterdir())}


@pytest.mark.parametrize("objective", ["spo", "ppo-clip", "espo", "trpo", "spo-adaptive"])
def test_policy_and_rows_are_the_same_bits_with_it_and_without(tmp_path, objective):
    made = {}
    for every in (0, 1, 2):
        run = tmp_path / str(every)
        spo.train("CartPole-v1", objective=objective, watch_ratios=every, out=str(run), **SETTINGS)
        policy = (run / "policy/policy.safetensors").read_bytes()
        made[every] = (policy, untimed(run), (run / "episodes.jsonl").read_bytes())
    assert made[0] == made[1] == made[2]
    assert not (tmp_path / "0/ratio_samples").exists()
    assert set(samples(tmp_path / "1")) == {f"{i}.safetensors" for i in range(1, 6)}
    assert set(samples(tmp_path / "2")) == {"2.safetensors", "4.safetensors"}


def test_what_is_kept_is_what_the_rows_average(tmp_path):
    """A batch of no more samples than are kept: their means are those of the metrics, which the minibatches take."""
    run = tmp_path / "run"
    spo.train(
        "CartPole-v1", objective="ppo-clip", epsilon=0.05, learning_rate=0.02, watch_ratios=1, out=str(run), **SETTINGS
    )
    moved = 0.0
    for row in untimed(run):
        kept = load((run / f"ratio_samples/{row['iteration']}.safetensors").read_bytes())
        ratio, alone = kept["ratio"], kept["zero_gradient"]
        assert ratio.shape == kept["advantage"].shape == alone.shape == (3, 256) and ratio.dtype == np.float32
        assert np.abs(ratio - 1).mean() == pytest.approx(row["ratio_deviation"], rel=1e-4)
        assert (np.abs(ratio - 1) > 0.05).mean() == pytest.approx(row["clip_fraction"], abs=2 / ratio.size)
        assert alone.mean() == pytest.approx(row["zero_gradient_fraction"], abs=2 / ratio.size)
        assert kept["epsilon"].tolist() == [np.float32(0.05)]
        moved = max(moved, row["zero_gradient_fraction"])
    assert moved > 0.01  # or the assertions above have seen nothing


def test_a_run_that_was_killed_has_the_same_samples_in_the_end(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    options = {"checkpoint_every": 2, "watch_ratios": 1, **SETTINGS}
    spo.train("CartPole-v1", out=str(whole), **options)
    spo.train("CartPole-v1", out=str(cut), callback=lambda training, row: row["iteration"] < 3, **options)
    shutil.rmtree(cut / "checkpoints/3", ignore_errors=True)
    (cut / "ratio_samples/9.safetensors").write_bytes(b"of a future that was lost")
    (cut / "ratio_samples/4.safetensors.tmp").write_bytes(b"half")
    spo.resume(str(cut), quiet=True)
    assert samples(cut) == samples(whole)


@pytest.mark.parametrize(
    "every, iterations", [(1, 5), (1, 128), (1, 129), (1, 5000), (3, 10_000), (100, 99), (7, 10**6)]
)
def test_the_number_of_files_is_bounded_at_any_moment(every, iterations):
    stride = spacing(every, iterations)
    assert stride % every == 0 and iterations // stride <= MOST_KEPT
    for newest in {min(iterations, moment) for moment in (0, 1, 17, 300, 4999, 10**6)}:
        kept = [
            own for own in range(max(1, newest - 4 * stride), newest + 9) if is_kept(own, newest, every, iterations)
        ]
        assert all(own % every == 0 and own <= newest for own in kept)
        assert newest // every * every in [*kept, 0]  # the newest is there
        assert sum(own > newest - NEWEST_KEPT * every for own in kept) <= NEWEST_KEPT


def test_files_go_one_by_one_as_the_rule_says(tmp_path):
    folder = tmp_path / "ratio_samples"
    sample = {"ratio": np.ones((1, 1), np.float32)}
    for iteration in range(1, 601):
        keep_sample(folder, iteration, sample, 1, 600)
        there = {int(path.stem) for path in folder.iterdir()}
        assert there == {own for own in range(1, 601) if is_kept(own, iteration, 1, 600)}
    prune_samples(folder, 300, 1, 600)
    assert {int(path.stem) for path in folder.iterdir()} <= {own for own in range(1, 301) if is_kept(own, 300, 1, 600)}
    prune_samples(folder, 300, 0, 600)
    assert list(folder.iterdir()) == []


def test_short_iterations_are_kept_as_often_as_long_ones_in_steps(tmp_path):
    """What it costs is the same for every iteration, so that short ones must not each pay it."""
    every = {
        horizon: make_config("CartPole-v1", envs=8, horizon=horizon).watch_every for horizon in (32, 128, 256, 999)
    }
    assert every == {32: 32, 128: 8, 256: 4, 999: 2}
    assert make_config("CartPole-v1", envs=8, horizon=32, watch_ratios=3).watch_every == 3
    run = tmp_path / "run"
    spo.train("CartPole-v1", out=str(run), **SETTINGS | {"steps": 256 * 33})
    assert set(samples(run)) == {"32.safetensors"}


def test_samples_are_the_same_in_every_epoch_and_those_left_out_are_nan():
    sampler, size = RatioSampler(4 * SAMPLES), 4 * SAMPLES
    values = torch.arange(size, dtype=torch.float32)
    order = torch.from_numpy(np.random.default_rng(0).permutation(size))
    whole = torch.stack([values, -values, torch.zeros(size)])[:, order]
    sampler(order, list(whole.split(256, 1)))
    sampler(order, list(whole.split(256, 1))[:3])
    kept = sampler.arrays(0.2)
    assert kept["ratio"][0].tolist() == (np.arange(SAMPLES) * 4).tolist()
    known = ~np.isnan(kept["ratio"][1])
    assert set(kept["ratio"][1][known]) == set(np.arange(0, size, 4)) & set(order[:768].numpy().astype(float))
    assert 0 < known.sum() < SAMPLES
