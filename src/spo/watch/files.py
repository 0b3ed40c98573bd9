"""Bounded reads of plain files below a given directory, which no link leads out of."""

import errno
import json
import os
import stat
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

LARGEST_JSON = 2**18
"""Bytes of a config.json, status.json or plan.json; a run's own have a few thousand."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Without blocking, because opening a pipe would wait for somebody who writes into it."""


class UnreadableFileError(Exception):
    """A file that is there and is not what it should be, told in one sentence."""


@dataclass(frozen=True)
class Place:
    """A directory below one that was given, by the names that lead to it."""

    root: Path
    parts: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)

    def below(self, *names: str) -> "Place":
        return Place(self.root, (*self.parts, *names))

    def list_names(self, most: int) -> list[str]:
        """List so many of the names in it; none where it is not there, or a link."""
        try:
            if self.path.is_symlink():
                return []
            with os.scandir(self.path) as entries:
                return [entry.name for entry in islice(entries, most)]
        except (OSError, ValueError):
            return []

    def signature(self, name: str) -> tuple[int, int, int] | None:
        """Tell one version of a file from the next without opening it; None where there is no plain file."""
        try:
            found = os.stat(self.path / name, follow_symlinks=False)
        except (OSError, ValueError):
            return None
        return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None

    def open(self, name: str) -> int | None:
        """Open a plain file, one directory after the other and through no link; None where there is none."""
        try:
            descriptor = os.open(self.root, DIRECTORY)
            try:
                for part in self.parts:
                    inner = os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
                    os.close(descriptor)
                    descriptor = inner
                return _open_plain(descriptor, name)
            finally:
                os.close(descriptor)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            raise UnreadableFileError(f"{name} cannot be read: {_reason(error)}")


def _open_plain(directory: int, name: str) -> int:
    descriptor = os.open(name, FILE, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a plain file")
    return descriptor


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return "it is a link, and links are not followed" if error.errno == errno.ELOOP else str(error.strerror)
    return str(error)


def read_file(place: Place, name: str, largest: int) -> bytes | None:
    """Read a whole file that has no more bytes than so many; None where there is none."""
    descriptor = place.open(name)
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise UnreadableFileError(f"{name} has {size:,} bytes; up to {largest:,} are read")
        return file.read(size)


def read_json(place: Place, name: str) -> dict:
    """Read a table of names and values; an empty one where there is no such file."""
    content = read_file(place, name, LARGEST_JSON)
    return {} if content is None else parse_object(content, name)


def parse_object(content: bytes, name: str) -> dict:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UnreadableFileError(f"{name} cannot be read: {str(error)[:200]}")
    if not isinstance(value, dict):
        raise UnreadableFileError(f"{name} holds a {type(value).__name__}; a run's is a table of names and values")
    return value
