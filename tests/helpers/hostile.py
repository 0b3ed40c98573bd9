"""Opens a stranger's files in a process that has little memory and little time, and listens to what is said."""

import contextlib
import io
import multiprocessing
import re
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

import spo
from crash import SHORT
from poisons import Poison
from spo.config import sources
from spo.runs import doctor
from waiting import PATIENCE

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="measures memory with /proc")
BRIEF = SHORT | {"steps": 32 * 3}
MEMORY = 500 * 2**20
IMPORTABLE = {"spo", "torch", "numpy", "gymnasium", "safetensors", "tyro", "rich", "pygame", "cv2", "mujoco"}
"""Packages that opening a run may import; the standard library aside."""


class Hang(BaseException):
    """Not an Exception, so that nothing takes it for a damaged file."""


OPENERS: dict[str, Callable[[Path], object]] = {
    "load": spo.load,
    "doctor": doctor.examine,
    "evaluate": lambda run: spo.evaluate(run, episodes=1),
    "config": lambda run: sources.make_config("CartPole-v1", config=str(run / "config.json")),
    "resume": lambda run: spo.resume(run, quiet=True),  # last, because it writes
    "loud": spo.resume,
}


def heard(function: Callable, *arguments) -> str:
    """All that is printed and refused in a call; what a user must never meet is marked with BROKE."""
    signal.signal(signal.SIGALRM, _hang)
    signal.alarm(int(PATIENCE))
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            result = function(*arguments)
        told = "FINE" if result is not False else "PROBLEM"
    except spo.SpoError as refusal:
        told = f"REFUSED {refusal}"
    except BaseException:
        told = f"BROKE {traceback.format_exc()}"
    finally:
        signal.alarm(0)
    text = said.getvalue() + told
    fault = re.search("MemoryError|not enough memory|allocate|\x1b", text) or len(told) > 2100
    return f"BROKE {text!r}" if fault else text


def _hang(*_) -> None:
    raise Hang


def sandboxed(function: Callable, *arguments) -> object:
    """What a function returns in a process of its own, which may grow by 500 MB and import nothing new."""
    with contextlib.suppress(ImportError):  # in which any name of an environment is looked up
        import_module("envpool.registration")
    context = multiprocessing.get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=_confined, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        assert mine.poll(2 * PATIENCE), "the process hangs"
        result, growth, imported = mine.recv()
    finally:
        process.kill()
        process.join()
    assert growth < MEMORY, f"it grew by {growth / 2**20:.0f} MB"
    assert not imported, f"it imported {imported}"
    return result


def _confined(connection, function: Callable, arguments: tuple) -> None:
    before, known = _memory(), {name.split(".")[0] for name in sys.modules}
    limit = before["VmSize"] + 2 * MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        result = function(*arguments)
    except BaseException:
        result = f"BROKE {traceback.format_exc()}"
    imported = {name.split(".")[0] for name in sys.modules} - known - IMPORTABLE - sys.stdlib_module_names
    connection.send((result, _memory()["VmHWM"] - before["VmHWM"], imported))


def _memory() -> dict[str, int]:
    """Bytes: VmSize is what is mapped now, VmHWM the most that ever was resident."""
    lines = [line.split() for line in Path("/proc/self/status").read_text().splitlines()]
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}


ALL = ("load", "doctor", "evaluate", "config", "resume")


@dataclass(frozen=True)
class Case:
    """A run that is spoilt in one way, and words that the answer to it must have."""

    name: str
    poison: Poison
    expected: str = ""


def find_failures(
    run: Path, place: Path, cases: Iterable[Case], openers: Iterable[str], check: Callable[[Case, str, str], bool]
) -> dict[str, str]:
    """What broke, and each answer that `check(case, opener, answer)` does not accept: all of them at once."""
    cases = list(cases)
    assert cases and len({case.name for case in cases}) == len(cases), "a case is hidden by another"
    answers = sandboxed(lambda: {case.name: _open_poisoned(run, place, case, openers) for case in cases})
    assert isinstance(answers, dict), answers
    return {
        f"{case.name}, {opener}": answer
        for case in cases
        for opener, answer in answers[case.name].items()
        if "BROKE" in answer or not check(case, opener, answer)
    }


def _open_poisoned(run: Path, place: Path, case: Case, openers: Iterable[str]) -> dict[str, str]:
    """What each way to open a spoilt copy of a run says."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(run, place)
    case.poison(place)
    return {name: heard(OPENERS[name], place) for name in openers}
