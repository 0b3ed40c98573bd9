"""The run directory: the files that training writes and everything else reads. No torch here."""

import fcntl
import gzip
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spo.errors import Refusal

LAST_SHARE = 0.1
"""The share of a run, at its end, over which its return is reported."""
LARGEST_FILE = 2**31
"""Larger files are not read at all."""
LONGEST_ROW = 65_536
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
        self.checkpoints = self.path / "checkpoints"
        self.ratios = self.path / "ratios"
        self.tensorboard = self.path / "tensorboard"
        self.lock = self.path / "lock"
        self.logs = (self.metrics, self.episodes, self.evaluations)

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
            raise unwritable(run.path, error)
        return run

    @classmethod
    def check_unused(cls, path: str | None) -> None:
        run = cls(path or ".")
        if path and (run.config.exists() or run.metrics.exists()):
            raise Refusal(f"--out {path} already holds a run; name another, or continue it: spo resume {path}")

    @classmethod
    def open(cls, path: str | os.PathLike) -> "RunDirectory":
        run = cls(path)
        if not run.config.is_file():
            raise Refusal(f"{run.path} is not a run directory: it has no config.json")
        return run

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes out; the kernel lets go of the lock however this one ends."""
        with self.lock.open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise Refusal(f"{self.path} is in use by {file.read().strip() or 'another process'}")
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            yield

    def holder(self) -> str | None:
        """Who holds the lock, if anyone does."""
        if not self.lock.exists():
            return None
        with self.lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            except OSError:
                return file.read().strip() or "another process"

    def last_metrics(self) -> dict | None:
        """The newest metrics row, without reading all of them."""
        if not self.metrics.exists():
            return None
        with self.metrics.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_ROW))
            lines = file.read().split(b"\n")
        return json.loads(lines[-2]) if len(lines) > 1 else None

    def log_sizes(self) -> dict[str, int]:
        """How long each log is, which is what a checkpoint remembers of it."""
        return {path.name: path.stat().st_size for path in self.logs if path.exists()}

    def write_status(self, status: dict[str, object]) -> None:
        write_json(self.status, status)

    def read_status(self) -> dict:
        return read_json(self.status) if self.status.exists() else {}

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


def unwritable(path: Path, error: OSError) -> Refusal:
    return Refusal(f"{path} cannot be written to: {error.strerror or error}")


def summarize(
    rows: list[dict], episodes: list[dict], total_steps: int, share: float = LAST_SHARE
) -> dict[str, float | bool | None]:
    """What a run came to: return over the last share of its steps, maximum ratio deviation, steps per second."""
    last = [row["return"] for row in episodes if row["env_steps"] > (1 - share) * total_steps]
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
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(f"{path} cannot be read: {error}")


def read_bounded(path: Path) -> bytes:
    """A plain file's bytes; no device, no pipe, nothing larger than memory should hold."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path.name} is not a plain file")
    if found.st_size > LARGEST_FILE:
        raise ValueError(f"{path.name} has more than {LARGEST_FILE} bytes")
    return path.read_bytes()


def canonical(value: object) -> bytes:
    """The one way in which a value is written as JSON."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: object, durable: bool = False) -> None:
    """Writes a file that appears all at once; `durable` waits until it is on the disk."""
    replace_file(path, canonical(value), durable)


def replace_file(path: Path, content: bytes, durable: bool = True) -> None:
    """The old content or the new, never a mixture."""
    temporary = path.with_name(path.name + ".tmp")
    write_file(temporary, content, durable)
    temporary.replace(path)
    if durable:
        sync(path.parent)


def write_file(path: Path, content: bytes, durable: bool = True) -> None:
    with path.open("wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Waits until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_row(path: Path, row: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")


def _rows(path: Path) -> Iterator[dict]:
    """The whole lines of a JSONL file, or of its .gz; a run that is still writing may have half a line at the end."""
    packed = path.with_name(path.name + ".gz")
    if path.exists():
        text = path.read_text()
    elif packed.exists():
        text = gzip.decompress(packed.read_bytes()).decode()
    else:
        return
    for line in text.splitlines(keepends=True):
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
