"""Recordings of episodes that lie in a run directory."""

import os
from dataclasses import dataclass

from tornado.web import RequestHandler

from spo.watch.catalogue import Catalogue
from spo.watch.files import Place, UnreadableFileError

FOLDERS = ((), ("videos",))
"""Where recordings are looked for in a run directory."""
MOST_ENTRIES, BYTES_AT_ONCE = 2_000, 2**18


@dataclass(frozen=True)
class Video:
    """A recording and when it was made."""

    place: Place
    name: str
    written: float
    size: int


def find_videos(place: Place) -> list[Video]:
    """Find the recordings of a run, the newest first."""
    found = [video for folder in FOLDERS for video in _list_videos(place.below(*folder))]
    return sorted(found, key=lambda video: -video.written)


def _list_videos(place: Place) -> list[Video]:
    names = [name for name in place.list_names(MOST_ENTRIES) if name.endswith(".mp4")]
    signatures = {name: place.signature(name) for name in names}
    return [Video(place, name, own[2] / 1e9, own[1]) for name, own in signatures.items() if own]


class VideoFile(RequestHandler):
    """Sends the newest recording of a run, whole or the part that is asked for."""

    def initialize(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue

    async def get(self) -> None:
        place = self.catalogue.place(self.get_query_argument("run", ""))
        videos = find_videos(place) if place else []
        try:
            descriptor = videos[0].place.open(videos[0].name) if videos else None
        except UnreadableFileError:
            descriptor = None
        if descriptor is None:
            self.set_status(404)
            return
        with os.fdopen(descriptor, "rb") as file:
            await self._send(file, os.fstat(file.fileno()).st_size)

    async def _send(self, file, size: int) -> None:
        start, end = parse_range(self.request.headers.get("Range"), size)
        if start >= end:
            self.set_status(416)
            self.set_header("Content-Range", f"bytes */{size}")
            return
        if "Range" in self.request.headers:
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.set_header("Content-Type", "video/mp4")
        self.set_header("Accept-Ranges", "bytes")
        self.set_header("Content-Length", str(end - start))
        file.seek(start)
        while start < end:
            content = file.read(min(BYTES_AT_ONCE, end - start))
            if not content:  # it was cut meanwhile
                return
            start += len(content)
            self.write(content)
            await self.flush()


def parse_range(header: str | None, size: int) -> tuple[int, int]:
    """Parse a Range header of one part into its first byte and the one after its last; an empty part if it is none."""
    if header is None:
        return 0, size
    unit, _, part = header.partition("=")
    first, _, last = part.partition("-")
    numbers = [text for text in (first, last) if text]
    if unit != "bytes" or not numbers or not all(n.isascii() and n.isdecimal() and len(n) < 19 for n in numbers):
        return 0, 0
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1 if last else size)
