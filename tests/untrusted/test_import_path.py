"""The directory that a command is called in: nothing of it is imported, and no config starts a swarm of processes."""

import os
import shutil
import subprocess
import sys

import pytest

from hostile import needs_proc
from spo import cli

pytestmark = needs_proc


IMPOSTORS = ("torch", "numpy", "gymnasium", "safetensors", "rich", "tyro", "matplotlib", "json", "poisoned")


def test_a_command_imports_nothing_from_where_it_is_called(run, tmp_path):
    """Called inside a downloaded directory, `spo` takes no file of it for an installed package."""
    shutil.copytree(run, tmp_path / "run")
    for name in IMPOSTORS:
        (tmp_path / "run" / f"{name}.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    script = tmp_path / "bin" / "spo"
    script.parent.mkdir()
    script.write_text("from spo.cli import main\nmain()\n")

    def called(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, script, *arguments], cwd=tmp_path / "run", capture_output=True, text=True
        )

    done = called("eval", ".", "--env", "gymnasium:CartPole-v1", "--episodes", "1")
    assert done.returncode == 0 and done.stdout.startswith("return "), done
    assert not (tmp_path / "marker").exists()
    named = called("train", "CartPole-v1", "--objective", "poisoned:f")
    assert named.returncode == 2 and (tmp_path / "marker").exists()  # the user's word still finds a module here


@pytest.mark.parametrize("arguments, is_searched", [(["eval", "."], False), (["train", "mine:X-v0"], True)])
def test_the_current_directory_is_searched_only_for_a_module_that_is_named(arguments, is_searched, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["spo", *arguments])
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    monkeypatch.setattr(cli, "dispatch", lambda _: None)
    cli.main()
    assert sys.path == ["/elsewhere", os.curdir][: 1 + is_searched]


def test_jobs_import_nothing_from_where_they_are_started(monkeypatch, tmp_path):
    from spo.experiments.executors import local
    from spo.experiments.plan import Cell, read_suite
    from spo.experiments.sweep import Sweep

    commands = []
    monkeypatch.setattr(local.subprocess, "Popen", lambda command, **_: commands.append(command))
    local.run_here(Sweep(tmp_path, read_suite("smoke")), 1).start(Cell("CartPole-v1", "spo", 1))
    assert commands[0][1:4] == ["-P", "-m", "spo.experiments.worker"]


def test_a_run_starts_no_swarm_of_processes(monkeypatch):
    """However many environments a config asks for."""
    from spo.config.sources import make_config
    from spo.envs import factory, subproc

    asked = []
    monkeypatch.setattr(subproc.SubprocVecEnv, "__init__", lambda self, make, envs, workers, *_: asked.append(workers))
    config = make_config("CartPole-v1", envs=2**16, horizon=1, minibatches=1, steps=2**16)
    factory.make_envs(config, None, "process", 1)
    assert asked == [256]
