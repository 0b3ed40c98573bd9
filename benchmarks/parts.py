"""Where an iteration's time goes: stepping, acting, normalising, advantages and the update, each measured alone.

    python benchmarks/parts.py [ENV ...] [--hidden 64 64]

With one thread. Prints milliseconds per iteration (best of ten rounds through all parts, because machines are noisy)
and each share. Stepping alone means the same environments with the untrained policy's actions and nothing else.
"""

from spo.runtime import library_env

library_env.set_library_env()  # as the command line does

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

from spo.algorithms.batch import make_batch
from spo.config.sources import make_config
from spo.envs.make import EnvMaker
from spo.rollout import gae
from spo.trainer import Trainer

ROUNDS = 10


def best(parts: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Milliseconds of each part's fastest call, in rounds through all of them, so that a slow minute hits all alike."""
    durations = {name: [] for name in parts}
    for _ in range(ROUNDS):
        for name, part in parts.items():
            started = time.perf_counter()
            part()
            durations[name].append(time.perf_counter() - started)
    return {name: 1000 * min(values) for name, values in durations.items()}


def measure(env: str, hidden: tuple[int, ...]) -> dict[str, float]:
    config = make_config(env, steps=10**7, hidden=hidden, threads=1)
    training = Trainer(config, EnvMaker(env, {}))
    collector, horizon = training.collector, config.horizon
    rollout = collector.collect()
    masks = (rollout.terminated, rollout.done)

    def advantages():
        return gae(rollout.reward, rollout.value, rollout.next_value, *masks, config.gamma, config.lam)

    batch = make_batch(rollout, advantages(), training.distribution, "cpu")
    actions = [training.distribution.to_env(action.numpy()) for action in rollout.action]
    raw = np.random.default_rng(0).normal(size=(config.envs, *training.spec.layout.shape))
    never = np.zeros((horizon, config.envs), dtype=bool)

    def normalise():
        for _ in range(horizon):
            collector._normalize(raw)
        collector.reward_normalizer(np.zeros(never.shape), never, never)

    training.update.compile(training.example_batch())
    epochs = training.update.epochs
    steps = {"eager": epochs.stepper.__call__, "compiled": epochs.step}

    def update(path: str) -> None:
        epochs.step = steps[path]
        training.update(batch, 1e-4)

    parts = {
        "stepping alone": lambda: [training.envs.step(action) for action in actions],
        "acting": lambda: [collector.actor(collector.observation) for _ in range(horizon)],
        "normalising": normalise,
        "advantages": advantages,
        "collecting, all of it": collector.collect,
        "update, eager": lambda: update("eager"),
        "update, compiled": lambda: update("compiled"),
        "iteration, compiled": training.iterate,
    }
    return best(parts) | {"steps": config.batch_size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env", nargs="*", default=["HalfCheetah-v4", "Humanoid-v4"])
    parser.add_argument("--hidden", nargs="*", type=int, default=[64, 64])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for env in arguments.env:
        parts = measure(env, tuple(arguments.hidden))
        steps, whole = parts.pop("steps"), parts["iteration, compiled"]
        print(f"\n{env}, policy {'-'.join(map(str, arguments.hidden))}, {steps} steps per iteration")
        for name, milliseconds in parts.items():
            print(f"  {name:24} {milliseconds:8.1f} ms  {milliseconds / whole:6.1%} of an iteration")
        print(f"  {1000 * steps / whole:,.0f} steps/s, {parts['stepping alone'] / whole:.2f} of stepping alone")


if __name__ == "__main__":
    main()
