"""Completion in shells: bash is asked itself; zsh and fish where they are installed."""

import shutil
import subprocess

import pytest

from spo import cli
from spo.cli.completion import list_options


def write_script(shell: str, capsys, tmp_path):
    cli.dispatch(["completion", shell])
    path = tmp_path / f"spo.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


def run(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


ASKED = [
    (["spo", "tr"], {"train"}),
    (["spo", "train", "CartP"], {"CartPole-v1"}),
    (["spo", "train", "X-v0", "--objective", "ppo-"], {"ppo-clip", "ppo-rb"}),
    (["spo", "train", "X-v0", "--preset", "cl"], {"classic"}),
    (["spo", "train", "X-v0", "--encoder", "nat"], {"nature"}),
    (["spo", "train", "X-v0", "--learning-r"], {"--learning-rate"}),
    (["spo", "train", "X-v0", "--quiet", "--lr-s"], {"--lr-schedule"}),
    (["spo", "compare", "X-v0", "--objectives", "spo-ad"], {"spo-adaptive"}),
    (["spo", "compare", "X-v0", "--objectives", "spo", "spo-ad"], {"spo-adaptive"}),
    (["spo", "compare", "X-v0", "--objectives", "spo", "--see"], {"--seed", "--seeds"}),
    (["spo", "train", "X-v0", "--track", "ml"], {"mlflow"}),
    (["spo", "train", "X-v0", "--track", "mlflow", "tens"], {"tensorboard"}),
    (["spo", "tune", "Pend"], {"Pendulum-v1"}),
    (["spo", "tune", "X-v0", "--tri"], {"--trials"}),
    (["spo", "tune", "X-v0", "--preset", "cl"], {"classic"}),
    (["spo", "bench", "smo"], {"smoke"}),
    (["spo", "figures", "fig7"], {"fig7"}),
    (["spo", "completion", "z"], {"zsh"}),
]


def test_tasks_of_envpool_and_games_are_among_the_environments():
    pytest.importorskip("envpool")
    words = list_options("train").words
    assert {"CheetahRun-v1", "Go1JoystickFlatTerrain-v1", "Breakout", "Hopper-v4"} <= set(words)
    assert "Breakout-v5" not in words  # a game goes by its name


def test_bash_completes(capsys, tmp_path):
    script = write_script("bash", capsys, tmp_path)
    for words, expected in ASKED:
        typed = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _spo; echo ${{COMPREPLY[@]}}"
        assert expected <= set(run("bash", "-c", f"source {script}; {typed}")), words
    files = "COMP_WORDS=(spo train --out r); COMP_CWORD=3; _spo; echo ${#COMPREPLY[@]}"
    assert run("bash", "-c", f"source {script}; {files}") == ["0"]  # so that bash completes files


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(capsys, tmp_path):
    script = write_script("zsh", capsys, tmp_path)
    stand_ins = "compinit() {}; compdef() {}; compadd() { shift; print -l $@ }; _files() {}"
    for words, expected in ASKED:
        typed = f"words=({' '.join(words)}); CURRENT={len(words)}; _spo"
        offered = run("zsh", "-f", "-c", f"{stand_ins}; autoload() {{}}; source {script}; {typed}")
        assert expected <= {word for word in offered if word.startswith(words[-1])}, words


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(capsys, tmp_path):
    script = write_script("fish", capsys, tmp_path)
    for words, expected in ASKED:
        lines = run("fish", "--no-config", "-c", f"source {script}; complete -C '{' '.join(words)}'")
        assert expected <= set(lines), words


def test_no_command_and_no_flag_is_left_out(capsys, tmp_path):
    for shell in ("bash", "zsh", "fish"):
        text = write_script(shell, capsys, tmp_path).read_text()
        for word in (*cli.COMMANDS, "critic-hidden", "retry-failed", "cg-steps"):
            assert word in text
