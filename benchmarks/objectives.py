"""Steps per second of training with every objective, interleaved in one run.

    python benchmarks/objectives.py [ENV] [--rounds 4]

One training per objective stays alive; the rounds go through them in turn, a few iterations each, and the best
round of each counts. Prints steps/s and the ratio to SPO.
"""

import argparse

from lib.measure import best_speeds, make_trainer
from spo.errors import SpoError
from spo.objectives import OBJECTIVES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env", nargs="?", default="HalfCheetah-v4")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    trainings = {}
    for name in OBJECTIVES:
        try:
            trainings[name] = make_trainer(arguments.env, objective=name)
        except SpoError as refusal:  # not every objective goes with every action space
            print(refusal)
    speeds = best_speeds(trainings, arguments.rounds, iterations=5)
    print(f"\n{arguments.env}, best of {arguments.rounds} rounds")
    for name, value in speeds.items():
        print(f"  {name:16} {value:8,.0f} steps/s   {value / speeds['spo']:5.2f} of SPO's")


if __name__ == "__main__":
    main()
