"""Names an environment that hangs in this process. It cannot be survived here, only told."""

import os
import sys
import threading
import time
from collections.abc import Callable

from spo.envs import Step, VecEnv


class Watched:
    """A backend of this process under a clock: past the limit, one sentence, and the process ends with code 2."""

    def __init__(self, envs: VecEnv, timeout: float, on_timeout: Callable[[str], None] = lambda reason: None):
        self.envs, self.timeout, self.on_timeout = envs, timeout, on_timeout
        self.started: float | None = None
        self.is_closed = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __getattr__(self, name: str):
        return getattr(self.envs, name)

    def reset(self):
        return self._timed(self.envs.reset)

    def step(self, action) -> Step:
        return self._timed(self.envs.step, action)

    def seam(self):
        return self._timed(self.envs.seam)

    def close(self) -> None:
        self.is_closed.set()
        self.envs.close()

    def _timed(self, function: Callable, *arguments):
        self.started = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self.started = None

    def _watch(self) -> None:
        while not self.is_closed.wait(min(1.0, self.timeout / 4)):
            started = self.started
            if started is not None and time.monotonic() - started > self.timeout:
                environment, step = getattr(self.envs, "progress", ("of the pool", self.envs.steps))
                reason = f"environment {environment} did not answer within {self.timeout:g} s (its step {step})"
                self.on_timeout(reason)
                print(f"error: {reason}", file=sys.stderr, flush=True)
                os._exit(2)
