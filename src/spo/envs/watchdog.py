"""A timeout for environments of this process: report the one that hangs, and exit."""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from spo.envs import Step, VecEnv


def tick_of(timeout: float) -> float:
    """How often to look whether a time limit has passed."""
    return min(1.0, timeout / 4)


class Watchdog:
    """A clock for calls of this process: past the limit, one sentence, and the process ends with code 2.

    `complete` makes the sentence, of the words that say what happened.
    """

    def __init__(self, timeout: float, complete: Callable[[str], str], on_timeout: Callable[[str], None]):
        self.timeout, self.complete, self.on_timeout = timeout, complete, on_timeout
        self.started: float | None = None
        self.is_closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def start(self) -> None:
        """Begin to count, or begin anew."""
        self.started = time.monotonic()

    def stop(self) -> None:
        self.started = None

    def close(self) -> None:
        self.is_closed.set()

    def _watch(self) -> None:
        """Count ticks of its own and not the time, which goes on while the whole process is stopped."""
        waited, seen = 0.0, None
        while not self.is_closed.wait(tick_of(self.timeout)):
            started = self.started
            waited = waited + tick_of(self.timeout) if started is not None and started == seen else 0.0
            seen = started
            if waited >= self.timeout:
                self._end()

    def _end(self) -> None:
        reason = self.complete(f"did not answer within {self.timeout:g} s")
        self.on_timeout(reason)
        print(f"error: {reason}", file=sys.stderr, flush=True)
        os._exit(2)


class WatchdogVecEnv:
    """A backend of this process under a clock."""

    def __init__(self, envs: VecEnv, timeout: float, on_timeout: Callable[[str], None] = lambda reason: None):
        self.envs, self.on_timeout = envs, on_timeout
        self.clock = Watchdog(timeout, self._complete, lambda reason: self.on_timeout(reason))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envs, name)

    def reset(self) -> np.ndarray:
        return self._call_timed(self.envs.reset)

    def step(self, action: np.ndarray) -> Step:
        return self._call_timed(self.envs.step, action)

    def rebuild(self) -> np.ndarray:
        return self._call_timed(self.envs.rebuild)

    def close(self) -> None:
        self.clock.close()
        self.envs.close()

    def _call_timed(self, function: Callable[..., Any], *arguments: object) -> Any:
        self.clock.start()
        try:
            return function(*arguments)
        finally:
            self.clock.stop()

    def _complete(self, what: str) -> str:
        environment, step = self.envs.progress
        return f"environment {environment} {what} (its step {step})"
