"""Stable-Baselines3: its PPO through the rewriter is its PPO, and SPO differs; files, schedules, learning."""

import pytest
import torch
from hosting import Guess, are_equal, are_finite, parameters_of, require_host, run_example

require_host("sb3")

from stable_baselines3 import PPO

from spo.errors import SpoError
from spo.integrations.sb3 import SPO
from spo.objectives import OBJECTIVES, Objective, spo

SETTINGS = {
    "CartPole-v1": {},
    "Pendulum-v1": {
        "use_sde": True,
        "clip_range_vf": 0.2,
        "target_kl": 0.05,
        "clip_range": lambda remaining: 0.1 + 0.2 * remaining,
        "policy_kwargs": {"net_arch": [16]},
    },
}


def train(algorithm: type[PPO], env: str = "CartPole-v1", steps: int = 128, **settings) -> PPO:
    chosen = {"n_steps": 64, "batch_size": 32, "n_epochs": 3, "seed": 1, "device": "cpu"} | SETTINGS[env] | settings
    return algorithm("MlpPolicy", env, **chosen).learn(steps)


@pytest.mark.parametrize("env", SETTINGS)
def test_ppo_through_the_rewriter_is_the_hosts_ppo(env):
    host, through, ours = train(PPO, env), train(SPO, env, objective="ppo-clip"), train(SPO, env)
    assert are_equal(parameters_of(host.policy), parameters_of(through.policy))
    assert not are_equal(parameters_of(host.policy), parameters_of(ours.policy))
    assert are_finite(parameters_of(ours.policy))
    added = {f"train/{name}" for name in ("ratio_deviation", "ratio_deviation_max", "ratio_deviation_sample_max")}
    assert set(ours.logger.name_to_value) - set(host.logger.name_to_value) == added
    assert (
        0
        < ours.logger.name_to_value["train/ratio_deviation"]
        < ours.logger.name_to_value["train/ratio_deviation_sample_max"]
    )


def test_files_keep_the_objective_and_are_read_by_the_host(tmp_path):
    model = train(SPO, objective="ppo-rb", objective_settings={"alpha": 0.1})
    model.save(tmp_path / "model")
    again = SPO.load(tmp_path / "model", device="cpu")
    assert (again.objective, again.hosted_objective.settings) == ("ppo-rb", {"alpha": 0.1})
    for loaded in (again, PPO.load(tmp_path / "model", device="cpu")):
        assert are_equal(parameters_of(model.policy), parameters_of(loaded.policy))
    again.set_env(model.get_env())
    again.learn(64, reset_num_timesteps=False)
    assert again.num_timesteps == 192 and not are_equal(parameters_of(model.policy), parameters_of(again.policy))


def test_a_host_file_goes_on_with_spo(tmp_path):
    train(PPO).save(tmp_path / "model")
    assert SPO.load(tmp_path / "model", device="cpu").objective == "spo"


def test_what_is_adapted_is_saved(tmp_path, monkeypatch):
    def widened(epsilon: float, ratio_deviation: float) -> float:
        return 2 * epsilon

    monkeypatch.setitem(OBJECTIVES, "widening", Objective("widening", spo, adapt=widened))
    model = train(SPO, objective="widening")
    assert model.objective_state == pytest.approx(0.8)
    assert model.logger.name_to_value["train/epsilon"] == pytest.approx(0.4)
    model.save(tmp_path / "model")
    assert SPO.load(tmp_path / "model", device="cpu").hosted_objective.adaptive_value == pytest.approx(0.8)


@pytest.mark.parametrize("steps", [256, 250], ids=["down to 0", "below 0"])
def test_a_schedule_that_ends_at_zero_leaves_the_policy_whole(steps):
    """The host asks for the width after it has counted the rollout, so its last update may have none, or less."""
    model = train(SPO, steps=steps, clip_range=lambda remaining: 0.2 * remaining)
    assert model.clip_range(model._current_progress_remaining) <= 0
    assert are_finite(parameters_of(model.policy))
    assert model.logger.name_to_value["train/ratio_deviation_max"] < 0.05


@pytest.mark.parametrize("width", [0, -0.2])
def test_a_width_that_is_none_is_refused(width):
    with pytest.raises(SpoError, match=f"clip_range {width}.* is not accepted: .* above 0"):
        train(SPO, clip_range=width)


def test_a_bad_objective_is_refused_before_anything_is_made():
    with pytest.raises(SpoError, match="objective 'trpo' does not fit into stable-baselines3"):
        SPO("MlpPolicy", "no such environment", objective="trpo")


def test_spo_learns():
    settings = {"n_steps": 128, "batch_size": 64, "n_epochs": 10, "learning_rate": 1e-2, "seed": 1, "device": "cpu"}
    model = SPO("MlpPolicy", Guess(), **settings).learn(1024)
    probabilities = model.policy.get_distribution(torch.tensor([[-1.0], [1.0]])).distribution.probs
    assert probabilities.diagonal().min() > 0.8


def test_the_pages_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = run_example("Stable-Baselines3", {"1_000_000": "2048"})["model"]
    assert model.num_timesteps == 2048 and PPO.load("hopper", device="cpu").num_timesteps == 2048
