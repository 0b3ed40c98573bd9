"""What the benchmarks share: trainings that stay alive and are measured in turn, so that noise hits all alike."""

from spo.runtime import library_env

library_env.set_library_env()  # as the command line does

import time

import torch

from spo.config.sources import make_config
from spo.envs.make import EnvMaker
from spo.trainer import Trainer


def make_trainer(env: str, **settings) -> Trainer:
    """A warm training: its update path chosen, its first iteration made."""
    training = Trainer(make_config(env, steps=10**7, **settings), EnvMaker(env, {}))
    path, reason = training.choose_update_path()
    print(f"{settings}: update {path} ({reason})", flush=True)
    training.iterate()
    return training


def speed(training: Trainer, iterations: int) -> float:
    """Steps per second over a few iterations."""
    torch.set_num_threads(training.torch_threads)  # the trainings share a process
    started = time.perf_counter()
    for _ in range(iterations):
        training.iterate()
    return iterations * training.config.batch_size / (time.perf_counter() - started)


def best_speeds(trainings: dict[str, Trainer], rounds: int, iterations: int) -> dict[str, float]:
    """The best of the rounds for each, one round after the other through all of them."""
    speeds = {name: [] for name in trainings}
    for _ in range(rounds):
        for name, training in trainings.items():
            speeds[name].append(speed(training, iterations))
    return {name: max(values) for name, values in speeds.items()}
