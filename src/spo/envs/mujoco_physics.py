"""MuJoCo's simulations of several environments, advanced by several threads and read as arrays with a row for each.

MuJoCo gives Python's lock back while it simulates, so threads are enough to use more cores. Which thread advances which
simulation changes no bit of it.
"""

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import gymnasium as gym
import numpy as np


class Simulations(Protocol):
    """`simulations["qpos"]` is that array of all of them. It may change with the next step."""

    threads: int

    def __getitem__(self, name: str) -> np.ndarray: ...

    def advance(self, action: np.ndarray) -> None:
        """One step of each."""

    def sync_from_env(self, index: int) -> None:
        """That environment's own simulation has been put elsewhere: go on from there."""

    def close(self) -> None: ...


def make_simulations(
    envs: Sequence[gym.Env], threads: int, needs_forces: bool, outputs: tuple[str, ...] | None
) -> Simulations:
    """MuJoCo's own batch of simulations where there is one, and where it knows all that a task looks at."""
    stop_clock()
    threads = min(threads, len(envs))
    try:
        from mujoco.batch import Batch
    except ImportError:  # before MuJoCo 4
        return ThreadedSimulations(envs, threads, needs_forces)
    if outputs is None:
        return ThreadedSimulations(envs, threads, needs_forces)
    return NativeBatch(Batch, envs, threads, outputs)


def stop_clock() -> None:
    """No more timing of every part of every step, a tenth of HalfCheetah's: MuJoCo's C library itself does not."""
    import mujoco

    with contextlib.suppress(StopIteration, OSError, ValueError):  # another kind of library: it goes on timing
        library = next(Path(mujoco.__file__).parent.glob("libmujoco.*"))
        ctypes.c_void_p.in_dll(ctypes.CDLL(str(library)), "mjcb_time").value = None


class NativeBatch:
    """MuJoCo's batch: threads of its own, which take a fraction of the time that waking one of Python's takes."""

    def __init__(self, batch: Callable, envs: Sequence[gym.Env], threads: int, outputs: tuple[str, ...]):
        import mujoco

        self.envs, self.threads, self.frames = envs, threads, envs[0].frame_skip
        self.batch = batch(envs[0].model, len(envs), threads)
        # What is not of the state is copied after each step that comes later than this, and not at a reset.
        self.bound = {name: self.batch.bind(name) for name in ("ctrl", *outputs)}
        self.everything, self.get_state = int(mujoco.mjtState.mjSTATE_INTEGRATION), mujoco.mj_getState

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.bound:
            self.bound[name] = self.batch.bind(name)
        return self.bound[name]

    def advance(self, action: np.ndarray) -> None:
        self.bound["ctrl"][:] = action
        self.batch.step(nstep=self.frames)

    def sync_from_env(self, index: int) -> None:
        env = self.envs[index]
        self.get_state(env.model, env.data, self.batch.state[index], self.everything)

    def close(self) -> None:
        self.batch, self.bound = None, {}  # which ends its threads


class ThreadedSimulations:
    """One after the other, with helping threads if there are more: whoever is free takes the next one."""

    def __init__(self, envs: Sequence[gym.Env], threads: int, needs_forces: bool):
        import mujoco

        self.parts = [(env.model, env.data, env.data.ctrl) for env in envs]
        self.step, self.add_forces = mujoco.mj_step, mujoco.mj_rnePostConstraint
        self.frames, self.needs_forces, self.threads = envs[0].frame_skip, needs_forces, threads
        self.views: dict[str, list[np.ndarray]] = {}  # into MuJoCo's own memory
        self.helpers = [StepThread(self._advance) for _ in range(threads - 1)]

    def __getitem__(self, name: str) -> np.ndarray:
        views = self.views.get(name)
        if views is None:
            views = self.views[name] = [getattr(data, name) for _, data, _ in self.parts]
        return np.concatenate(views).reshape(len(views), *views[0].shape)

    def advance(self, action: np.ndarray) -> None:
        untaken = iter(list(zip(self.parts, action)))  # of a list, from which threads may take at the same time
        for helper in self.helpers:
            helper.begin(untaken)
        self._advance(untaken)
        for helper in self.helpers:
            helper.end()

    def _advance(self, untaken: Iterator[tuple]) -> None:
        for (model, data, control), row in untaken:
            control[:] = row
            self.step(model, data, self.frames)
            if self.needs_forces:  # those on the bodies, which no later step depends on
                self.add_forces(model, data)

    def sync_from_env(self, index: int) -> None:
        """Nothing to do: these are the environment's own."""

    def close(self) -> None:
        for helper in self.helpers:
            helper.close()


class StepThread:
    """A thread that does a piece of work whenever it is told to."""

    def __init__(self, work: Callable[[Iterator], None]):
        self.work = work
        self.job: Iterator | None = None  # which ends the thread
        self.error: Exception | None = None
        self.has_begun, self.has_ended = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._live, daemon=True).start()

    def begin(self, job: Iterator | None) -> None:
        self.job = job
        self.has_begun.release()

    def end(self) -> None:
        self.has_ended.acquire()
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.begin(None)

    def _live(self) -> None:
        while True:
            self.has_begun.acquire()
            if self.job is None:
                return
            try:
                self.work(self.job)
            except Exception as error:
                self.error = error
            self.has_ended.release()
