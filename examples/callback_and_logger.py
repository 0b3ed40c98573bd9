"""A callback that watches a run and ends it early.

    python examples/callback_and_logger.py

It is called after every iteration with the trainer and the row of metrics that docs/metrics.md defines; returning False
ends the run, which is then saved as any other.
"""

import spo
from spo.algorithms.metrics import Row
from spo.trainer import Trainer


def stop_when_it_moves_too_far(trainer: Trainer, row: Row) -> bool:
    print(f"iteration {row['iteration']}: ratio deviation {row['ratio_deviation']:.3f}, KL {row['kl']:.4f}")
    return row["ratio_deviation"] < 0.5


def main(steps: str = "20k", out: str = "") -> spo.Run:
    callback = stop_when_it_moves_too_far
    return spo.train("CartPole-v1", preset="classic", steps=steps, quiet=True, callback=callback, out=out or None)


if __name__ == "__main__":
    print(main().directory)
