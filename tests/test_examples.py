"""Every example runs, with fewer steps than it asks for by itself."""

import importlib
import json
import runpy
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from spo.models.export import export_policy

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


def test_an_encoder_of_ones_own(example):
    policy = example("own_encoder").main(steps="2048", out="run")
    assert policy.network.encoder.outputs == 64 and policy.act([0.0, 0.0, 0.1, 0.0]) in (0, 1)


def test_a_callback_and_a_logger(example, capsys):
    run = example("callback_and_logger").main(steps="2048", out="run")
    assert capsys.readouterr().out.count("iteration ") == len(
        (run.directory / "metrics.jsonl").read_text().splitlines()
    )


def test_a_loaded_policy_acts(example):
    policy = example("own_objective").main(steps="1024", out="run").policy
    assert example("load_and_act").play(policy, gym.make("CartPole-v1")) >= 1


def test_an_exported_policy_acts(example, capsys):
    pytest.importorskip("onnxruntime")
    policy = example("own_objective").main(steps="1024", out="run").policy
    action = example("run_onnx").main(str(export_policy(policy, "policy.onnx")))
    assert action.tolist() == [policy.act(np.zeros(4, np.float32))] * 3
    assert "CartPole-v1 {'type': 'Discrete', 'n': 2" in capsys.readouterr().out


def test_policies_side_by_side(example):
    image, _ = pytest.importorskip("PIL.Image"), pytest.importorskip("pygame")
    example("own_objective").main(steps="1024", out="run")
    example("side_by_side").main(["run", "run/"], "out.webp", frames=3, every=60)
    with image.open("out.webp") as picture:
        assert picture.size == (640, 262) and picture.n_frames > 1


def test_the_objective_in_a_loop(example):
    assert example("objective_in_a_loop").main(batches=20) > 0.9


def test_the_notebook_runs_top_to_bottom(example, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = json.loads((EXAMPLES / "first_steps.ipynb").read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    assert code.count('steps="50k"') == 1
    (tmp_path / "notebook.py").write_text(code.replace('steps="50k"', 'steps="2048"'))
    names = runpy.run_path(str(tmp_path / "notebook.py"))
    assert names["total"] >= 1 and names["log_ratio"].grad.tolist() == [1.0, -1.0, 2.0, 0.0]


def test_the_readme_lists_every_example():
    readme = (EXAMPLES / "README.md").read_text()
    files = [file for kind in ("*.py", "*.ipynb") for file in sorted(EXAMPLES.glob(kind))]
    assert files and [file.name for file in files if f"]({file.name})" not in readme] == []
