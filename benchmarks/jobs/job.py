"""What every library is asked to do, and how it is timed. Needs torch and nothing else."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

WARM_UP = 2
"""Iterations before the clock starts: what compiles, does so in them."""
ONE_BY_ONE, TOGETHER = "one by one", "together"
"""How Gymnasium's environments are stepped: each by itself, as other libraries do, or by this project's own way."""
READY = "ready"
"""What a job that waits prints when it is warm; every line of its input starts the clock anew."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """PPO-Clip with separate tanh networks for policy and value, one Adam, normalised advantages. On the CPU."""

    env: str = "HalfCheetah-v4"
    hidden: tuple[int, ...] = (64, 64)
    critic_hidden: tuple[int, ...] = (64, 64)
    envs: int = 8
    horizon: int = 256
    epochs: int = 10
    minibatches: int = 4
    learning_rate: float = 3e-4
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5
    steps: int = 8192
    threads: int = 1  # of torch, of XLA, and of what steps the environments where that has any; this project: cores
    backend: str = "auto"  # what steps the environments; only this project has a choice
    waits: bool = False  # several at once start their clocks together

    @property
    def batch_size(self) -> int:
        return self.envs * self.horizon

    @property
    def minibatch_size(self) -> int:
        return self.batch_size // self.minibatches

    @property
    def iterations(self) -> int:
        return max(1, self.steps // self.batch_size)

    @property
    def gradient_steps(self) -> int:
        """Per iteration."""
        return self.epochs * self.minibatches

    @property
    def is_atari(self) -> bool:
        """Only games are named without a version."""
        return "-" not in self.env


class Ready(NamedTuple):
    """A library that is set up for the job."""

    train: Callable[[int], object]  # makes so many iterations
    backend: str = ONE_BY_ONE
    stepping_threads: int = 1
    before: Callable[[int], object] = lambda iterations: None  # what has to happen before the clock starts


def run(distribution: str, prepare: Callable[[Job], Ready]) -> None:
    """Does the job of the command line and prints one line of JSON; if it waits, one for every line that it reads."""
    job = Job(**json.loads(sys.argv[1]))
    torch.set_num_threads(job.threads)
    ready = prepare(job)
    ready.before(WARM_UP)
    with gradient_steps() as parameters:
        ready.train(WARM_UP)
    described = {
        "version": metadata.version(distribution),
        "backend": ready.backend,
        "stepping_threads": ready.stepping_threads,
        "gradient_steps": len(parameters) / WARM_UP or None,
        "parameters": max(parameters, default=None),
    }
    if job.waits:
        print(READY, flush=True)
    for _ in sys.stdin if job.waits else range(1):
        print("\n" + json.dumps({"steps_per_second": measured(job, ready)} | described), flush=True)


def measured(job: Job, ready: Ready) -> float:
    ready.before(job.iterations)
    started = time.perf_counter()
    ready.train(job.iterations)
    return job.iterations * job.batch_size / (time.perf_counter() - started)


@contextmanager
def gradient_steps() -> Iterator[list[int]]:
    """Lists how many parameters each step of a torch optimiser changes: evidence that all do the same work."""
    counted: list[int] = []
    handle = register_optimizer_step_post_hook(lambda optimizer, *_: counted.append(trained_parameters(optimizer)))
    yield counted
    handle.remove()


def trained_parameters(optimizer: torch.optim.Optimizer) -> int:
    groups = (group["params"] for group in optimizer.param_groups)
    return sum(parameter.numel() for group in groups for parameter in group if parameter.grad is not None)
