"""Training on one task with every backend, interleaved in one run.

    python benchmarks/backends.py [ENV] [--threads 2] [--rounds 3]

One training per backend stays alive; the rounds go through them in turn. Prints steps per second (best of the rounds)
and the ratio to the in-process backend.
"""

import argparse
import time

import torch

from spo.envs.making import EnvMaker
from spo.presets import make_config
from spo.trainer import Training

ITERATIONS = 3
BACKENDS = ("gymnasium", "envpool", "process")


def prepared(env: str, backend: str, threads: int) -> Training:
    config = make_config(env, steps=10**7, backend=backend, threads=threads)
    training = Training(config, EnvMaker(env, {}))
    training.choose_update_path()
    training.iterate()
    return training


def speed(training: Training) -> float:
    torch.set_num_threads(training.threads)  # they share a process
    started = time.perf_counter()
    for _ in range(ITERATIONS):
        training.iterate()
    return ITERATIONS * training.config.batch_size / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env", nargs="?", default="Humanoid-v4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    # In-process stepping has one thread whatever torch has; one is also what it trains fastest with.
    threads = {"gymnasium": 1, "envpool": arguments.threads, "process": arguments.threads}
    trainings = {name: prepared(arguments.env, name, threads[name]) for name in BACKENDS}
    speeds = {name: [] for name in BACKENDS}
    for _ in range(arguments.rounds):
        for name, training in trainings.items():
            speeds[name].append(speed(training))
    print(f"{arguments.env}, best of {arguments.rounds} rounds")
    for name, values in speeds.items():
        ratio = max(values) / max(speeds["gymnasium"])
        print(f"  {name:10} {threads[name]} thread(s) {max(values):8,.0f} steps/s   {ratio:.2f} × in-process")
    for training in trainings.values():
        training.envs.close()


if __name__ == "__main__":
    main()
