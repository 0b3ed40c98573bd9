"""A callback that watches a run and ends it early, and a logger that keeps numbers of its own.

    python examples/callback_and_logger.py

The callback is called after every iteration with the trainer and the row of metrics that docs/metrics.md defines; where
it returns False the run ends, and is saved as any other. A logger gets the same rows, and the episodes.
"""

import spo
from spo.algorithms.metrics import Row
from spo.trainer import Trainer


def stop_when_it_moves_too_far(trainer: Trainer, row: Row) -> bool:
    print(f"iteration {row['iteration']}: ratio deviation {row['ratio_deviation']:.3f}, KL {row['kl']:.4f}")
    return row["ratio_deviation"] < 0.5


class BestEpisode:
    """Remembers the best return so far, and says it when the run ends."""

    def __init__(self):
        self.best = float("-inf")

    def write(self, row: Row, episodes: list[Row]) -> None:
        self.best = max([self.best, *(episode["return"] for episode in episodes)])

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        """A resumed run goes on after these; what came later does not count."""
        self.best = max([float("-inf"), *(episode["return"] for episode in episodes)])

    def close(self) -> None:
        print(f"best episode: {self.best:.0f}")


def main(steps: str = "20k", out: str = "") -> spo.Run:
    watching = {"callback": stop_when_it_moves_too_far, "loggers": [BestEpisode()]}
    return spo.train("CartPole-v1", preset="classic", steps=steps, quiet=True, out=out or None, **watching)


if __name__ == "__main__":
    print(main().directory)
