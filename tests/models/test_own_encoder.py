"""A network of the user's own as encoder: trained, saved, and loaded only by those who name it."""

import sys
import textwrap

import numpy as np
import pytest
import torch

import spo
from spo.errors import ConfigError, SpoError
from spo.models.export import export_policy
from spo.models.image_encoders import ENCODERS

MODULE = textwrap.dedent("""
    import torch
    from torch import nn

    class Features(nn.Module):
        def __init__(self, shape):
            super().__init__()
            self.layer = nn.Linear(shape[0], 7)

        def forward(self, observation):
            return torch.relu(self.layer(observation))

    class Normed(Features):
        def __init__(self, shape):
            super().__init__(shape)
            self.norm = nn.BatchNorm1d(7)

    class Forgetful(Features):
        def __init__(self, shape):
            super().__init__(shape)
            self.dropout = nn.Dropout(0.5)

        def forward(self, observation):
            return self.dropout(super().forward(observation))

    class Flat(Features):
        def forward(self, observation):
            return observation.sum()

    class Failing(Features):
        def forward(self, observation):
            raise RuntimeError("no such layer")

    class Choosy(Features):
        def forward(self, observation):
            is_bright = not observation.is_meta and observation.sum() > 0
            return self.layer(observation if is_bright else -observation)

    def function(shape):
        return Features(shape)
""")
SHORT = {"preset": "classic", "steps": 128, "envs": 2, "horizon": 32, "minibatches": 2, "epochs": 1, "quiet": True}


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_networks.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_networks", raising=False)


def test_one_that_cannot_be_traced_is_not_exported(own_module, tmp_path):
    policy = spo.train("CartPole-v1", encoder="own_networks:Choosy", out=str(tmp_path / "run"), **SHORT).policy
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SpoError, match=r"policy.pt2 cannot be made of this policy: \w+: \S+") as refused:
        export_policy(policy, tmp_path / "policy.pt2")
    assert "\n" not in str(refused.value) and sorted(tmp_path.iterdir()) == before


def test_it_is_trained_saved_and_loaded_by_name(own_module, tmp_path):
    name = "own_networks:Features"
    run = spo.train("CartPole-v1", encoder=name, out=str(tmp_path / "run"), **SHORT)
    observation = np.linspace(-1, 1, 4, dtype=np.float32)
    assert run.policy.network.encoder.outputs == 7
    with pytest.raises(SpoError, match="repeat --encoder own_networks:Features to import it"):
        spo.load(run.directory)
    with pytest.raises(SpoError, match="--encoder other:Features is not that of the policy in"):
        spo.load(run.directory, encoder="other:Features")
    loaded = spo.load(run.directory, encoder=name)
    assert loaded.act(observation) == run.policy.act(observation)
    trained = dict(run.policy.network.named_parameters())
    assert all(torch.equal(parameter, trained[key]) for key, parameter in loaded.network.named_parameters())
    assert spo.evaluate(run.directory, episodes=1, encoder=name, max_steps=3).lengths == [3]


def test_a_run_with_it_is_resumed_by_who_names_it(own_module, tmp_path):
    name = "own_networks:Features"
    run = spo.train("CartPole-v1", encoder=name, out=str(tmp_path / "run"), **SHORT)
    with pytest.raises(SpoError, match="this run names a module of yours: repeat --encoder own_networks:Features"):
        spo.resume(run.directory, steps=256, quiet=True)
    longer = spo.resume(run.directory, steps=256, quiet=True, encoder=name)
    assert longer.policy.network.encoder.outputs == 7
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    "name, told",
    [
        ("own_networks:Normed", "it has buffers, and only parameters are saved"),
        ("own_networks:Forgetful", "it gives other features for the same observations, as dropout does"),
        ("own_networks:Flat", r"it returned \(\) for 2 observations of \(4,\); it must return \(2, features\)"),
        ("own_networks:Failing", r"failed on observations \(4,\): no such layer"),
        ("own_networks:function", "is a function; accepted is a class of torch.nn.Module"),
        ("own_networks:Missing", "cannot be imported: AttributeError"),
        ("no_such_module:Class", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_no_encoder_is_refused(own_module, name, told):
    with pytest.raises(ConfigError, match=f"--encoder {name} .*{told}"):
        spo.train("CartPole-v1", encoder=name, **SHORT)


def test_a_name_that_is_none_is_refused_with_those_of_the_registry(tmp_path):
    accepted = f"one of auto, mlp, {', '.join(ENCODERS)}, or package.module:Class"
    with pytest.raises(ConfigError, match=f"^--encoder 'vit' is not accepted: it must be {accepted}$"):
        spo.train("CartPole-v1", encoder="vit", **SHORT)
    (tmp_path / "file.toml").write_text("encoder = 'own_networks:Features'")
    with pytest.raises(SpoError, match="names a module: repeat --encoder own_networks:Features"):
        spo.train("CartPole-v1", config=str(tmp_path / "file.toml"), **SHORT)
