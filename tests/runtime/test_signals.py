"""SIGTERM and Ctrl-C save in time; a second one stops at once; both corrupt nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest

import spo
from crash import SHORT, child, remains, start_or_resume
from lengths import leave_rest
from probes import Busy
from spo.runs.directory import RunDirectory
from spo.runtime.signals import HANDLED
from waiting import PATIENCE, children, end_of, seconds_of_work, wait_for

LONG = {"steps": 32 * 4000, "checkpoint_every": 0}


def with_a_new_row(out, settings):
    """The process of a run that has made another iteration, or is over."""
    rows = len(RunDirectory(out).read_metrics())
    process = child(out, "CartPole-v1", settings)
    wait_for(lambda: len(RunDirectory(out).read_metrics()) > rows or not process.is_alive())
    return process


def asked_to_stop(out, settings, number, draw) -> tuple[int, float]:
    """The exit code of a run that gets a signal at a random moment of its loop, and the work it did after that."""
    process = with_a_new_row(out, settings)
    time.sleep(draw.uniform(0, 0.2))
    with suppress(OSError):  # it may be over already
        before = after = seconds_of_work(process.pid)
        os.kill(process.pid, number)
        while process.is_alive():
            after = seconds_of_work(process.pid)
            time.sleep(0.005)
    process.join()
    return process.exitcode, after - before


def test_signals_save_the_last_boundary_in_time(tmp_path, amount, capsys):
    """Signals on runs without any other checkpoint: each loses nothing, and is over within 5 s of work."""
    seed, longest = 7, 0.0
    draw = random.Random(seed)
    numbers = [signal.SIGTERM, signal.SIGINT] * amount(2, 10)
    for number in numbers:
        out = tmp_path / "run"
        code, seconds = asked_to_stop(out, LONG, number, draw)
        assert code == 128 + number, f"seed {seed}"
        status = RunDirectory(out).read_status()
        assert status["state"] == "interrupted" and status["reason"] == f"stopped by {number.name}"
        assert status["checkpoint"] == status["iteration"] > 0
        longest = max(longest, seconds)
    assert longest < 5
    with capsys.disabled():
        print(f"\n{len(numbers)} signals, the slowest took {longest:.2f} s of work, seed {seed}")


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
        process = with_a_new_row(tmp_path / "run", settings)
        with suppress(ProcessLookupError):  # it may be over already
            os.kill(process.pid, signal.SIGTERM)
            os.kill(process.pid, signal.SIGINT)
        assert end_of(process) in (-signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGINT, 0)
    start_or_resume(tmp_path / "run", "CartPole-v1", settings)
    assert remains(tmp_path / "run") == remains(tmp_path / "whole")


def work_of(process) -> float:
    """The seconds that a process and those that it started have worked; never waiting, so that load counts little."""
    total = 0.0
    for pid in (process.pid, *children(process.pid)):
        with suppress(OSError):
            total += seconds_of_work(pid)
    return total


def wait_for_work(process, seconds: float) -> None:
    before = work_of(process)
    wait_for(lambda: work_of(process) > before + seconds)


def begun(out, *arguments):
    """The process of a run that has passed its set-up and is busy."""
    process = child(out, *arguments)
    wait_for((out / "config.json").exists)
    wait_for_work(process, 1.0)
    return process


PHASES = {
    "rollout": (partial(Busy, 0.05), {"horizon": 2**17, "steps": 2**18}),
    "update": ("CartPole-v1", {"epochs": 10**6}),
    "evaluation": (partial(Busy, 0.01), {"eval_every": 1}),
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_is_answered_in_every_phase(phase, tmp_path):
    """Each of these would go on for hours."""
    process = begun(tmp_path / "run", *PHASES[phase])
    os.kill(process.pid, signal.SIGTERM)
    assert end_of(process) == 128 + signal.SIGTERM


def test_a_second_signal_does_not_wait_for_the_step(tmp_path):
    process = begun(tmp_path / "run", partial(Busy, 3600.0), {})
    os.kill(process.pid, signal.SIGTERM)
    wait_for_work(process, 0.2)
    assert process.is_alive()
    os.kill(process.pid, signal.SIGINT)
    assert end_of(process) == -signal.SIGINT


def test_workers_leave_signals_to_their_parent(tmp_path):
    """Ctrl-C reaches the whole group; the step under way is finished all the same."""
    process = begun(tmp_path / "run", partial(Busy, 0.5), {"backend": "process", "envs": 1, "threads": 1}, os.setsid)
    os.killpg(process.pid, signal.SIGINT)
    assert end_of(process) == 128 + signal.SIGINT


@pytest.mark.parametrize("backend", ["gymnasium", "process"])
def test_the_time_in_which_a_run_is_stopped_is_not_the_environments(backend, tmp_path):
    """As by Ctrl-Z: the clock goes on, and no environment hangs."""
    settings = {"backend": backend, "envs": 1, "threads": 1, "env_timeout": 8.0}
    process = begun(tmp_path / "run", partial(Busy, 0.4), settings, os.setsid)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(9.0)
    os.killpg(process.pid, signal.SIGCONT)
    wait_for_work(process, 0.5)
    os.kill(process.pid, signal.SIGTERM)
    assert end_of(process) == 128 + signal.SIGTERM


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


@pytest.mark.parametrize("phase", leave_rest(["evaluation", "set-up"], "set-up"))
def test_a_signal_outside_the_loop_is_heard_too(phase, tmp_path):
    """During a long evaluation, and while the run is only being set up."""
    out = tmp_path / "run"
    train = ["train", "CartPole-v1", "--preset", "classic", "--steps", "10M", "--out", str(out), "--compile", "off"]
    settings = ["--eval-every", "1"] if phase == "evaluation" else []
    process = subprocess.Popen([sys.executable, "-m", "spo", *train, *settings], stderr=subprocess.PIPE, text=True)
    if phase == "evaluation":
        wait_for((out / "evaluations.jsonl").exists)
    else:
        wait_for(lambda: _catches(process.pid, signal.SIGTERM))
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=PATIENCE)[1]
    assert process.returncode == 143 and "Traceback" not in errors
    if phase == "evaluation":
        assert f"spo resume {out} continues from there" in errors


def _catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
