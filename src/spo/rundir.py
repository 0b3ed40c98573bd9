"""The run directory: the files that training writes and everything else reads. No torch here."""

import fcntl
import gzip
import io
import json
import math
import os
import socket
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spo.errors import Refusal

LAST_SHARE = 0.1
"""The share of a run, at its end, over which its return is reported."""
LARGEST_FILE, LARGEST_LOG, LARGEST_TEXT = 2**31, 2**28, 2**23
"""Larger files are not read at all: tensors, logs, any other JSON."""
LARGEST_HEADER = 2**20
"""Longer headers of safetensors are not parsed: some ten thousand tensors have a place in this."""
LONGEST_ROW = 65_536
FORMER_NAMES = {"ratio_max": "ratio_deviation_sample_max", "outside_fraction": "clip_fraction"}
"""Metrics that rows of earlier versions have under another name; whoever reads rows meets today's only."""
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
        self.folders = (self.policy, self.checkpoints, self.tensorboard)

    @classmethod
    def create(cls, path: str | None, name: str) -> "RunDirectory":
        """A directory for a new run: the given one, or a new one under runs/."""
        cls.check_unused(path)
        run = cls(path) if path else cls(_unused(Path("runs"), name))
        with writing(f"--out {run.path}"):
            run.path.mkdir(parents=True, exist_ok=True)
            (run.path / ".writable").touch()
            (run.path / ".writable").unlink()
        run.check_plain()
        return run

    @classmethod
    def check_unused(cls, path: str | None) -> None:
        run = cls(path or ".")
        if path and (os.path.lexists(run.config) or os.path.lexists(run.metrics)):
            raise Refusal(f"--out {path} already holds a run; name another, or continue it: spo resume {path}")

    @classmethod
    def open(cls, path: str | os.PathLike) -> "RunDirectory":
        run = cls(path)
        if not os.path.isfile(run.config):
            raise Refusal(f"{run.path} is not a run directory: it has no config.json")
        run.check_plain()
        return run

    def strangers(self) -> list[Path]:
        """What no run leaves, such as links, pipes and devices: what is written through them lands elsewhere."""
        files = (self.config, self.status, self.evaluation, self.lock, *self.logs)
        wrong = [path for path in files if path.is_dir()] + [path for path in self.folders if path.is_file()]
        links = [path for path in self.path.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())]
        return sorted(wrong + links)

    def check_plain(self) -> None:
        if strangers := self.strangers():
            accepted = "accepted are plain files and directories, and no links, pipes or devices"
            raise Refusal(f"{strangers[0]} is not what a run leaves there: {accepted}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes out; the kernel lets go of the lock however this one ends."""
        with writing(str(self.path)):
            file = self.lock.open("a+")
        with file:
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
        if not self.lock.is_file():
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
        return _with_todays_names(json.loads(lines[-2])) if len(lines) > 1 else None

    def has_rows(self) -> bool:
        """Whether there are metrics of single iterations, packed or not."""
        return self.metrics.exists() or packed_path(self.metrics).exists()

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
        return [_with_todays_names(row) for row in _rows(self.metrics)]

    def read_episodes(self) -> list[dict]:
        return _rows(self.episodes)

    def summary(self) -> dict[str, float | bool | None]:
        """What the run came to so far."""
        metrics, episodes, config = self.read_metrics(), self.read_episodes(), self.read_config()
        try:
            return summarize(metrics, episodes, config["resolved"]["total_steps"])
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            raise Refusal(f"the logs of {self.path} are damaged: {type(error).__name__}: {error}")


def unwritable(path: Path | str, error: OSError | ValueError) -> Refusal:
    return Refusal(f"{path} cannot be written to: {getattr(error, 'strerror', None) or error}")


def summarize(
    rows: list[dict], episodes: list[dict], total_steps: int, share: float = LAST_SHARE
) -> dict[str, float | bool | None]:
    """What a run came to: return over the last share of its steps, maximum ratio deviation, steps per second."""
    last = [float(row["return"]) for row in episodes if row["env_steps"] > (1 - share) * total_steps]
    is_short = len(last) < FEWEST_EPISODES
    if is_short:
        last = [float(row["return"]) for row in episodes[-FEWEST_EPISODES:]]
    return {
        "return": sum(last) / len(last) if last else None,
        "return_from_last_episodes": is_short,
        "ratio_deviation_max": max((float(row["ratio_deviation_max"]) for row in rows), default=None),
        "steps_per_second": rows[-1]["env_steps"] / rows[-1]["wall_time"] if rows else None,
        "env_steps": rows[-1]["env_steps"] if rows else 0,
    }


def read_json(path: Path) -> dict:
    try:
        value = parse_json(read_bounded(path, LARGEST_TEXT))
    except (OSError, ValueError, RecursionError) as error:
        raise Refusal(f"{path} cannot be read: {error}")
    if not isinstance(value, dict):
        raise Refusal(f"{path} holds a {type(value).__name__}; accepted is a table of names and values")
    return value


def parse_json(content: str | bytes) -> object:
    """JSON as it is written here: every number finite, no name twice."""
    return json.loads(content, object_pairs_hook=_named_once, parse_float=_finite, parse_constant=_finite)


def _named_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a name stands twice in it")
    return values


def _finite(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text} is not a finite number")
    return float(text)


def read_bounded(path: Path, largest: int = LARGEST_FILE) -> bytes:
    """A plain file's bytes; no device, no pipe, nothing larger than memory should hold."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path.name} is not a plain file")
    if found.st_size > largest:
        raise ValueError(f"{path.name} has {found.st_size:,} bytes; accepted are up to {largest:,}")
    with path.open("rb") as file:
        return file.read(found.st_size)  # not up to its end: not every file that has a size has one


def checked_header(content: bytes) -> bytes:
    """A safetensors file whose header, by its own word, is not out of proportion."""
    size = int.from_bytes(content[:8], "little")
    if size > LARGEST_HEADER:
        raise ValueError(f"its header has {size:,} bytes; accepted are up to {LARGEST_HEADER:,}")
    return content


def canonical(value: object) -> bytes:
    """The one way in which a value is written as JSON."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def compact(value: object) -> bytes:
    """JSON without a space."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


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


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Tells in a sentence what the file system does not allow."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise unwritable(what, error)


def append_row(path: Path, row: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")


def _rows(path: Path) -> list[dict]:
    """The whole lines of a JSONL file, or of its .gz; a run that is still writing may have half a line at the end."""
    packed = packed_path(path)
    try:
        if path.exists():
            content = read_bounded(path, LARGEST_LOG)
        else:
            content = unpacked(packed, LARGEST_LOG) if packed.exists() else b""
        return [dict(json.loads(line)) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    except (OSError, EOFError, ValueError, TypeError, RecursionError) as error:
        raise Refusal(f"{path} cannot be read: {error}")


def _with_todays_names(row: dict) -> dict:
    return {FORMER_NAMES.get(name, name): value for name, value in row.items()}


def packed_path(path: Path) -> Path:
    """Where a file lies that was compressed."""
    return path.with_name(f"{path.name}.gz")


def unpacked(path: Path, largest: int) -> bytes:
    """No more than so many bytes, whatever a small file promises."""
    packed = read_bounded(path, largest)
    if not packed:
        raise ValueError(f"{path.name} is empty")  # to gzip that is a file without content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = file.read(largest + 1)
    except zlib.error as error:
        raise ValueError(f"{path.name} is damaged: {error}")
    if len(content) > largest:
        raise ValueError(f"{path.name} holds more than {largest:,} bytes")
    return content


def _unused(parent: Path, name: str) -> Path:
    safe = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    stem = f"{safe}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = parent / stem, 1
    while path.exists():
        number += 1
        path = parent / f"{stem}-{number}"
    return path
