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
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from spo.envs import Episode, Step, VecEnvBase
from spo.envs.make import MakeEnv
from spo.envs.subproc import SECONDS_TO_START, Worker, handle_request, join_masks, merge_steps, worker_context
from spo.envs.sync import SyncVecEnv

SPIN_SECONDS = 0.001
STEP, REQUEST, PLAIN, ENDED, MESSAGE = b"s", b"q", b"p", b"e", b"m"
"""What a byte says: step with these actions; read a request; the outcome is there, without or with the ends of
episodes; or there is a message to read."""
ALIGNED = 64

Size = tuple[tuple[int, ...], np.dtype]
"""An array's shape and type."""


class SharedMemoryVecEnv(VecEnvBase):
    """The first share of N environments is stepped here, each other one by a helper at the same time."""

    def __init__(self, own: SyncVecEnv, helpers: list["SharedMemoryWorker"]):
        self.own, self.helpers = own, helpers
        self.num_envs = own.num_envs + sum(helper.count for helper in helpers)
        self.observation_space, self.action_space, self.layout = own.observation_space, own.action_space, own.layout
        self.busy: SyncVecEnv | SharedMemoryWorker = own

    @property
    def progress(self) -> tuple[int, int]:
        """Environment and step under way, for the watchdog."""
        env, step = self.busy.progress
        return env, step

    def await_helpers(self) -> None:
        """Until all have made their environments: starting takes longer than an environment may take to answer."""
        for helper in self.helpers:
            helper.ask("spaces")
        for helper in self.helpers:
            helper.receive(SECONDS_TO_START)

    def reset(self) -> np.ndarray:
        for helper in self.helpers:
            helper.ask("reset")
        answers = [(self.own.reset(), self.own.action_mask), *(helper.receive(None) for helper in self.helpers)]
        self.action_mask = join_masks([mask for _, mask in answers])
        return np.concatenate([observation for observation, _ in answers])

    def step(self, action: np.ndarray) -> Step:
        self.steps += 1
        first = self.own.num_envs
        for helper in self.helpers:
            helper.begin(action[first : first + helper.count])
            first += helper.count
        self.busy = self.own
        answers = [(self.own.step(action[: self.own.num_envs]), self.own.action_mask)]
        for helper in self.helpers:
            self.busy = helper
            answers.append(helper.end())
        if self.action_mask is not None:
            self.action_mask = join_masks([mask for _, mask in answers])
        return merge_steps([step for step, _ in answers])

    def state(self) -> dict[str, object]:
        for helper in self.helpers:
            helper.ask("state")
        states = [self.own.state(), *(helper.receive(None)[0] for helper in self.helpers)]
        return {"steps": self.steps, "workers": {str(number): state for number, state in enumerate(states)}}

    def restore(self, state: dict) -> dict[int, str]:
        self.steps = state["steps"]
        for number, helper in enumerate(self.helpers, 1):
            helper.ask("restore", state["workers"][str(number)])
        answers = [(self.own.restore(state["workers"]["0"]), self.own.action_mask)]
        answers += [helper.receive(None) for helper in self.helpers]
        self.action_mask = join_masks([mask for _, mask in answers])
        return {index: why for failures, _ in answers for index, why in failures.items()}

    @property
    def observation(self) -> np.ndarray:  # type: ignore[override]  # the workers have theirs
        """The newest observations, before any normalisation."""
        for helper in self.helpers:
            helper.ask("observation")
        return np.concatenate([self.own.observation, *(helper.receive(None)[0] for helper in self.helpers)])

    def close(self) -> None:
        for helper in self.helpers:
            helper.close()
        self.own.close()


def start_shared_envs(
    make_env: MakeEnv,
    own: Callable[[list[int]], SyncVecEnv],
    count: int,
    processes: int,
    seed: int,
    encoder: str,
    replay_limit: int,
) -> SharedMemoryVecEnv:
    """Start the helpers with their shares; `own` makes this process's."""
    shares = [share.tolist() for share in np.array_split(np.arange(count), processes)]
    mine = own(shares[0])
    space = copy.deepcopy(mine.observation_space)  # whose generator is not the environment's
    seen = np.asarray(mine.layout.pack(space.sample()))
    sizes = {"observation": (seen.shape, seen.dtype), "action": _action(mine)}
    workers = [SharedMemoryWorker(make_env, share, sizes, seed, encoder, replay_limit) for share in shares[1:]]
    envs = SharedMemoryVecEnv(mine, workers)
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

    def __init__(
        self,
        make_env: MakeEnv,
        indices: list[int],
        sizes: dict[str, Size],
        seed: int,
        encoder: str,
        replay_limit: int,
    ):
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
        extra = (there, memory, sizes)
        super().__init__(make_env, indices, seed, encoder, replay_limit, target=serve, extra=extra)
        there.close()

    def ask(self, request: str, value: object = None) -> None:
        self.send((request, value))

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
    make_env: MakeEnv,
    indices: list[int],
    seed: int,
    encoder: str,
    progress: list[int],
    replay_limit: int,
    parent: int,
    end: socket.socket,
    memory: Any,
    sizes: dict[str, Size],
) -> None:
    """A helper's life: steps and answers until it is told to close or its parent is gone."""
    arrays = SharedArrays(memory, sizes)
    doorbell = Doorbell(end, *reversed(arrays.sent))
    with worker_context(connection, parent):
        envs = SyncVecEnv(make_env, indices, seed, encoder, progress, replay_limit=replay_limit)
        try:
            while kind := doorbell.wait():
                message = ("step", arrays.action.copy()) if kind == STEP else connection.recv()
                if message[0] == "close":
                    break
                _reply(connection, doorbell, arrays, kind, handle_request(envs, *message))
        finally:
            envs.close()


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
