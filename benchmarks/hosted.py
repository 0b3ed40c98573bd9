"""PPO and SPO inside Stable-Baselines3, with the paper's MuJoCo settings: returns and ratio deviation.

    python benchmarks/hosted.py [--steps 300000] [--seeds 3] [--out results/sb3/runs.json]
    python benchmarks/hosted.py --table

One run after another in this process, the first seed of everything first. Each finished run is written at once, and a
second call goes on with those that are missing. "ppo-clip" is the host's own PPO to the bit (tests/integrations), here
with the ratios' statistics, which the host does not keep.
"""

from spo.runtime import library_env

library_env.set_library_env()

import argparse
import itertools
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import gymnasium as gym
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from spo.integrations.sb3 import SPO

TASKS = ("HalfCheetah-v4", "Hopper-v4")
OBJECTIVES = ("ppo-clip", "spo")
LAYERS = {3: (64, 64), 7: (256, 256, 128, 128, 64, 64)}
"""As the paper counts them; the critic stays (64, 64)."""
ENVS, HORIZON, MINIBATCH, EPOCHS, LEARNING_RATE = 8, 256, 512, 10, 3e-4
LAST = 0.1
"""The share of the training whose episodes make the return of a run."""


@dataclass(frozen=True)
class Run:
    task: str
    layers: int
    objective: str
    seed: int
    steps: int

    @property
    def name(self) -> str:
        return f"{self.task}, {self.layers} layers, {self.objective}, seed {self.seed}, {self.steps} steps"


class Record(BaseCallback):
    """Episodes with the step at which they ended, and the ratios' statistics of every iteration."""

    def __init__(self):
        super().__init__()
        self.episodes: list[tuple[int, float]] = []
        self.deviations: list[dict[str, float]] = []

    def _on_step(self) -> bool:
        ended = [info["episode"]["r"] for info in self.locals["infos"] if "episode" in info]
        self.episodes += [(self.num_timesteps, float(value)) for value in ended]
        return True

    def _on_rollout_start(self) -> None:
        values = self.logger.name_to_value
        if "train/ratio_deviation" in values:
            names = ("ratio_deviation", "ratio_deviation_max", "ratio_deviation_sample_max")
            self.deviations.append({name: float(values[f"train/{name}"]) for name in names})

    _on_training_end = _on_rollout_start


def train(run: Run) -> dict[str, object]:
    envs = DummyVecEnv([lambda: Monitor(gym.make(run.task, disable_env_checker=True))] * ENVS)
    record, started = Record(), time.perf_counter()
    model = SPO(
        "MlpPolicy",
        VecNormalize(envs, gamma=0.99),
        objective=run.objective,
        n_steps=HORIZON,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        learning_rate=lambda remaining: LEARNING_RATE * remaining,
        clip_range=0.2,
        seed=run.seed,
        device="cpu",
        policy_kwargs={"net_arch": {"pi": LAYERS[run.layers], "vf": (64, 64)}, "activation_fn": torch.nn.Tanh},
    )
    model.learn(run.steps, callback=record, log_interval=10**9)
    return asdict(run) | summarize(record, run.steps) | {"seconds": round(time.perf_counter() - started)}


def summarize(record: Record, steps: int) -> dict[str, float]:
    late = [value for step, value in record.episodes if step > (1 - LAST) * steps]
    means = [row["ratio_deviation"] for row in record.deviations]
    return {
        "return": statistics.fmean(late) if late else float("nan"),
        "episodes": len(late),
        "ratio_deviation": statistics.fmean(means),
        "ratio_deviation_max": max(row["ratio_deviation_max"] for row in record.deviations),
        "ratio_deviation_sample_max": max(row["ratio_deviation_sample_max"] for row in record.deviations),
    }


def read(path: Path) -> dict[str, dict]:
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, results: dict[str, dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_suffix(".part")
    hidden.write_text(json.dumps(results, indent=1) + "\n")
    hidden.replace(path)


def table(results: dict[str, dict]) -> str:
    """A row for each task, depth and objective, with the seeds that are finished."""
    rows = ["| task | layers | objective | return of each seed | mean | mean abs(r − 1) | largest of a minibatch |"]
    rows.append("|---|---|---|---|---|---|---|")
    for task, layers, objective in itertools.product(TASKS, LAYERS, OBJECTIVES):
        key = (task, layers, objective)
        runs = [one for one in results.values() if (one["task"], one["layers"], one["objective"]) == key]
        if runs:
            returns = [one["return"] for one in runs]
            deviation = statistics.fmean(one["ratio_deviation"] for one in runs)
            largest = max(one["ratio_deviation_max"] for one in runs)
            each = ", ".join(f"{value:.0f}" for value in returns)
            numbers = f"{statistics.fmean(returns):.0f} | {deviation:.3f} | {largest:.3f}"
            rows.append(f"| {task} | {layers} | {objective} | {each} | {numbers} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/sb3/runs.json"))
    parser.add_argument("--table", action="store_true", help="print the table of what is finished, and train nothing")
    arguments = parser.parse_args()
    results = read(arguments.out)
    if arguments.table:
        print(table(results))
        return
    torch.set_num_threads(1)
    everything = itertools.product(range(1, arguments.seeds + 1), TASKS, LAYERS, OBJECTIVES)
    for seed, task, layers, objective in everything:
        run = Run(task, layers, objective, seed, arguments.steps)
        if run.name not in results:
            results[run.name] = train(run)
            write(arguments.out, results)
            print(f"{run.name}: {results[run.name]}", flush=True)


if __name__ == "__main__":
    main()
