"""The run directory: the files that training writes and everything else reads. No torch here."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from spo.errors import Refusal

LAST_SHARE = 0.1
"""The share of a run, at its end, over which its return is reported."""
FEWEST_EPISODES = 8
"""Fewer than these in the last share, and the last so many are taken instead, and marked."""


class RunDirectory:
    """Names, writes and reads the files of one run."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.status = self.path / "status.json"
        self.metrics = self.path / "metrics.jsonl"
        self.episodes = self.path / "episodes.jsonl"
        self.evaluations = self.path / "evaluations.jsonl"
        self.evaluation = self.path / "evaluation.json"
        self.policy = self.path / "policy"

    @classmethod
    def create(cls, path: str | None, name: str) -> "RunDirectory":
        """A directory for a new run: the given one, or a new one under runs/."""
        cls.check_unused(path)
        run = cls(path) if path else cls(_unused(Path("runs"), name))
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            (run.path / ".writable").touch()
            (run.path / ".writable").unlink()
        except OSError as error:
            raise Refusal(f"--out {run.path} cannot be written to: {error.strerror}")
        return run

    @classmethod
    def check_unused(cls, path: str | None) -> None:
        run = cls(path or ".")
        if path and (run.config.exists() or run.metrics.exists()):
            raise Refusal(f"--out {path} already holds a run; name a directory that does not")

    @classmethod
    def open(cls, path: str | os.PathLike) -> "RunDirectory":
        run = cls(path)
        if not run.config.is_file():
            raise Refusal(f"{run.path} is not a run directory: it has no config.json")
        return run

    def write_status(self, state: str, iteration: int, env_steps: int, reason: str | None = None) -> None:
        status = {"state": state, "reason": reason, "iteration": iteration, "env_steps": env_steps}
        write_json(self.status, status)

    def read_config(self) -> dict:
        return read_json(self.config)

    def read_metrics(self) -> list[dict]:
        return list(_rows(self.metrics))

    def read_episodes(self) -> list[dict]:
        return list(_rows(self.episodes))

    def summary(self) -> dict[str, float | bool | None]:
        """What the run came to so far."""
        total = self.read_config()["resolved"]["total_steps"]
        return summarize(self.read_metrics(), self.read_episodes(), total)


def summarize(rows: list[dict], episodes: list[dict], total_steps: int) -> dict[str, float | bool | None]:
    """What a run came to: return over the last 10 %, maximum ratio deviation, steps per second."""
    last = [row["return"] for row in episodes if row["env_steps"] > (1 - LAST_SHARE) * total_steps]
    is_short = len(last) < FEWEST_EPISODES
    if is_short:
        last = [row["return"] for row in episodes[-FEWEST_EPISODES:]]
    return {
        "return": sum(last) / len(last) if last else None,
        "return_from_last_episodes": is_short,
        "ratio_deviation_max": max((row["ratio_deviation_max"] for row in rows), default=None),
        "steps_per_second": rows[-1]["env_steps"] / rows[-1]["wall_time"] if rows else None,
        "env_steps": rows[-1]["env_steps"] if rows else 0,
    }


def read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Refusal(f"{path} cannot be read: {error}")


def write_json(path: Path, value: object, durable: bool = False) -> None:
    """Writes a file that appears all at once; `durable` waits until it is on the disk."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w") as file:
        json.dump(value, file, indent=2, allow_nan=False)
        file.write("\n")
        if durable:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)


def append_row(path: Path, row: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")


def _rows(path: Path) -> Iterator[dict]:
    """The whole lines of a JSONL file; a run that is still writing may have half a line at the end."""
    if not path.exists():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def _unused(parent: Path, name: str) -> Path:
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    stem = f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = parent / stem, 1
    while path.exists():
        number += 1
        path = parent / f"{stem}-{number}"
    return path
