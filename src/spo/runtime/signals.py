"""SIGTERM and Ctrl-C: the running step or minibatch is finished, then the run stops and saves.

A process has one set of signal handlers, so this module has one state. The loops that may take long call
`raise_if_interrupted` between their steps.
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


def raise_if_interrupted() -> None:
    """Raise Interrupted if a signal has asked the run to stop."""
    if _asked is not None:
        raise Interrupted(_asked)


@contextmanager
def install_handlers() -> Iterator[None]:
    """Turn the first signal into `Interrupted`; a second one meets the default handler, which ends the process."""
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
def defer_signals() -> Iterator[None]:
    """Let a signal wait for the next `raise_if_interrupted`; otherwise it raises immediately."""
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
