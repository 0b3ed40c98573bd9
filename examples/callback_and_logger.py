"""A callback that ends a run early, and a logger that writes a table of its own.

    python examples/callback_and_logger.py

The callback is called after every iteration with the trainer and the row of metrics that docs/metrics.md defines;
returning False ends the run, which is saved as any other. A logger gets the same rows, and the episodes that ended.
"""

import csv
from pathlib import Path

import spo
from spo.algorithms.metrics import Row
from spo.trainer import Trainer


def stop_when_it_moves_too_far(trainer: Trainer, row: Row) -> bool:
    print(f"iteration {row['iteration']}: ratio deviation {row['ratio_deviation']:.3f}, KL {row['kl']:.4f}")
    return row["ratio_deviation"] < 0.5


class CsvLogger:
    """The longest episode of every iteration, as a table for a spreadsheet."""

    def __init__(self, path: Path):
        self.file = path.open("w", newline="")
        self.table = csv.writer(self.file)

    def write(self, row: Row, episodes: list[Row]) -> None:
        self.table.writerow([row["env_steps"], max((episode["length"] for episode in episodes), default="")])

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        """Begin the table again: a run that resumes goes back to its newest checkpoint."""
        self.file.seek(0)
        self.file.truncate()
        for row in rows:
            self.write(row, [])

    def close(self) -> None:
        self.file.close()


def main(steps: str = "20k", out: str = "", table: str = "lengths.csv") -> spo.Run:
    watch = {"callback": stop_when_it_moves_too_far, "loggers": [CsvLogger(Path(table))]}
    return spo.train("CartPole-v1", preset="classic", steps=steps, quiet=True, out=out or None, **watch)


if __name__ == "__main__":
    print(main().directory)
