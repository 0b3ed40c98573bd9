"""All runs and sweeps below the given directories, found and looked at as they come, change and go."""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from urllib.parse import quote_from_bytes

from spo.watch.files import Place, UnreadableFileError, read_json
from spo.watch.glance import Glance, look, show, take_signature
from spo.watch.history import History

DEEPEST, MOST_FOLDERS, MOST_ENTRIES, MOST_RUNS = 8, 20_000, 20_000, 2_000
MOST_NOTES, MOST_HISTORIES = 20, 64
LEAST_SECONDS = 0.4
"""Between two looks at all files, however many pages ask."""
SHARE_OF_TIME = 0.1
"""That finding runs may take."""


@dataclass
class Found:
    """What lies below the given directories."""

    runs: dict[str, tuple[Place, str]] = field(default_factory=dict)  # by key: where, and the key of its sweep
    sweeps: dict[str, Place] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    folders: int = 0

    def note(self, text: str) -> None:
        if len(self.notes) < MOST_NOTES:
            self.notes.append(text)


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep is called, and which runs belong to it."""

    key: str
    title: str
    labels: dict[str, str] = field(default_factory=dict)  # of its variants
    size: int = 0  # runs that were asked for


def find(roots: Sequence[Path]) -> Found:
    """Walk through the directories, in order of their names, through no link and not into runs."""
    found = Found()
    for index, root in enumerate(roots):
        if not root.is_dir():
            found.note(f"{root} is not a directory (yet)")
            continue
        _walk(Place(root), str(index), "", found)
    return found


def _walk(place: Place, prefix: str, sweep: str, found: Found) -> None:
    found.folders += 1
    try:
        entries = _entries(place, found)
    except OSError as error:
        found.note(f"{place.path} cannot be read: {error.strerror}")
        return
    key, files = make_key(prefix, place), {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    if "config.json" in files:
        if len(found.runs) < MOST_RUNS:
            found.runs[key] = (place, sweep)
        else:
            found.note(f"there are more than {MOST_RUNS:,} runs; the others are not shown")
        return
    if "plan.json" in files:
        sweep, found.sweeps[key] = key, place
    for name in _folders(place, entries, found):
        _walk(place.below(name), prefix, sweep, found)


def _entries(place: Place, found: Found) -> list[os.DirEntry]:
    with os.scandir(place.path) as listing:
        entries = list(islice(listing, MOST_ENTRIES + 1))
    if len(entries) > MOST_ENTRIES:
        found.note(f"{place.path} has more than {MOST_ENTRIES:,} entries; the others are not shown")
    return sorted(entries[:MOST_ENTRIES], key=lambda entry: entry.name)


def _folders(place: Place, entries: list[os.DirEntry], found: Found) -> Iterator[str]:
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_symlink():
            if os.path.isdir(entry.path):
                found.note(f"{entry.path} is a link, and links are not followed; spo watch takes it as a directory")
        elif entry.is_dir(follow_symlinks=False):
            if len(place.parts) >= DEEPEST or found.folders >= MOST_FOLDERS:
                found.note(f"{place.path} lies too deep, or there are too many directories; not all are shown")
                return
            yield entry.name


def make_key(prefix: str, place: Place) -> str:
    """Name a run in an address: the number of the given directory, and the way from there."""
    return "/".join([prefix, *(quote_from_bytes(os.fsencode(part)) for part in place.parts)])


class Catalogue:
    """The runs as they are now; pages ask it as often as they like."""

    def __init__(self, roots: Sequence[Path]):
        self.roots = [root.absolute() for root in roots]
        self.found = Found()
        self.glances: dict[str, Glance] = {}
        self.plans: dict[str, SweepPlan] = {}
        self.version = 0  # another number once anything has changed
        self._signatures: dict[str, tuple] = {}
        self._plan_signatures: dict[str, tuple | None] = {}
        self._histories: dict[str, History] = {}
        self._next_walk = self._next_look = 0.0

    def poll(self, seconds: float = 1.0) -> None:
        """Find runs, and look at those that have changed, for a while at most and not more often than is useful."""
        now = time.monotonic()
        if now < self._next_look:
            return
        if now >= self._next_walk:
            self._find(now)
        is_whole = self._look(now + seconds)
        self._next_look = time.monotonic() + (LEAST_SECONDS if is_whole else 0.0)

    def _find(self, now: float) -> None:
        found = find(self.roots)
        took = time.monotonic() - now
        self._next_walk = now + max(1.0, took / SHARE_OF_TIME)
        if set(found.runs) != set(self.found.runs) or found.notes != self.found.notes:
            self.version += 1
        self.found = found
        for gone in set(self.glances) - set(found.runs):
            del self.glances[gone], self._signatures[gone]
            self._histories.pop(gone, None)
        self._read_plans()

    def _read_plans(self) -> None:
        self.plans = {key: plan for key, plan in self.plans.items() if key in self.found.sweeps}
        for key, place in self.found.sweeps.items():
            signature = place.signature("plan.json")
            if key not in self.plans or self._plan_signatures.get(key) != signature:
                self.plans[key], self._plan_signatures[key] = read_plan(key, place), signature
                self.version += 1

    def _look(self, deadline: float) -> bool:
        """Look at the runs whose files have changed; whether there was time for all."""
        for key, (place, sweep) in self.found.runs.items():
            signature = (take_signature(place), self._is_quiet(key))
            if self._signatures.get(key) == signature:
                continue
            self.glances[key] = look(key, place, sweep)
            self._signatures[key] = signature
            self.version += 1
            if time.monotonic() > deadline:
                return False
        return True

    def _is_quiet(self, key: str) -> int:
        """Change once a minute for runs that say they are running: they fall silent without a word."""
        is_open = key in self.glances and self.glances[key].state in ("running", "silent", "starting")
        return int(time.time() // 30) if is_open else 0

    @property
    def is_whole(self) -> bool:
        """Whether every run that was found has been looked at."""
        return len(self.glances) >= len(self.found.runs)

    def history(self, key: str) -> History | None:
        """Follow a run's logs; those that were not asked for lately are forgotten."""
        glance = self.glances.get(key)
        if glance is None:
            return None
        history = self._histories.pop(key, None)
        if history is None or history.total_steps != glance.total_steps:
            history = History(self.found.runs[key][0], glance.total_steps)
        self._histories[key] = history  # the newest is the last
        while len(self._histories) > MOST_HISTORIES:
            del self._histories[next(iter(self._histories))]
        return history

    def place(self, key: str) -> Place | None:
        return self.found.runs[key][0] if key in self.found.runs else None

    def label(self, glance: Glance) -> str:
        """Name what a run is a run of: its variant in a sweep, its objective elsewhere."""
        plan = self.plans.get(glance.sweep)
        return plan.labels.get(glance.variant, glance.variant) if plan else glance.objective


def read_plan(key: str, place: Place) -> SweepPlan:
    """Read of a plan what names its runs; one that is none has the name of its directory."""
    name = place.parts[-1] if place.parts else place.root.name
    plan = SweepPlan(key, name)
    try:
        values = read_json(place, "plan.json")
        variants, tasks, seeds = values.get("variants"), values.get("tasks"), values.get("seeds")
        variants = variants if isinstance(variants, dict) else {}
        labels = {own: show(has.get("label", own)) for own, has in variants.items() if isinstance(has, dict)}
        counts = len(variants), len(tasks) if isinstance(tasks, list) else 0, seeds if type(seeds) is int else 0
        size = counts[0] * counts[1] * min(max(counts[2], 0), 10_000)
        return replace(plan, title=show(values.get("title", name)), labels=labels, size=size)
    except UnreadableFileError:
        return plan
