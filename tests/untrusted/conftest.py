"""What every test of a stranger's files starts from."""

import sys

import pytest

import spo
from hostile import BRIEF


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was stopped after two of its iterations: it has a policy, and can be resumed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    spo.train("CartPole-v1", **BRIEF, out=str(out), callback=lambda training, _: training.iteration < 2)
    return out


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """A file that exists once any code of a stranger has run, be it unpickled or imported."""
    path, modules = tmp_path / "marker", tmp_path / "modules"
    modules.mkdir()
    (modules / "poisoned.py").write_text(f"open({str(path)!r}, 'w')\ndef f(ratio, advantage): return ratio\n")
    monkeypatch.syspath_prepend(modules)
    yield path
    assert not path.exists() and "poisoned" not in sys.modules
