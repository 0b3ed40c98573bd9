"""Where the numbers of a run go: JSONL files, the console, TensorBoard. Each metric is defined in docs/metrics.md."""

import json
import shutil
import sys
import time
from collections import deque
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from spo.algorithms.metrics import Row
from spo.errors import ConfigError
from spo.runs.directory import LAST_EPISODES, RunDirectory
from spo.runtime.formatting import clock


class Logger(Protocol):
    """Where the numbers of a run go. Yours is one too: `spo.train(..., loggers=[MyLogger()])`.

    What derives from it and has nothing to go back to, or to close, need not say so.
    """

    def write(self, row: Row, episodes: list[Row]) -> None:
        """Take an iteration's row of metrics and the episodes that ended in it."""

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        """Go back to these: the run resumes after them, and what was written later does not count."""
        return

    def close(self) -> None:
        """Called once, however the run ends."""
        return


class JsonlLogger(Logger):
    """metrics.jsonl and episodes.jsonl, flushed after every iteration; resuming reads the rows from there."""

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


class TensorBoardLogger(Logger):
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

    OPTIONAL = {
        "action_std": "train/std",
        "eval_return_mean": "eval/mean_reward",
        "eval_length_mean": "eval/mean_ep_length",
    }
    """Where rows have them, under Stable-Baselines3's names."""

    def __init__(self, run: RunDirectory):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError("--tensorboard needs: pip install 'simple-policy-optimization[tensorboard]'")
        self._open = lambda: SummaryWriter(run.tensorboard)
        self.writer, self.run = self._open(), run
        self.started = run.config.stat().st_mtime

    def write(self, row: Row, episodes: list[Row]) -> None:
        for tag, value in tag_metrics(row).items():
            self.writer.add_scalar(tag, value, row["env_steps"], walltime=self.started + row["wall_time"])
        self.write_episodes(episodes)

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        """Write the event files again: theirs have no place at which they could be cut."""
        self.writer.close()
        shutil.rmtree(self.run.tensorboard, ignore_errors=True)
        self.writer = self._open()
        for row in rows:
            self.write(row, [])
        self.write_episodes(episodes)

    def write_episodes(self, episodes: list[Row]) -> None:
        for episode in episodes:
            self.writer.add_scalar("charts/episodic_return", episode["return"], episode["env_steps"])
            self.writer.add_scalar("charts/episodic_length", episode["length"], episode["env_steps"])

    def close(self) -> None:
        self.writer.close()


def tag_metrics(row: Row) -> dict[str, float]:
    """A row's numbers under the tags that TensorBoard has them under."""
    names = TensorBoardLogger.LOSSES | TensorBoardLogger.FED_BACK | TensorBoardLogger.OPTIONAL
    return {tag: row[name] for name, tag in names.items() if name in row}


def tag_row(row: Row) -> dict[str, float]:
    """The same with the episodes' means, for trackers that take one point per iteration."""
    means = {"return_mean": "charts/episodic_return", "length_mean": "charts/episodic_length"}
    return tag_metrics(row) | {tag: row[name] for name, tag in means.items() if name in row}


class ProgressLogger(Logger):
    """A live line on a terminal, a plain line now and then elsewhere; what matters most fits 80 columns."""

    SECONDS_BETWEEN_LINES = 10.0

    def __init__(self, total_steps: int):
        self.total_steps = total_steps
        self.returns: deque[float] = deque(maxlen=LAST_EPISODES)
        self.evaluation: float | None = None
        # What is printed meanwhile goes through this console, which would break a command into lines.
        console = Console(stderr=True, soft_wrap=True)
        self.live = Live(console=console, auto_refresh=False) if sys.stderr.isatty() else None
        self.last_line = time.monotonic()

    def write(self, row: Row, episodes: list[Row]) -> None:
        self.returns.extend(episode["return"] for episode in episodes)
        self.evaluation = row.get("eval_return_mean", self.evaluation)
        if self.live:
            self.live.start()  # once is enough, and before the first row there is nothing to show
            line = self._line(row, self.live.console.width)
            self.live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)
        elif time.monotonic() - self.last_line > self.SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            print(self._line(row), file=sys.stderr, flush=True)

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        self.returns.extend(episode["return"] for episode in episodes)
        for row in rows:
            self.evaluation = row.get("eval_return_mean", self.evaluation)

    def close(self) -> None:
        if self.live:
            self.live.stop()

    def _line(self, row: Row, width: int | None = None) -> str:
        """The parts that fit, whole: half a number is a wrong one."""
        steps, speed = row["env_steps"], row["env_steps"] / row["wall_time"]
        parts = [
            f"return {sum(self.returns) / len(self.returns):.1f}" if self.returns else "return –",
            *([] if self.evaluation is None else [f"evaluation {self.evaluation:.1f}"]),
            f"ratio deviation {row['ratio_deviation']:.3g}",
            f"{clock((self.total_steps - steps) / speed)} left",
            f"{steps:,} of {self.total_steps:,} steps",
            f"{speed:,.0f} steps/s",
            f"KL {row['kl']:.2g}",
        ]
        parts += [f"ε {row['epsilon']:.3g}"] if "epsilon" in row else []
        parts += [f"{row['env_restarts']} restarts"] if row.get("env_restarts") else []
        while width and len(parts) > 1 and len(" · ".join(parts)) > width:
            parts.pop()
        return " · ".join(parts)


class TableLogger(Logger):
    """After every iteration the table of numbers that users of Stable-Baselines3 know, with `--verbose`."""

    EPISODES = 100
    GROUPS = {
        "time": {
            "fps": "steps_per_second",
            "iterations": "iteration",
            "time_elapsed": "wall_time",
            "total_timesteps": "env_steps",
        },
        "eval": {"mean_ep_length": "eval_length_mean", "mean_reward": "eval_return_mean"},
        "train": {
            "kl": "kl",
            "ratio_deviation": "ratio_deviation",
            "clip_fraction": "clip_fraction",
            "epsilon": "epsilon",
            "entropy": "entropy",
            "explained_variance": "explained_variance",
            "grad_norm": "grad_norm",
            "learning_rate": "learning_rate",
            "policy_loss": "policy_loss",
            "value_loss": "value_loss",
            "std": "action_std",
            "clipped_actions": "clipped_action_fraction",
        },
    }

    def __init__(self) -> None:
        self.returns: deque[float] = deque(maxlen=self.EPISODES)
        self.lengths: deque[float] = deque(maxlen=self.EPISODES)

    def write(self, row: Row, episodes: list[Row]) -> None:
        self.rewind([], episodes)
        print(self._table(row), file=sys.stderr, flush=True)

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        self.returns.extend(episode["return"] for episode in episodes)
        self.lengths.extend(episode["length"] for episode in episodes)

    def _table(self, row: Row) -> str:
        groups = {"rollout": self._rollout()}
        for group, names in self.GROUPS.items():
            groups[group] = {title: row[name] for title, name in names.items() if row.get(name) is not None}
        lines = []
        for group, numbers in groups.items():
            lines += [f"| {group + '/':<22}|{'':12}|"] if numbers else []
            lines += [f"|    {title:<19}|{_show(number):>11} |" for title, number in numbers.items()]
        rule = "-" * len(lines[0])
        return "\n".join([rule, *lines, rule])

    def _rollout(self) -> Row:
        if not self.returns:
            return {}
        means = (sum(numbers) / len(numbers) for numbers in (self.lengths, self.returns))
        return dict(zip(("ep_len_mean", "ep_rew_mean"), means))


def _show(number: float) -> str:
    return f"{number:.0f}" if abs(number) >= 1000 or isinstance(number, int) else f"{number:.4g}"
