"""Gymnasium environments in worker processes, for environments whose steps are slow Python."""

import ctypes
import math
import multiprocessing
import os
import signal
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from itertools import repeat
from multiprocessing import util
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from spo.envs import Step, VecEnv
from spo.envs.make import EnvMaker, is_of_gymnasium
from spo.envs.sync import MASKED_ALWAYS, MakeShare, SyncVecEnv, share_maker
from spo.envs.watchdog import tick_of
from spo.errors import EnvError, SpoError, place_of

if TYPE_CHECKING:
    from spo.config.config import Config

MOST_WORKERS = 256
"""Processes of one run, however many environments a file asks for."""
SECONDS_TO_CLOSE = 2.0
SECONDS_TO_START = 120.0


class SubprocVecEnv(VecEnv):
    """N environments over a few workers, each of which steps its share one after the other."""

    workers: Sequence["Worker"]
    has_timeout = True

    def __init__(self, make_share: MakeShare, count: int, workers: int, timeout: float):
        self.num_envs, self.timeout = count, timeout
        shares = split_envs(count, min(workers, count))
        self.workers = [Worker(make_share, share) for share in shares]
        self.bounds = np.cumsum([len(share) for share in shares])[:-1].tolist()
        self.observation_space, self.action_space, self.layout = self._ask("spaces", SECONDS_TO_START)[0]

    def reset(self) -> np.ndarray:
        answers = self._ask("reset", max(self.timeout, SECONDS_TO_START))
        self.action_mask = join_masks([mask for _, mask in answers])
        return np.concatenate([observation for observation, _ in answers])

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        answers = self._ask("step", self.timeout, np.split(action, self.bounds))
        self.action_mask = join_masks([mask for _, mask in answers])
        return merge_steps([step for step, _ in answers])

    def state(self) -> dict[str, object]:
        states = [state for state, _ in self._ask("state", self.timeout)]
        return {"steps": self.steps, "workers": {str(number): state for number, state in enumerate(states)}}

    def restore(self, state: dict) -> dict[int, str]:
        self.steps = state["steps"]
        workers = [state["workers"][str(number)] for number in range(len(state["workers"]))]
        answers = self._ask("restore", None, workers)  # a replay may take as long as the episode did
        self.action_mask = join_masks([mask for _, mask in answers])
        return {index: why for failures, _ in answers for index, why in failures.items()}

    @property
    def observation(self) -> np.ndarray:  # type: ignore[override]  # the workers have it
        return np.concatenate([observation for observation, _ in self._ask("observation", self.timeout)])

    def close(self) -> None:
        for worker in self.workers:
            worker.close()

    def _ask(self, request: str, timeout: float | None, values: Iterable[Any] = repeat(None)) -> list:
        """Put a request to all workers, each with its own value, and return their answers in order."""
        for worker, value in zip(self.workers, values):
            worker.send((request, value))
        try:
            return [worker.receive(timeout) for worker in self.workers]
        except SpoError:
            self.close()
            raise


def make_envs(config: "Config", maker: EnvMaker, threads: int) -> SubprocVecEnv:
    """Make the backend `process`: a worker for each thread, or without several for each environment."""
    workers = threads if threads > 1 else min(config.envs, MOST_WORKERS)
    return SubprocVecEnv(share_maker(config, maker), config.envs, workers, config.env_timeout)


def split_envs(count: int, shares: int) -> list[list[int]]:
    """Split the indices of all environments into shares of about the same size."""
    return [share.tolist() for share in np.array_split(np.arange(count), shares)]


class Worker:
    """A process with its share of the environments, and a record of what it is doing."""

    def __init__(self, make_share: MakeShare, indices: list[int], target: Callable | None = None, extra: tuple = ()):
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks of a running torch
        self.progress = context.Array("i", [indices[0], 0], lock=False)  # environment and step under way
        self.connection, theirs = context.Pipe()
        arguments = (theirs, partial(make_share, indices=indices, progress=self.progress), os.getpid())
        self.process = context.Process(target=target or serve, args=(*arguments, *extra), daemon=True)
        try:
            with hide_main() if is_of_gymnasium(make_share.keywords["make_env"]) else nullcontext():
                self.process.start()
        except (AttributeError, TypeError, ValueError) as error:
            raise EnvError(
                f"--backend process (or shared) needs an environment that can be sent to another process: {error}"
            )
        theirs.close()
        # At its end Python would wait for a worker that nobody closed, and that leaves signals to its parent, for ever.
        util.Finalize(self, self.process.kill, exitpriority=100)

    def send(self, message: tuple) -> None:
        try:
            self.connection.send(message)
        except OSError:
            pass  # the worker is gone: receive says so, with its exit code

    def receive(self, timeout: float | None) -> Any:
        environment, step = self.progress
        try:
            if not self._has_answered(timeout):
                environment, step = self.progress
                raise EnvError(f"environment {environment} did not answer within {timeout:g} s (its step {step})")
            kind, answer = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(SECONDS_TO_CLOSE)
            environment, step = self.progress
            code = self.process.exitcode
            raise EnvError(f"environment {environment} ended its worker process with code {code} (its step {step})")
        if kind == "refusal":
            raise EnvError(answer)
        return answer

    def _has_answered(self, timeout: float | None) -> bool:
        """In ticks: the time in which this process and its workers are stopped is not the environment's."""
        if timeout is None:
            return self.connection.poll(None)
        ticks = math.ceil(timeout / tick_of(timeout))
        return any(self.connection.poll(tick_of(timeout)) for _ in range(ticks))

    def close(self) -> None:
        """Ask the worker to exit; kill it after a timeout."""
        self.send(("close", None))
        self.process.join(SECONDS_TO_CLOSE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


@contextmanager
def hide_main() -> Iterator[None]:
    """A process that is started now does not run the user's script again, which may not be written for that."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def serve(connection: Connection, make_share: Callable[[], SyncVecEnv], parent: int) -> None:
    """A worker's life: answers until it is told to close or its parent is gone."""
    with worker_context(connection, parent), closing(make_share()) as envs:
        while (message := connection.recv())[0] != "close":
            connection.send(("answer", handle_request(envs, *message)))


@contextmanager
def worker_context(connection: Connection, parent: int) -> Iterator[None]:
    """A process that ends with its parent, leaves signals to it, and tells it what is wrong."""
    set_parent_death_signal(parent, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they reach the whole group, and are the parent's to handle
    try:
        yield
    except SpoError as refusal:
        # With the place in the user's code: a traceback cannot be sent.
        connection.send(("refusal", f"{refusal}{place_of(refusal.__cause__)}"))
    except (EOFError, OSError):
        pass


def handle_request(envs: SyncVecEnv, request: str, value: Any) -> tuple:
    if request == "spaces":
        return envs.observation_space, envs.action_space, envs.layout
    answers = {
        "reset": envs.reset,
        "step": lambda: envs.step(value),
        "state": envs.state,
        "restore": lambda: envs.restore(value),
        "observation": lambda: envs.observation,
    }
    return answers[request](), envs.action_mask


def set_parent_death_signal(parent: int, how: signal.Signals) -> None:
    """Ask the kernel to signal this process when its parent ends, so that a killed one leaves nothing behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, how)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit(0)  # the parent was gone before the request


def join_masks(masks: list[np.ndarray | None]) -> np.ndarray | None:
    known = [mask for mask in masks if mask is not None]
    if known and len(known) < len(masks):
        raise EnvError(f"some environments gave an action mask at their start and others did not; {MASKED_ALWAYS}")
    return np.concatenate(known) if known else None


def merge_steps(steps: list[Step]) -> Step:
    """The shares of all workers as one step."""
    observation, reward, terminated, truncated = (np.concatenate(parts) for parts in list(zip(*steps))[:4])
    finals = [step.observation if step.final_observation is None else step.final_observation for step in steps]
    has_final = any(step.final_observation is not None for step in steps)
    episodes = [episode for step in steps for episode in step.episodes]
    final, restarts = np.concatenate(finals) if has_final else None, sum(step.restarts for step in steps)
    return Step(observation, reward, terminated, truncated, final, episodes, restarts)
