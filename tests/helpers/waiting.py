"""Waiting for other processes on a machine of any speed: for what they do, and for no time that they might need."""

import os
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE = float(os.environ.get("SPO_TEST_PATIENCE", 600))
"""Seconds after which what should happen is taken for a hang: more than any machine needs, and never waited for by a
test that passes. Where a test must fail, as with mutations, the environment says less."""


HELPERS = Path(__file__).parent
"""Where Python, started in a process of its own, finds these modules."""


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it hangs"
        time.sleep(0.005)


def end_of(process, seconds: float = PATIENCE) -> int | None:
    """The exit code of a process, or None if it is not over in time; then it is ended."""
    process.join(seconds)
    code = process.exitcode
    process.kill()
    process.join()
    return code


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one whose parent has not looked at its end yet does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def children(pid: int) -> list[int]:
    """The processes that it started, and those that they started."""
    try:
        own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return own + [other for child in own for other in children(child)]


def seconds_of_work(pid: int) -> float:
    """The processor time of a process so far, which no other load lengthens much."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
