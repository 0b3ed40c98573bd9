"""Gymnasium environments in this process and in helpers that share memory with it: more cores step, to the same bits.

A step of MuJoCo takes some 50 µs, which a pipe's messages would double. So actions and outcomes lie in shared memory,
and one byte through a socket says that they are there. Both sides spin on a counter in shared memory for a millisecond
before they block on the socket: waking up takes as long as stepping, and polling the socket slows all that follows.
"""

import copy
import math
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from itertools import islice, repeat
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from spo.envs import Episode, Step, VecEnv, sync
from spo.envs.make import EnvMaker, check_env
from spo.envs.subproc import (
    MOST_WORKERS,
    SECONDS_TO_START,
    SubprocVecEnv,
    Worker,
    handle_request,
    join_masks,
    merge_steps,
    split_envs,
    worker_context,
)
from spo.envs.sync import MakeShare, SyncVecEnv, share_maker

if TYPE_CHECKING:
    from spo.config.config import Config

SPIN_SECONDS = 0.001
STEP, REQUEST, PLAIN, ENDED, MESSAGE = b"s", b"q", b"p", b"e", b"m"
"""What a byte says: step with these actions; read a request; the outcome is there, without or with the ends of
episodes; or there is a message to read."""
ALIGNED = 64

Size = tuple[tuple[int, ...], np.dtype]
"""An array's shape and type."""


class SharedMemoryVecEnv(SubprocVecEnv):
    """The first share of N environments is stepped here, each other one by a helper at the same time."""

    workers: list["SharedMemoryWorker"]
    has_timeout = False

    def __init__(self, own: SyncVecEnv, helpers: list["SharedMemoryWorker"]):
        self.own, self.workers, self.timeout = own, helpers, 0.0  # nobody here waits: a watchdog does
        self.num_envs = own.num_envs + sum(helper.count for helper in helpers)
        self.observation_space, self.action_space, self.layout = own.observation_space, own.action_space, own.layout
        self.busy: SyncVecEnv | SharedMemoryWorker = own

    @property
    def progress(self) -> tuple[int, int]:
        env, step = self.busy.progress
        return env, step

    def await_helpers(self) -> None:
        """Until all have made their environments: starting takes longer than an environment may take to answer."""
        for helper in self.workers:
            helper.send(("spaces", None))
        for helper in self.workers:
            helper.receive(SECONDS_TO_START)

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        first = self.own.num_envs
        for helper in self.workers:
            helper.begin(action[first : first + helper.count])
            first += helper.count
        self.busy = self.own
        answers = [(self.own.step(action[: self.own.num_envs]), self.own.action_mask)]
        for helper in self.workers:
            self.busy = helper
            answers.append(helper.end())
        if self.action_mask is not None:
            self.action_mask = join_masks([mask for _, mask in answers])
        return merge_steps([step for step, _ in answers])

    def close(self) -> None:
        super().close()
        self.own.close()

    def _ask(self, request: str, timeout: float | None, values: Iterable[Any] = repeat(None)) -> list:
        """Let the helpers begin, answer for the own share meanwhile, and then wait for theirs."""
        own, *others = islice(values, 1 + len(self.workers))
        for helper, value in zip(self.workers, others):
            helper.send((request, value))
        return [handle_request(self.own, request, own), *(helper.receive(None) for helper in self.workers)]


def make_envs(config: "Config", maker: EnvMaker, threads: int) -> VecEnv:
    """Make the backend `shared`; with one thread or environment, or of a whole vector, there is nothing to share."""
    first, processes = maker.make_wrapped(), min(threads, config.envs, MOST_WORKERS)
    if processes < 2 or isinstance(first, gym.vector.VectorEnv):
        return sync.make_envs(config, maker, threads, first)
    return start_shared_envs(share_maker(config, maker), config.envs, processes, check_env(first))


def start_shared_envs(
    make_share: MakeShare, count: int, processes: int, first: gym.Env | None = None
) -> SharedMemoryVecEnv:
    """Start the helpers with their shares; `first` is an environment of this process that is made already."""
    own, *others = split_envs(count, processes)
    mine = make_share(indices=own, first=first)
    space = copy.deepcopy(mine.observation_space)  # whose generator is not the environment's
    seen = np.asarray(mine.layout.pack(space.sample()))
    sizes = {"observation": (seen.shape, seen.dtype), "action": _action(mine)}
    envs = SharedMemoryVecEnv(mine, [SharedMemoryWorker(make_share, share, sizes) for share in others])
    try:
        envs.await_helpers()
    except BaseException:
        envs.close()
        raise
    return envs


def _action(envs: SyncVecEnv) -> Size:
    """As the policy gives it to an environment: of another type, the same number can come to another reward."""
    from spo.models.choose_distribution import distribution_for

    distribution = distribution_for(envs.action_space)
    action = distribution.to_env(np.zeros((1, *distribution.action_shape), distribution.action_dtype))
    return action.shape[1:], action.dtype


class SharedArrays:
    """Shared memory: the actions that a helper is given, and the outcome of their step."""

    action: np.ndarray
    observation: np.ndarray
    final_observation: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episode: np.ndarray
    sent: np.ndarray

    def __init__(self, memory: Any, sizes: dict[str, Size]):
        offset = 0
        for name, (shape, dtype) in sizes.items():
            setattr(self, name, np.frombuffer(memory, dtype, math.prod(shape), offset).reshape(shape))
            offset += _aligned_size(shape, dtype)


def _aligned_size(shape: tuple[int, ...], dtype: np.dtype) -> int:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return -(-size // ALIGNED) * ALIGNED


class Doorbell:
    """One end of a socket for single bytes, which `sent` and `received`, in shared memory, count for either side."""

    def __init__(self, end: socket.socket, sent: np.ndarray, received: np.ndarray):
        self.end, self.descriptor = end, end.fileno()
        self.sent, self.received, self.count = sent.data, received.data, 0
        end.setblocking(True)

    def notify(self, byte: bytes) -> None:
        try:
            os.write(self.descriptor, byte)
        except OSError:
            pass  # nobody is there any more, which whoever waits will notice
        self.sent[0] += 1  # after the byte, which is then there to be read

    def wait(self) -> bytes:
        """The next byte; nothing if the other side is gone."""
        deadline = time.perf_counter() + SPIN_SECONDS
        while self.received[0] == self.count and time.perf_counter() < deadline:
            pass
        self.count += 1
        try:
            return os.read(self.descriptor, 1)
        except OSError:
            return b""


class SharedMemoryWorker(Worker):
    """A worker that shares memory with this process."""

    def __init__(self, make_share: MakeShare, indices: list[int], sizes: dict[str, Size]):
        self.count = len(indices)
        number, flag = np.dtype(float), np.dtype(bool)
        ends = {"final_observation": sizes["observation"], "episode": ((3,), number)}
        sizes = sizes | ends | {"reward": ((), number), "terminated": ((), flag), "truncated": ((), flag)}
        sizes = {name: ((self.count, *shape), dtype) for name, (shape, dtype) in sizes.items()}
        sizes["sent"] = ((2, ALIGNED // 8), np.dtype(np.int64))  # here and there, each in a cache line of its own
        context = multiprocessing.get_context("spawn")
        memory = context.RawArray("b", sum(_aligned_size(*array) for array in sizes.values()))
        here, there = socket.socketpair()
        self.arrays = SharedArrays(memory, sizes)
        self.doorbell = Doorbell(here, *self.arrays.sent)
        super().__init__(make_share, indices, target=serve, extra=(there, memory, sizes))
        there.close()

    def send(self, message: tuple) -> None:
        self.doorbell.notify(REQUEST)
        super().send(message)

    def begin(self, action: np.ndarray) -> None:
        self.arrays.action[...] = action
        self.doorbell.notify(STEP)

    def end(self) -> tuple[Step, np.ndarray | None]:
        kind = self.doorbell.wait()
        if kind not in (PLAIN, ENDED):
            return self.receive(None)
        arrays = self.arrays
        final, episodes = (arrays.final_observation, self._episodes()) if kind == ENDED else (None, [])
        return Step(arrays.observation, arrays.reward, arrays.terminated, arrays.truncated, final, episodes), None

    def _episodes(self) -> list[Episode]:
        rows = self.arrays.episode.tolist()
        return [Episode(int(env), total_reward, int(length)) for env, total_reward, length in rows if length]

    def close(self) -> None:
        super().close()
        self.doorbell.end.close()


def serve(
    connection: Connection,
    make_share: Callable[[], SyncVecEnv],
    parent: int,
    end: socket.socket,
    memory: Any,
    sizes: dict[str, Size],
) -> None:
    """A helper's life: steps and answers until it is told to close or its parent is gone."""
    arrays = SharedArrays(memory, sizes)
    doorbell = Doorbell(end, *reversed(arrays.sent))
    with worker_context(connection, parent), closing(make_share()) as envs:
        while kind := doorbell.wait():
            message = ("step", arrays.action.copy()) if kind == STEP else connection.recv()
            if message[0] == "close":
                break
            _reply(connection, doorbell, arrays, kind, handle_request(envs, *message))


def _reply(connection: Connection, doorbell: Doorbell, arrays: SharedArrays, kind: bytes, answered: tuple) -> None:
    """A step goes through memory; all else, such as numbers that are not of their space's type, as a message."""
    step, mask = answered[:2]
    if kind == STEP and mask is None and not step.restarts and step.observation.dtype == arrays.observation.dtype:
        arrays.observation[...], arrays.reward[...] = step.observation, step.reward
        arrays.terminated[...], arrays.truncated[...] = step.terminated, step.truncated
        if step.final_observation is not None:
            _write_ends(arrays, step)
        doorbell.notify(PLAIN if step.final_observation is None else ENDED)
        return
    if kind == STEP:
        doorbell.notify(MESSAGE)
    connection.send(("answer", answered))


def _write_ends(arrays: SharedArrays, step: Step) -> None:
    arrays.final_observation[...] = step.final_observation
    arrays.episode[...] = 0  # no episode has no length
    for row, episode in zip(arrays.episode, step.episodes):
        row[...] = episode
