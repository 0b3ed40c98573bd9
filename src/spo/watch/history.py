"""All that a run's logs tell, followed as they are written: rows of a run, compressed rows, or packed curves."""

import time
import zlib

import numpy as np

from spo.watch.files import Place, UnreadableFileError, parse_object, read_file, read_json
from spo.watch.lines import LineFollower, Lines, PackedFollower
from spo.watch.tables import NUMBERS, EpisodeTable, MetricTable, parse_row, to_number, versions

LARGEST_CURVES = 2**23
"""Bytes of packed curves, compressed or not."""
MOST_EVALUATIONS, MOST_BINS = 4096, 4096


class History:
    """Metrics, episodes and evaluations of one run, as far as they have been read."""

    def __init__(self, place: Place, total_steps: float = 0):
        self.place, self.total_steps = place, total_steps
        self.metrics, self.episodes = MetricTable(), EpisodeTable()
        self.episodes.clear(total_steps)
        self.evaluations: list[tuple[float, float]] = []  # steps and mean return
        self.problems: dict[str, str] = {}  # by file, what is wrong with it
        self.is_packed, self.is_more = False, True
        self.version = 0  # another number once anything is new: several pages may follow one run
        self._followers: dict[str, LineFollower | PackedFollower] = {}
        self._packed_signature: object = None

    def poll(self, seconds: float = 0.2) -> bool:
        """Read on for a while at most; whether anything is new."""
        deadline, is_changed = time.monotonic() + seconds, False
        while True:
            is_changed |= self._read_once()
            if not self.is_more or time.monotonic() > deadline:
                break
        if is_changed:
            self.version = next(versions)
        return is_changed

    def _read_once(self) -> bool:
        if self._has_packed_curves():
            return self._read_packed()
        found = [self._follow(*log) for log in (("metrics.jsonl", self._take_metrics, self.metrics.clear),
                 ("episodes.jsonl", self._take_episodes, lambda: self.episodes.clear(self.total_steps)),
                 ("evaluations.jsonl", self._take_evaluations, self.evaluations.clear))]  # fmt: skip
        self.is_more = any(lines.is_more for lines in found)
        return any(lines.lines or lines.is_new for lines in found)

    def _follow(self, name: str, take, clear) -> Lines:
        """Read on in a log, or in its compressed copy, and add what is new."""
        file = name if self.place.signature(name) else f"{name}.gz"
        file = file if self.place.signature(file) else name
        follower = self._followers.get(name)
        if follower is None or follower.name != file:
            kind = PackedFollower if file.endswith(".gz") else LineFollower
            follower = self._followers[name] = kind(self.place, file)
            clear()
        try:
            found = follower.read()
        except UnreadableFileError as error:
            self.problems[name] = str(error)
            return Lines()
        if found.is_new:
            clear()
            self.problems.pop(name, None)
        if found.overlong:
            self.problems[name] = f"{name} has lines that are too long to be rows; they are left out"
        take(found.lines, name)
        return found

    def _parse(self, lines: list[bytes], name: str) -> list[dict]:
        rows = [row for line in lines if (row := parse_row(line)) is not None]
        if len(rows) < len(lines):
            self.problems[name] = f"{name} has lines that are no rows; they are left out"
        return rows

    def _take_metrics(self, lines: list[bytes], name: str) -> None:
        for row in self._parse(lines, name):
            self.metrics.add(row)

    def _take_episodes(self, lines: list[bytes], name: str) -> None:
        rows = self._parse(lines, name)
        steps, returns = ([to_number(row.get(key)) for row in rows] for key in ("env_steps", "return"))
        self.episodes.add(np.array(steps, dtype=float), np.array(returns, dtype=float))

    def _take_evaluations(self, lines: list[bytes], name: str) -> None:
        rows = self._parse(lines, name)
        found = [(to_number(row.get("env_steps")), to_number(row.get("return_mean"))) for row in rows]
        self.evaluations += [pair for pair in found if np.isfinite(pair).all()]
        del self.evaluations[:-MOST_EVALUATIONS]

    # Packed curves

    def _has_packed_curves(self) -> bool:
        signature = self.place.signature
        has_rows = signature("metrics.jsonl") or signature("metrics.jsonl.gz")
        self.is_packed = not has_rows and signature("curves.json.gz") is not None
        return self.is_packed

    def _read_packed(self) -> bool:
        self.is_more = False
        signature = (self.place.signature("summary.json"), self.place.signature("curves.json.gz"))
        if signature == self._packed_signature:
            return False
        self._packed_signature = signature
        self.metrics.clear()
        self.episodes.clear(self.total_steps)
        try:
            self._take_curves(read_curves(self.place))
            self.problems.pop("curves.json.gz", None)
        except (UnreadableFileError, LookupError, TypeError, ValueError, AttributeError) as error:
            self.problems["curves.json.gz"] = f"curves.json.gz cannot be read: {error}"
        return True

    def _take_curves(self, curves: dict) -> None:
        metrics = curves["metrics"]
        known = [name for name in NUMBERS if name in metrics]
        kinds = {name: "max" if name.endswith("_max") else "mean" for name in known}
        columns = {name: to_column(metrics[name][kinds[name]]) for name in known}
        bins = len(curves["episodes"]["count"])
        total = self.total_steps or read_json(self.place, "summary.json").get("env_steps") or bins
        columns["env_steps"] = np.arange(1, bins + 1) * total / bins
        table = np.stack([columns.get(name, np.full(bins, np.nan)) for name in NUMBERS], 1)
        for row in table[np.isfinite(columns["ratio_deviation_max"])].tolist():
            self.metrics.add_numbers(row)
        count, mean, std = (to_column(curves["episodes"][name]) for name in ("count", "mean", "std"))
        self.episodes.add_bins(columns["env_steps"], np.nan_to_num(count), mean, std)


def read_curves(place: Place) -> dict:
    """Read what spo pack keeps of a run's curves."""
    packed = read_file(place, "curves.json.gz", LARGEST_CURVES)
    try:
        content = zlib.decompressobj(wbits=31).decompress(packed or b"", LARGEST_CURVES + 1)
    except zlib.error as error:
        raise UnreadableFileError(f"curves.json.gz is damaged: {error}")
    if len(content) > LARGEST_CURVES:
        raise UnreadableFileError(f"curves.json.gz holds more than {LARGEST_CURVES:,} bytes")
    return parse_object(content, "curves.json.gz")


def to_column(values: list) -> np.ndarray:
    """Make an array of a packed curve, NaN where it has nothing."""
    return np.array([to_number(value) for value in values[:MOST_BINS]])
