"""rsl_rl's learning rate that follows the KL, under PPO and SPO: rates and rewards on the small task of the tests.

    python benchmarks/following_kl.py [--seeds 5]

The class holds the rate under SPO; here it is let go, to show why. Prints the table of docs/integrations.md.
"""

import argparse
import statistics
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "integrations"))

from test_rsl_rl import make, name_of

AFTER = (1, 5, 10, 20, 40)
CASES = {
    "PPO, `adaptive`": ("PPO", {}),
    "SPO, `adaptive` (let go)": (name_of("spo"), {}),
    "PPO, `fixed`": ("PPO", {"schedule": "fixed"}),
    "SPO, `fixed`": (name_of("spo"), {"schedule": "fixed"}),
    "SPO, `fixed`, `clip_param` 0.4": (name_of("spo"), {"schedule": "fixed", "clip_param": 0.4}),
    "SPO_ADAPTIVE": (name_of("spo-adaptive"), {"schedule": "fixed"}),
}


def measure(class_name: str, algorithm: dict, seed: int) -> tuple[list[float], float]:
    """The rates after some iterations, and the reward of the mean action in the end."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = make(class_name, seed, **algorithm)
    runner.alg.schedule = algorithm.get("schedule", "adaptive")
    rates, done = [], 0
    for iterations in AFTER:
        runner.learn(iterations - done)
        rates.append(runner.alg.learning_rate)
        done = iterations
    act, rewards = runner.get_inference_policy(), []
    with torch.no_grad():
        for _ in range(runner.env.max_episode_length):
            rewards.append(float(runner.env.step(act(runner.env.get_observations()))[1].mean()))
    return rates, statistics.fmean(rewards)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(1, parser.parse_args().seeds + 1)
    torch.set_num_threads(1)
    print(f"| | rate after {', '.join(map(str, AFTER))} iterations (median) | reward after {AFTER[-1]}, each seed |")
    print("|---|---|---|")
    for title, (class_name, algorithm) in CASES.items():
        measured = [measure(class_name, algorithm, seed) for seed in seeds]
        rates = [f"{statistics.median(values):.1e}" for values in zip(*(rates for rates, _ in measured))]
        rewards = ", ".join(f"{reward:.3f}" for _, reward in measured)
        print(f"| {title} | {', '.join(rates)} | {rewards} |", flush=True)


if __name__ == "__main__":
    main()
