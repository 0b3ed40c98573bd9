"""SIGTERM and Ctrl-C save in time; a second one stops at once; both corrupt nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import spo
from crash import SHORT, child, remains, start_or_resume
from probes import Busy, Slow
from spo.interrupts import HANDLED
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


def begun(out, *arguments):
    """The process of a run that has passed its set-up."""
    process = child(out, *arguments)
    wait_for(lambda: (out / "config.json").exists())
    time.sleep(1.0)
    return process


def code_within(seconds: float, process) -> int | None:
    """The exit code of a process, or None if it is not over in time; then it is ended."""
    process.join(seconds)
    code = process.exitcode
    process.kill()
    process.join()
    return code


PHASES = {
    "rollout": (partial(Slow, 0.05), {"horizon": 4096, "steps": 8192}),
    "update": ("CartPole-v1", {"epochs": 10**6}),
    "evaluation": (partial(Slow, 0.01), {"eval_every": 1}),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_is_answered_in_every_phase(phase, tmp_path):
    """Each of these would go on for minutes."""
    process = begun(tmp_path / "run", *PHASES[phase])
    os.kill(process.pid, signal.SIGTERM)
    assert code_within(5, process) == 128 + signal.SIGTERM


def test_a_second_signal_does_not_wait_for_the_step(tmp_path):
    process = begun(tmp_path / "run", partial(Slow, 60.0), {})
    os.kill(process.pid, signal.SIGTERM)
    process.join(0.5)
    assert process.exitcode is None
    os.kill(process.pid, signal.SIGINT)
    assert code_within(5, process) == -signal.SIGINT


def test_workers_leave_signals_to_their_parent(tmp_path):
    """Ctrl-C reaches the whole group; the step under way is finished all the same."""
    process = begun(tmp_path / "run", partial(Slow, 0.5), {"backend": "process", "envs": 1, "threads": 1}, os.setsid)
    os.killpg(process.pid, signal.SIGINT)
    assert code_within(10, process) == 128 + signal.SIGINT


@pytest.mark.parametrize("backend", ["gymnasium", "process"])
def test_the_time_in_which_a_run_is_stopped_is_not_the_environments(backend, tmp_path):
    """As by Ctrl-Z: the clock goes on, and no environment hangs."""
    settings = {"backend": backend, "envs": 1, "threads": 1, "env_timeout": 4.0}
    process = begun(tmp_path / "run", partial(Busy, 0.4), settings, os.setsid)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(4.8)
    os.killpg(process.pid, signal.SIGCONT)
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGTERM)
    assert code_within(10, process) == 128 + signal.SIGTERM


def test_a_signal_strikes_between_steps_and_is_forgotten_afterwards(tmp_path):
    handlers, went_on = [signal.getsignal(number) for number in HANDLED], []

    def ask(training, row):
        os.kill(os.getpid(), signal.SIGTERM)
        went_on.append(training.iteration)

    with pytest.raises(KeyboardInterrupt, match="stopped by SIGTERM"):
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "run"), callback=ask)
    assert went_on == [1]
    assert [signal.getsignal(number) for number in HANDLED] == handlers
    try:
        spo.resume(tmp_path / "run", quiet=True)
    except KeyboardInterrupt:
        pytest.fail("the second run heard the first one's signal")


def test_any_thread_can_train(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(start_or_resume, tmp_path / "run", "CartPole-v1", {}).result()
    assert run.summary["env_steps"] == 256


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
