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


class WatchdogVecEnv:
    """A backend of this process under a clock: past the limit, one sentence, and the process ends with code 2."""

    def __init__(self, envs: VecEnv, timeout: float, on_timeout: Callable[[str], None] = lambda reason: None):
        self.envs, self.timeout, self.on_timeout = envs, timeout, on_timeout
        self.started: float | None = None
        self.is_closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envs, name)

    def reset(self) -> np.ndarray:
        return self._call_timed(self.envs.reset)

    def step(self, action: np.ndarray) -> Step:
        return self._call_timed(self.envs.step, action)

    def rebuild(self) -> np.ndarray:
        return self._call_timed(self.envs.rebuild)

    def close(self) -> None:
        self.is_closed.set()
        self.envs.close()

    def _call_timed(self, function: Callable[..., Any], *arguments: object) -> Any:
        self.started = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self.started = None

    def _watch(self) -> None:
        """Count ticks of its own and not the time, which goes on while the whole process is stopped."""
        waited, seen = 0.0, None
        while not self.is_closed.wait(tick_of(self.timeout)):
            started = self.started
            waited = waited + tick_of(self.timeout) if started is not None and started == seen else 0.0
            seen = started
            if waited >= self.timeout:
                environment, step = self.envs.progress
                reason = f"environment {environment} did not answer within {self.timeout:g} s (its step {step})"
                self.on_timeout(reason)
                print(f"error: {reason}", file=sys.stderr, flush=True)
                os._exit(2)
