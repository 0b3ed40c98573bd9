"""Training on one task with the backends that are made for speed, interleaved in one run.

    python benchmarks/backends.py [ENV] [--threads 2] [--rounds 3]

One training per backend stays alive; the rounds go through them in turn. Prints steps per second (best of the rounds)
and the ratio to the in-process backend.
"""

import argparse

from lib.measure import best_speeds, make_trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env", nargs="?", default="Humanoid-v4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    names = ("gymnasium", "shared", "envpool")
    trainings = {name: make_trainer(arguments.env, backend=name, threads=arguments.threads) for name in names}
    speeds = best_speeds(trainings, arguments.rounds, iterations=3)
    print(f"\n{arguments.env}, best of {arguments.rounds} rounds")
    for name, value in speeds.items():
        ratio = value / speeds["gymnasium"]
        print(f"  {name:10} {arguments.threads} thread(s) {value:8,.0f} steps/s   {ratio:.2f} × in-process")
    for training in trainings.values():
        training.envs.close()


if __name__ == "__main__":
    main()
