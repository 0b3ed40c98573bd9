"""The run directory: the files that training writes and everything else reads. No torch here."""

import fcntl
import json
import os
import shutil
import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spo.errors import ConfigError, CorruptRunError, SpoError
from spo.runs.summary import summarize
from spo.runtime.files import packed_path, read_json, read_rows, translate_os_errors, write_json

LONGEST_ROW = 65_536
LAST_EPISODES = 20
"""Over how many episodes the return is told while a run goes on."""
FORMER_NAMES = {"ratio_max": "ratio_deviation_sample_max", "outside_fraction": "clip_fraction"}
"""Metrics that rows of earlier versions have under another name; whoever reads rows meets today's only."""


def path_of(run: str | os.PathLike[str]) -> str:
    """The text of what names a run: a path, or the Run that a training returned."""
    try:
        return os.fsdecode(run)
    except TypeError:
        accepted = "it must be the path of a run directory, or what spo.train returned"
        raise ConfigError(f"a {type(run).__name__} is not accepted in place of a run: {accepted}")


class RunDirectory:
    """Names, writes and reads the files of one run."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.status = self.path / "status.json"
        self.metrics = self.path / "metrics.jsonl"
        self.episodes = self.path / "episodes.jsonl"
        self.evaluations = self.path / "evaluations.jsonl"
        self.evaluation = self.path / "evaluation.json"
        self.policy = self.path / "policy"
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / "best"
        self.ratios = self.path / "ratios"
        self.ratio_samples = self.path / "ratio_samples"
        self.tensorboard = self.path / "tensorboard"
        self.lock = self.path / "lock"
        self.traceback = self.path / "traceback.txt"
        self.trackers = self.path / "trackers.json"
        self.logs = (self.metrics, self.episodes, self.evaluations)
        self.folders = (self.policy, self.checkpoints, self.best, self.tensorboard)

    @classmethod
    def create(cls, path: str | None, name: str, overwrite: bool = False) -> "RunDirectory":
        """A directory for a new run: the given one, or a new one under runs/."""
        cls.check_unused(path, overwrite)
        run = cls(path) if path else cls(_choose_unused(Path("runs"), name))
        with translate_os_errors(f"--out {run.path}"):
            run.path.mkdir(parents=True, exist_ok=True)
            (run.path / ".writable").touch()
            (run.path / ".writable").unlink()
        run.check_regular_files()
        return run

    @classmethod
    def check_unused(cls, path: str | None, overwrite: bool = False) -> None:
        run = cls(path or ".")
        is_used = path and (os.path.lexists(run.config) or os.path.lexists(run.metrics))
        if is_used and overwrite and run.has_checkpoint():
            raise ConfigError(f"--overwrite is not accepted: the run in {path} has a checkpoint; continue or delete it")
        if is_used and not overwrite:
            instead = f"continue it: spo resume {path}" if run.has_checkpoint() else "replace it: --overwrite"
            raise ConfigError(f"--out {path} already holds a run; name another, or {instead}")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "RunDirectory":
        name = path_of(path)
        if name.startswith("hf:"):
            raise ConfigError(f"{name} is a policy on the Hub, not a run directory: spo.load and spo export take it")
        run = cls(name)
        if not os.path.isfile(run.config):
            lack = "it has no config.json" if os.path.exists(run.path) else "there is nothing of that name"
            raise CorruptRunError(f"{run.path} is not a run directory: {lack}")
        run.check_regular_files()
        return run

    def has_checkpoint(self) -> bool:
        return any(self.checkpoints.glob("[0-9]*")) or self.policy.exists()

    def clear(self) -> None:
        """Remove what an earlier run without a checkpoint left here, and nothing else."""
        for path in (self.config, self.status, self.evaluation, self.traceback, self.trackers, *self.logs):
            path.unlink(missing_ok=True)
        for folder in (self.checkpoints, self.best, self.tensorboard, self.ratios, self.ratio_samples):
            shutil.rmtree(folder, ignore_errors=True)

    def unexpected_entries(self) -> list[Path]:
        """What no run leaves, such as links, pipes and devices: what is written through them lands elsewhere."""
        files = (self.config, self.status, self.evaluation, self.lock, self.traceback, self.trackers, *self.logs)
        wrong = [path for path in files if path.is_dir()] + [path for path in self.folders if path.is_file()]
        links = [path for path in self.path.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())]
        return sorted(wrong + links)

    def check_regular_files(self) -> None:
        if unexpected := self.unexpected_entries():
            accepted = "accepted are plain files and directories, and no links, pipes or devices"
            raise CorruptRunError(f"{unexpected[0]} is not what a run leaves there: {accepted}")

    @contextmanager
    def acquire_lock(self) -> Iterator[None]:
        """Keep other processes out; the kernel lets go of the lock however this one ends."""
        with translate_os_errors(str(self.path)):
            file = self.lock.open("a+")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.seek(0)
                raise SpoError(f"{self.path} is in use by {file.read().strip() or 'another process'}")
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            yield

    def lock_owner(self) -> str | None:
        """Who holds the lock, if anyone does."""
        if not self.lock.is_file():
            return None
        with self.lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            except OSError:
                return file.read().strip() or "another process"

    def last_metrics(self) -> dict[str, Any] | None:
        """The newest metrics row, without reading all of them."""
        rows = _read_last_rows(self.metrics, 1)
        return _with_todays_names(rows[-1]) if rows else None

    def last_episodes(self, most: int = LAST_EPISODES) -> list[dict[str, Any]]:
        """The episodes that ended last, without reading all of them."""
        return _read_last_rows(self.episodes, most)

    def has_rows(self) -> bool:
        """Whether there are metrics of single iterations, packed or not."""
        return self.metrics.exists() or packed_path(self.metrics).exists()

    def log_sizes(self) -> dict[str, int]:
        """How long each log is, which is what a checkpoint remembers of it."""
        return {path.name: path.stat().st_size for path in self.logs if path.exists()}

    def keep_traceback(self, error: BaseException) -> None:
        """Write an error with its causes and all their lines, for who looks for its origin; a full disk hides none."""
        with suppress(OSError):
            self.traceback.write_text("".join(traceback.format_exception(error)))

    def write_status(self, status: dict[str, object]) -> None:
        write_json(self.status, status)

    def read_status(self) -> dict[str, Any]:
        return read_json(self.status) if self.status.exists() else {}

    def read_config(self) -> dict[str, Any]:
        return read_json(self.config)

    def read_metrics(self) -> list[dict[str, Any]]:
        return [_with_todays_names(row) for row in read_rows(self.metrics)]

    def read_episodes(self) -> list[dict[str, Any]]:
        return read_rows(self.episodes)

    def summary(self) -> dict[str, float | bool | None]:
        """What the run came to so far."""
        metrics, episodes, config = self.read_metrics(), self.read_episodes(), self.read_config()
        try:
            total_steps = config["resolved"]["total_steps"]
            if metrics and config["settings"].get("stop_at") is not None:
                total_steps = metrics[-1]["env_steps"]  # such a run may be whole with fewer steps
            return summarize(metrics, episodes, total_steps)
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise CorruptRunError(f"the logs of {self.path} are damaged: {type(error).__name__}: {error}")


def _with_todays_names(row: dict[str, Any]) -> dict[str, Any]:
    return {FORMER_NAMES.get(name, name): value for name, value in row.items()}


def _read_last_rows(path: Path, most: int) -> list[dict[str, Any]]:
    """Up to so many whole rows at the end of a log that may be growing; there is no such log before the first."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        start = max(0, file.seek(0, os.SEEK_END) - LONGEST_ROW)
        file.seek(start)
        lines = file.read().split(b"\n")[1 if start else 0 : -1]  # the first may be cut off, the last be unfinished
    return [json.loads(line) for line in lines[-most:]]


def _choose_unused(parent: Path, name: str) -> Path:
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    stem = f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = parent / stem, 1
    while path.exists():
        number += 1
        path = parent / f"{stem}-{number}"
    return path
