"""The scripts of benchmarks/ start: whatever they import is there, and each says what it is for."""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
SCRIPTS = sorted(BENCHMARKS.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_what_it_is_for(script, monkeypatch, capsys):
    if script.name == "hosted.py" and find_spec("stable_baselines3") is None:
        pytest.skip("needs the extra sb3")
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code in (0, None) and capsys.readouterr().out.startswith("usage: ")


def test_the_readme_lists_every_script():
    readme = (BENCHMARKS / "README.md").read_text()
    assert [script.name for script in SCRIPTS if f"`{script.name}`" not in readme] == []
