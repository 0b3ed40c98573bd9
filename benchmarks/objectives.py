"""Steps per second of training with every objective, interleaved in one run.

    python benchmarks/objectives.py [ENV] [--rounds 4]

One training per objective stays alive; the rounds go through them in turn, a few iterations each, and the best
round of each counts. Prints steps/s and the ratio to SPO.
"""

import argparse
import time

import torch

from spo.envs.making import EnvMaker
from spo.objectives import OBJECTIVES
from spo.presets import make_config
from spo.trainer import Training

ITERATIONS = 5


def prepared(env: str, objective: str) -> Training:
    config = make_config(env, steps=10**7, objective=objective)
    training = Training(config, EnvMaker(env, {}))
    path, reason = training.choose_update_path()
    print(f"{objective}: update {path} ({reason})", flush=True)
    training.iterate()
    return training


def speed(training: Training) -> float:
    started = time.perf_counter()
    for _ in range(ITERATIONS):
        training.iterate()
    return ITERATIONS * training.config.batch_size / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env", nargs="?", default="HalfCheetah-v4")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    trainings = {name: prepared(arguments.env, name) for name in OBJECTIVES}
    speeds = {name: [] for name in trainings}
    for _ in range(arguments.rounds):
        for name, training in trainings.items():
            speeds[name].append(speed(training))
    print(f"\n{arguments.env}, best of {arguments.rounds} rounds")
    for name, values in speeds.items():
        print(f"  {name:16} {max(values):8,.0f} steps/s   {max(values) / max(speeds['spo']):5.2f} of SPO's")


if __name__ == "__main__":
    main()
