"""SIGTERM and Ctrl-C save in time; a second one stops at once; both corrupt nothing."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from crash import child, remains, start_or_resume
from spo.rundir import RunDirectory

LONG = {"steps": 32 * 4000, "checkpoint_every": 0}


def wait_for(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_for_a_row(out) -> None:
    rows = len(RunDirectory(out).read_metrics())
    wait_for(lambda: len(RunDirectory(out).read_metrics()) > rows)


def asked_to_stop(out, settings, number, draw) -> tuple[int, float]:
    """The exit code of a run that gets a signal at a random moment of its loop, and how long it took."""
    process = child(out, "CartPole-v1", settings)
    wait_for_a_row(out)
    time.sleep(draw.uniform(0, 0.2))
    started = time.monotonic()
    os.kill(process.pid, number)
    process.join()
    return process.exitcode, time.monotonic() - started


def test_signals_save_the_last_boundary_in_time(tmp_path, capsys):
    """20 signals on runs without any other checkpoint: each loses nothing, and is over within 5 s."""
    seed, longest = 7, 0.0
    draw = random.Random(seed)
    for number in [signal.SIGTERM, signal.SIGINT] * 10:
        out = tmp_path / "run"
        code, seconds = asked_to_stop(out, LONG, number, draw)
        assert code == 128 + number, f"seed {seed}"
        status = RunDirectory(out).read_status()
        assert status["state"] == "interrupted" and status["reason"] == f"stopped by {number.name}"
        assert status["checkpoint"] == status["iteration"] > 0
        longest = max(longest, seconds)
    assert longest < 5
    with capsys.disabled():
        print(f"\n20 signals, the slowest took {longest:.2f} s, seed {seed}")


def test_a_run_stopped_by_signals_ends_as_one_that_was_not(tmp_path):
    settings = LONG | {"steps": 32 * 120}
    start_or_resume(tmp_path / "whole", "CartPole-v1", settings)
    draw = random.Random(8)
    for number in (signal.SIGTERM, signal.SIGINT):
        asked_to_stop(tmp_path / "run", settings, number, draw)
    start_or_resume(tmp_path / "run", "CartPole-v1", settings)
    assert remains(tmp_path / "run") == remains(tmp_path / "whole")


def test_a_second_signal_stops_at_once_and_corrupts_nothing(tmp_path):
    settings = LONG | {"steps": 32 * 60, "checkpoint_every": 1}
    start_or_resume(tmp_path / "whole", "CartPole-v1", settings)
    for _ in range(3):
        process = child(tmp_path / "run", "CartPole-v1", settings)
        wait_for_a_row(tmp_path / "run")
        os.kill(process.pid, signal.SIGTERM)
        os.kill(process.pid, signal.SIGINT)
        process.join(5)
        assert process.exitcode in (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT)
    start_or_resume(tmp_path / "run", "CartPole-v1", settings)
    assert remains(tmp_path / "run") == remains(tmp_path / "whole")


@pytest.mark.parametrize("phase", ["evaluation", "set-up"])
def test_a_signal_outside_the_loop_is_heard_too(phase, tmp_path):
    """During a long evaluation, and while the run is only being set up."""
    out = tmp_path / "run"
    train = ["train", "CartPole-v1", "--preset", "classic", "--steps", "10M", "--out", str(out), "--compile", "off"]
    settings = ["--eval-every", "1"] if phase == "evaluation" else []
    process = subprocess.Popen([sys.executable, "-m", "spo", *train, *settings], stderr=subprocess.PIPE, text=True)
    if phase == "evaluation":
        wait_for(lambda: (out / "evaluations.jsonl").exists())
    else:
        wait_for(lambda: _catches(process.pid, signal.SIGTERM))
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=5)[1]
    assert process.returncode == 143 and "Traceback" not in errors
    if phase == "evaluation":
        assert f"spo resume {out} continues from there" in errors


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
