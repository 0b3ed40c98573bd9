"""Whether the fast path learns what the plain one does: curves over seeds, and the losses of one batch.

    python benchmarks/equal_learning.py [TASK ...] [--seeds 3] [--steps 300k] [--out runs/equal-learning]

Plain: eager, in this process, one thread. Fast: compiled, and all else as the trainer chooses by itself. The runs of
both have the same seeds and begin alike; they part in the last bits of a float, and so each goes its own way later.
Prints the mean return of every fifth of the training and how far the paths are apart, in standard errors of their
difference. Runs that are finished are read, those that were stopped are resumed.
"""

from spo.runtime import library_env

library_env.set_library_env()  # as the command line does

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import spo
from spo.config.sources import make_config
from spo.envs.make import EnvMaker
from spo.runs.directory import RunDirectory
from spo.trainer import Trainer

PATHS = {"plain": {"compile": "off", "backend": "gymnasium", "threads": 1}, "fast": {"compile": "on"}}
PARTS = 5
LOSSES = ("policy_loss", "value_loss", "entropy")


@dataclass(frozen=True)
class Runs:
    """Where the runs lie, and how long they are."""

    out: Path
    steps: str
    seeds: int

    def curves(self, task: str, path: str) -> np.ndarray:
        """Mean return in each part of the training (seeds, PARTS)."""
        return np.array([self._curve(task, path, seed) for seed in range(1, self.seeds + 1)])

    def _curve(self, task: str, path: str, seed: int) -> np.ndarray:
        directory = self.out / task / path / str(seed)
        if (directory / "config.json").exists():
            spo.resume(directory, quiet=True)
        else:
            spo.train(task, steps=self.steps, seed=seed, out=str(directory), quiet=True, **PATHS[path])
        episodes = RunDirectory(directory).read_episodes()
        ends = np.array([episode["env_steps"] for episode in episodes])
        returns = np.array([episode["return"] for episode in episodes])
        part = np.minimum(ends * PARTS // ends.max(), PARTS - 1)
        print(f"{task} {path} seed {seed}: {returns[part == PARTS - 1].mean():.1f} at the end", flush=True)
        return np.array([returns[part == number].mean() for number in range(PARTS)])


def apart(plain: np.ndarray, fast: np.ndarray) -> np.ndarray:
    """Differences of the means in standard errors (PARTS,)."""
    variance = (plain.var(axis=0, ddof=1) + fast.var(axis=0, ddof=1)) / len(plain)
    return (fast.mean(axis=0) - plain.mean(axis=0)) / np.sqrt(variance)


def difference_of_losses(task: str) -> float:
    """The largest difference of any loss over one iteration from equal parameters and environments."""
    trainings = [Trainer(make_config(task, steps=10**6, **path), EnvMaker(task, {})) for path in PATHS.values()]
    rows = []
    for training in trainings:
        training.choose_update_path()
        rows.append(training.iterate()[0])
        training.envs.close()
    return max(abs(rows[0][name] - rows[1][name]) for name in LOSSES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", default=["HalfCheetah-v4", "Hopper-v4"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", default="300k")
    parser.add_argument("--out", type=Path, default=Path("runs/equal-learning"))
    arguments = parser.parse_args()
    runs = Runs(arguments.out, arguments.steps, arguments.seeds)
    for task in arguments.tasks:
        plain, fast = (runs.curves(task, path) for path in PATHS)
        print(f"\n{task}, {runs.seeds} seeds, {runs.steps} steps: mean return in each fifth of the training")
        for name, values in (("plain", plain.mean(axis=0)), ("fast", fast.mean(axis=0)), ("apart", apart(plain, fast))):
            print(f"  {name:6}" + "".join(f"{value:10.1f}" for value in values))
        print(f"  losses of the first iteration differ by {difference_of_losses(task):.1e} at most\n", flush=True)


if __name__ == "__main__":
    main()
