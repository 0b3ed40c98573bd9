"""Lines of files that grow: those that came since the last look, the last ones, and some from all over the file."""

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from spo.watch.files import Place, UnreadableFileError

LONGEST_LINE = 2**16
"""Bytes; a row of metrics has some seven hundred. What is longer is skipped and counted."""
BYTES_AT_ONCE = 2**20
LARGEST_LOG = 2**28
"""Bytes of a log that are read at all."""
REMEMBERED = 128
"""Bytes before the place where reading stopped, by which a log that was cut and written again is told."""


@dataclass
class Lines:
    """What one look at a file brought."""

    lines: list[bytes] = field(default_factory=list)
    is_new: bool = False  # the file is another than before, or was cut: what was read before is not in it
    is_more: bool = False  # there is more to read at once
    overlong: int = 0  # lines that were skipped


@contextmanager
def opened(place: Place, name: str) -> Iterator[tuple[int, int]]:
    """Open a file for a look: its descriptor and its size, both 0 where there is no file."""
    descriptor = place.open(name)
    if descriptor is None:
        yield 0, 0
        return
    try:
        yield descriptor, os.fstat(descriptor).st_size
    except OSError as error:
        raise UnreadableFileError(f"{name} cannot be read: {error.strerror}")
    finally:
        os.close(descriptor)


class LineFollower:
    """Reads what was appended to a file since the last look, without keeping the file open."""

    def __init__(self, place: Place, name: str):
        self.place, self.name = place, name
        self._begin()
        self.signature: tuple[int, int, int] | None = None

    def _begin(self) -> None:
        self.offset, self.remembered, self.is_skipping = 0, b"", False

    def read(self) -> Lines:
        """Read the next whole lines, some of them at a time."""
        signature = self.place.signature(self.name)
        if signature == self.signature and (signature is None or signature[1] == self.offset):
            return Lines()
        with opened(self.place, self.name) as (descriptor, size):
            return self._read(descriptor, min(size, LARGEST_LOG), signature) if descriptor else self._forget()

    def _forget(self) -> Lines:
        had_any, self.signature = self.offset > 0, None
        self._begin()
        return Lines(is_new=had_any)

    def _read(self, descriptor: int, size: int, signature: tuple[int, int, int] | None) -> Lines:
        is_new = not self._is_continued(descriptor)
        if is_new:
            self._begin()
        self.signature = signature
        content = os.pread(descriptor, min(BYTES_AT_ONCE, size - self.offset), self.offset)
        taken, lines, overlong = self._split(content)
        self.offset += taken
        self.remembered = (self.remembered + content[:taken])[-REMEMBERED:]
        return Lines(lines, is_new, taken > 0 and self.offset < size, overlong)

    def _is_continued(self, descriptor: int) -> bool:
        """Whether what was read before is still in the file."""
        found = os.fstat(descriptor)
        if self.signature and found.st_ino != self.signature[0] or found.st_size < self.offset:
            return False
        start = self.offset - len(self.remembered)
        return os.pread(descriptor, len(self.remembered), start) == self.remembered

    def _split(self, content: bytes) -> tuple[int, list[bytes], int]:
        """Split into whole lines: how many bytes they take, the lines, and how many were too long."""
        end = content.rfind(b"\n") + 1
        if not end:  # half a line, or a part of one that is too long
            if len(content) < LONGEST_LINE and not self.is_skipping:
                return 0, [], 0
            overlong, self.is_skipping = int(not self.is_skipping), True
            return len(content), [], overlong
        lines = content[:end].split(b"\n")[:-1]
        if self.is_skipping:
            lines, self.is_skipping = lines[1:], False
        kept = [line for line in lines if len(line) <= LONGEST_LINE]
        return end, kept, len(lines) - len(kept)


class PackedFollower:
    """Reads the lines of a compressed log, which does not grow, in parts of bounded size."""

    def __init__(self, place: Place, name: str):
        self.place, self.name = place, name
        self.signature: tuple[int, int, int] | None = None
        self._begin()

    def _begin(self) -> None:
        self.source, self.size, self.rest = zlib.decompressobj(wbits=31), 0, b""
        self.offset, self.is_over = 0, False

    def read(self) -> Lines:
        signature = self.place.signature(self.name)
        is_new = signature != self.signature and self.signature is not None
        if signature != self.signature:
            self._begin()
            self.signature = signature
        if signature is None or self.is_over:
            return Lines(is_new=is_new)
        try:
            content = self._unpack()
        except (OSError, zlib.error) as error:
            self.is_over = True
            raise UnreadableFileError(f"{self.name} is damaged: {error}")
        *lines, self.rest = (self.rest + content).split(b"\n")
        kept = [line for line in lines if len(line) <= LONGEST_LINE]
        overlong = len(lines) - len(kept)
        if len(self.rest) > LONGEST_LINE:
            self.rest, overlong = b"", overlong + 1
        return Lines(kept, is_new, not self.is_over, overlong)

    def _unpack(self) -> bytes:
        """Unpack the next part: no more than so many bytes, whatever a small file promises."""
        packed = self.source.unconsumed_tail or self._read_packed()
        content = self.source.decompress(packed, BYTES_AT_ONCE)
        self.size += len(content)
        is_empty = not packed and not content
        self.is_over = self.source.eof or is_empty or self.size > LARGEST_LOG
        if is_empty and not self.source.eof:
            raise zlib.error("it ends in the middle")
        return content

    def _read_packed(self) -> bytes:
        with opened(self.place, self.name) as (descriptor, size):
            packed = os.pread(descriptor, BYTES_AT_ONCE, self.offset) if size else b""
        self.offset += len(packed)
        return packed


# A few lines, without reading all


def read_last_lines(place: Place, name: str, most: int) -> list[bytes]:
    """Read the whole lines in the last so many bytes."""
    with opened(place, name) as (descriptor, size):
        start = max(0, size - most)
        content = os.pread(descriptor, most, start) if size else b""
    lines = content.split(b"\n")[:-1]
    return lines[1:] if start else lines


def read_scattered_lines(place: Place, name: str, places: int, width: int) -> list[list[bytes]]:
    """Read the whole lines in so many windows of equal distance, from the first to the last."""
    found = []
    with opened(place, name) as (descriptor, size):
        for index in range(places if size else 0):
            start = max(0, size - width) * index // max(1, places - 1)
            lines = os.pread(descriptor, width, start).split(b"\n")[:-1]
            found.append(lines[1:] if start else lines)
            if size <= width:
                break
    return [lines for lines in found if lines]
