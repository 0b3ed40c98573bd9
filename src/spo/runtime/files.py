"""Durable writes, bounded reads, strict JSON and checksums. No torch here."""

import errno
import fcntl
import gzip
import hashlib
import io
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from spo.errors import CorruptRunError, SpoError

LARGEST_FILE, LARGEST_LOG, LARGEST_TEXT = 2**31, 2**28, 2**23
"""Larger files are not read at all: tensors, logs, any other JSON."""
LOCK = ".lock"
"""In a directory that is locked, and gone again afterwards, unless a process was killed."""
LARGEST_HEADER = 2**20
"""Longer headers of safetensors are not parsed: some ten thousand tensors have a place in this."""


def write_error(path: Path | str, error: OSError | ValueError) -> SpoError:
    return SpoError(f"{path} cannot be written to: {getattr(error, 'strerror', None) or error}")


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(read_bounded(path, LARGEST_TEXT))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptRunError(f"{path} cannot be read: {error}")
    if not isinstance(value, dict):
        raise CorruptRunError(f"{path} holds a {type(value).__name__}; accepted is a table of names and values")
    return value


def parse_json(content: str | bytes) -> Any:
    """JSON as it is written here: every number finite, no name twice."""
    return json.loads(content, object_pairs_hook=_refuse_duplicates, parse_float=_finite, parse_constant=_finite)


def _refuse_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
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


def check_header(content: bytes) -> bytes:
    """A safetensors file whose header, by its own word, is not out of proportion."""
    size = int.from_bytes(content[:8], "little")
    if size > LARGEST_HEADER:
        raise ValueError(f"its header has {size:,} bytes; accepted are up to {LARGEST_HEADER:,}")
    return content


def canonical_json(value: object) -> bytes:
    """The one way in which a value is written as JSON."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def compact(value: object) -> bytes:
    """JSON without a space."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def write_json(path: Path, value: object, durable: bool = False) -> None:
    """Write a file that appears all at once; `durable` waits until it is on the disk."""
    replace_file(path, canonical_json(value), durable)


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
    """Wait until a file, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_directory(path: Path) -> Iterator[None]:
    """Wait until no other process changes a directory, which is made if there is none, and goes if it stays empty."""
    is_made = not path.exists()
    with _acquire(path / LOCK):
        try:
            yield
        finally:
            (path / LOCK).unlink(missing_ok=True)
            if is_made:
                with suppress(OSError):  # it is not empty
                    path.rmdir()


def check_writable(path: Path) -> None:
    """Raise the OSError of making a file in a directory, which need not be there, and make none."""
    nearest = next(parent for parent in (path, *path.parents) if os.path.lexists(parent))
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _acquire(path: Path) -> io.BufferedWriter:
    """A locked file of that path: whoever had it before has removed it, and another may have made a new one."""
    while True:
        with suppress(FileNotFoundError):
            if not path.parent.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.exists(path) and os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                return file
            file.close()


def is_empty(path: Path, besides: str = "") -> bool:
    """Whether a directory holds nothing, or nothing but what a process leaves that was killed."""
    return all(entry.name in (LOCK, besides) for entry in path.iterdir())


@contextmanager
def translate_os_errors(what: str) -> Iterator[None]:
    """Turn OSError into a SpoError of one line."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise write_error(what, error)


def append_row(path: Path, row: dict) -> None:
    with path.open("a") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")


def read_rows(path: Path) -> list[dict]:
    """The whole lines of a JSONL file, or of its .gz; a run that is still writing may have half a line at the end."""
    packed = packed_path(path)
    try:
        if path.exists():
            content = read_bounded(path, LARGEST_LOG)
        else:
            content = unpack(packed, LARGEST_LOG) if packed.exists() else b""
        return [dict(json.loads(line)) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]
    except (OSError, EOFError, ValueError, TypeError, RecursionError) as error:
        raise CorruptRunError(f"{path} cannot be read: {error}")


def packed_path(path: Path) -> Path:
    """Where a file lies that was compressed."""
    return path.with_name(f"{path.name}.gz")


def unpack(path: Path, largest: int) -> bytes:
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


def add_checksum(values: dict[str, object]) -> dict[str, object]:
    """Add a checksum of the values themselves."""
    return values | {"sha256": sha256(canonical_json(values))}


def verify_checksum(content: bytes) -> dict[str, Any]:
    """Return the values without their checksum, or ValueError if a single byte is another."""
    values = json.loads(content)
    seal = values.pop("sha256", None) if isinstance(values, dict) else None
    if seal is None or canonical_json(add_checksum(values)) != content or add_checksum(values)["sha256"] != seal:
        raise ValueError("its own checksum does not match")
    return values


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
