"""Every example runs, with fewer steps than it asks for by itself."""

import importlib
from pathlib import Path

import gymnasium as gym
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch, tmp_path):
    """Imports an example as if it were called in its own directory; what it writes goes elsewhere."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.chdir(tmp_path)
    return importlib.import_module


def test_an_objective_of_ones_own(example):
    run = example("own_objective").main(steps="2048", out="run")
    assert run.summary["env_steps"] == 2048
    assert '"own_objective:soft_clip"' in (run.directory / "config.json").read_text()


def test_an_environment_of_ones_own(example):
    module = example("own_environment")
    run = module.main(steps="2048", out="run")
    assert run.policy.spec.observation_space == module.PointMass.observation_space
    assert gym.make("PointMass-v0").reset(seed=1)[0].shape == (4,)


def test_a_callback(example, capsys):
    run = example("callback_and_logger").main(steps="2048", out="run")
    assert capsys.readouterr().out.count("iteration ") == len(
        (run.directory / "metrics.jsonl").read_text().splitlines()
    )


def test_a_loaded_policy_acts(example):
    policy = example("own_objective").main(steps="1024", out="run").policy
    assert example("load_and_act").play(policy, gym.make("CartPole-v1")) >= 1


def test_the_objective_in_a_loop(example):
    assert example("objective_in_a_loop").main(batches=20) > 0.9


def test_the_readme_lists_every_example():
    readme = (EXAMPLES / "README.md").read_text()
    files = sorted(EXAMPLES.glob("*.py"))
    assert files and [file.name for file in files if f"]({file.name})" not in readme] == []
