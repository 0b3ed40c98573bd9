"""SIGTERM and Ctrl-C: the running step or minibatch is finished, then the run stops and saves.

A process has one set of signal handlers, so this module has one state. The loops that may take long call
`stop_if_asked` between their steps.
"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

HANDLED = (signal.SIGINT, signal.SIGTERM)

_asked: signal.Signals | None = None
_is_deferred = False


class Interrupted(KeyboardInterrupt):
    """A signal asked the run to stop; `code` is the exit code that shells know it by."""

    def __init__(self, asked: signal.Signals):
        super().__init__(f"stopped by {asked.name}")
        self.code = 128 + asked


def stop_if_asked() -> None:
    """Raises if a signal has asked the run to stop."""
    if _asked is not None:
        raise Interrupted(_asked)


@contextmanager
def handled() -> Iterator[None]:
    """Turns the first signal into `Interrupted`; a second one ends the process at once, as if nobody listened."""
    global _asked
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers; the program that started this one decides
        return
    previous = {number: signal.signal(number, _ask) for number in HANDLED}
    try:
        yield
    finally:
        _asked = None
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def deferred() -> Iterator[None]:
    """In here a signal only asks, and `stop_if_asked` answers; elsewhere it raises where it strikes."""
    global _is_deferred
    _is_deferred = True
    try:
        yield
    finally:
        _is_deferred = False


def _ask(number: int, frame: object) -> None:
    global _asked
    _asked = signal.Signals(number)
    for other in HANDLED:
        signal.signal(other, signal.SIG_DFL)
    if not _is_deferred:
        raise Interrupted(_asked)
    print(f"\n{_asked.name}: stopping and saving; once more stops at once", file=sys.stderr, flush=True)
