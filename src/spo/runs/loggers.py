"""Where the numbers of a run go: JSONL files, the console, TensorBoard. Each metric is defined in docs/metrics.md."""

import json
import sys
import time
from collections import deque
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from spo.algorithms.metrics import Row
from spo.errors import SpoError
from spo.runs.directory import RunDirectory
from spo.runtime.formatting import clock


class Logger(Protocol):
    """Takes one metrics row and the episodes that ended in its iteration."""

    def write(self, row: Row, episodes: list[Row]) -> None: ...

    def close(self) -> None: ...


class JsonlLogger:
    """metrics.jsonl and episodes.jsonl, flushed after every iteration."""

    def __init__(self, run: RunDirectory):
        self.metrics, self.episodes = run.metrics.open("a"), run.episodes.open("a")

    def write(self, row: Row, episodes: list[Row]) -> None:
        self.episodes.writelines(_line(episode) for episode in episodes)
        self.episodes.flush()
        self.metrics.write(_line(row))
        self.metrics.flush()

    def close(self) -> None:
        self.metrics.close()
        self.episodes.close()


def _line(row: Row) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


class TensorBoardLogger:
    """The tags that people know from CleanRL, with its meaning of each, and the paper's own numbers beside them."""

    LOSSES = {
        "policy_loss": "losses/policy_loss",
        "value_loss": "losses/value_loss",
        "entropy": "losses/entropy",
        "explained_variance": "losses/explained_variance",
        "kl": "losses/kl",
        "grad_norm": "losses/grad_norm",
        "clip_fraction": "losses/clipfrac",
        "zero_gradient_fraction": "losses/zero_gradient_fraction",
        "learning_rate": "charts/learning_rate",
        "steps_per_second": "charts/SPS",
        "ratio_deviation": "charts/ratio_deviation",
        "ratio_deviation_max": "charts/ratio_deviation_max",
    }
    FED_BACK = {"epsilon": "charts/epsilon", "beta": "charts/beta"}
    """Only in rows of objectives that adapt them."""

    def __init__(self, run: RunDirectory):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise SpoError("--tensorboard needs: pip install 'simple-policy-optimization[tensorboard]'")
        self.writer = SummaryWriter(run.tensorboard)
        self.started = run.config.stat().st_mtime

    def write(self, row: Row, episodes: list[Row]) -> None:
        fed_back = {name: tag for name, tag in self.FED_BACK.items() if name in row}
        for name, tag in (self.LOSSES | fed_back).items():
            self.writer.add_scalar(tag, row[name], row["env_steps"], walltime=self.started + row["wall_time"])
        self.write_episodes(episodes)

    def write_episodes(self, episodes: list[Row]) -> None:
        for episode in episodes:
            self.writer.add_scalar("charts/episodic_return", episode["return"], episode["env_steps"])
            self.writer.add_scalar("charts/episodic_length", episode["length"], episode["env_steps"])

    def close(self) -> None:
        self.writer.close()


class ProgressLogger:
    """A live line on a terminal, a plain line now and then elsewhere."""

    SECONDS_BETWEEN_LINES = 10.0

    def __init__(self, total_steps: int):
        self.total_steps = total_steps
        self.returns = deque(maxlen=20)
        self.live = Live(console=Console(stderr=True), auto_refresh=False) if sys.stderr.isatty() else None
        self.last_line = time.monotonic()
        if self.live:
            self.live.start()

    def write(self, row: Row, episodes: list[Row]) -> None:
        self.returns.extend(episode["return"] for episode in episodes)
        line = self._line(row)
        if self.live:
            self.live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif time.monotonic() - self.last_line > self.SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        if self.live:
            self.live.stop()

    def _line(self, row: Row) -> str:
        steps, speed = row["env_steps"], row["env_steps"] / row["wall_time"]
        parts = [
            f"{steps:,} of {self.total_steps:,} steps",
            f"{speed:,.0f} steps/s",
            f"{clock((self.total_steps - steps) / speed)} left",
            f"return {sum(self.returns) / len(self.returns):.1f}" if self.returns else "return –",
            f"ratio deviation {row['ratio_deviation']:.3g}",
            f"KL {row['kl']:.2g}",
        ]
        parts += [f"ε {row['epsilon']:.3g}"] if "epsilon" in row else []
        return " · ".join(parts)
