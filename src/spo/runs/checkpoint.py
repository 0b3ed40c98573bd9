"""Checkpoints: a run's whole state as a directory that appears all at once, and is loaded only if its checksums match.

    checkpoints/00000120/state.safetensors   every array
                         state.json          every other value
                         config.json         a copy of the run's, in case that one is damaged
                         policy/             the policy as it was then, which has a checksum of its own
                         manifest.json       size and SHA-256 of the three files, and how long the run's logs were

Order of publishing: write and fsync the files in a hidden directory, fsync it, rename it, fsync its parent, and only
then remove old ones (renamed first, so that half a removal is never taken for a checkpoint). No torch here.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from spo.errors import CorruptRunError
from spo.runs.directory import RunDirectory
from spo.runtime.files import (
    LARGEST_FILE,
    LARGEST_TEXT,
    add_checksum,
    canonical_json,
    check_header,
    parse_json,
    read_bounded,
    sha256,
    sync,
    verify_checksum,
    write_file,
)

FORMAT = 1
ARRAYS, VALUES, CONFIG, MANIFEST, POLICY = "state.safetensors", "state.json", "config.json", "manifest.json", "policy"
LARGEST = {ARRAYS: LARGEST_FILE, VALUES: LARGEST_TEXT, CONFIG: LARGEST_TEXT}
SEPARATOR = "/"
DAMAGED = "damaged-"
StateDict = dict[str, Any]
"""A nested state: dictionaries with names as keys, and arrays or JSON values as leaves."""


class CorruptCheckpoint(Exception):
    """What is wrong with a checkpoint."""


@dataclass(frozen=True)
class Snapshot:
    """The state between two iterations, and how many bytes of each log belong to it."""

    iteration: int
    state: StateDict
    logs: dict[str, int]


def save_checkpoint(
    run: RunDirectory, snapshot: Snapshot, keep: int, save_policy: Callable[[Path], object] | None = None
) -> Path:
    """Write a checkpoint durably, with its policy if there is one, then remove all but the newest `keep`."""
    target = run.checkpoints / f"{snapshot.iteration:08}"
    if not target.exists():
        _write(run, snapshot, target, save_policy)
    _prune(run, keep)
    return target


def _write(run: RunDirectory, snapshot: Snapshot, target: Path, save_policy: Callable[[Path], object] | None) -> None:
    hidden = run.checkpoints / f".new-{target.name}"
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir(parents=True)
    for log in snapshot.logs:
        sync(run.path / log)
    arrays, values = split(snapshot.state)
    contents = {ARRAYS: save(arrays), VALUES: canonical_json(values), CONFIG: run.config.read_bytes()}
    for name, content in contents.items():
        write_file(hidden / name, content)
    files = {name: {"bytes": len(content), "sha256": sha256(content)} for name, content in contents.items()}
    if save_policy:
        save_policy(hidden / POLICY)
    manifest = {"format": FORMAT, "iteration": snapshot.iteration, "files": files, "logs": snapshot.logs}
    write_file(hidden / MANIFEST, canonical_json(add_checksum(manifest)))
    sync(hidden)
    hidden.rename(target)
    sync(run.checkpoints)


def _prune(run: RunDirectory, keep: int) -> None:
    for old in list_checkpoints(run)[keep:]:
        old.rename(old.with_name(f".old-{old.name}"))
    remove_leftovers(run)


def remove_leftovers(run: RunDirectory) -> None:
    """Remove what a killed process left half written or half removed."""
    for leftover in leftovers(run):
        shutil.rmtree(leftover, ignore_errors=True)


def leftovers(run: RunDirectory) -> list[Path]:
    return sorted(path for path in run.checkpoints.glob(".*-*") if path.is_dir())


def list_checkpoints(run: RunDirectory) -> list[Path]:
    """The checkpoints of a run, newest first, good or not."""
    return sorted((path for path in run.checkpoints.glob("[0-9]*") if path.is_dir()), reverse=True)


def load_newest(run: RunDirectory) -> tuple[Snapshot | None, list[str]]:
    """The newest checkpoint whose checksums match, and a sentence for each damaged one, which is set aside.

    Where all are damaged the run is refused as it is: to start it over would cost all that it came to.
    """
    damaged: dict[Path, CorruptCheckpoint] = {}
    for path in list_checkpoints(run):
        try:
            snapshot = read(run, path)
        except CorruptCheckpoint as damage:
            damaged[path] = damage
        else:
            return snapshot, [_set_aside(path, damage) for path, damage in damaged.items()]
    if damaged:
        found = "; ".join(f"{path.name}: {damage}" for path, damage in damaged.items())
        start = f"without {run.checkpoints} it starts from the beginning"
        raise CorruptRunError(f"no checkpoint of {run.path} can be used ({found}); nothing was changed, and {start}")
    return None, []


def _set_aside(path: Path, damage: CorruptCheckpoint) -> str:
    aside = _quarantine(path)
    return f"checkpoint {path.name} is damaged ({damage}); it is set aside as {aside.name}"


def _quarantine(path: Path) -> Path:
    aside, number = path.with_name(DAMAGED + path.name), 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{DAMAGED}{path.name}-{number}")
    return path.rename(aside)


def read(run: RunDirectory, path: Path) -> Snapshot:
    """Read a checkpoint whose every byte matches its manifest, or raise CorruptCheckpoint."""
    try:
        manifest = verify_checksum(read_bounded(path / MANIFEST, LARGEST_TEXT))
        if manifest["format"] != FORMAT:
            raise ValueError(f"its format is {manifest['format']!r}, this version reads {FORMAT}")
        contents = {name: _read_verified(path / name, manifest["files"][name]) for name in LARGEST}
        if manifest["iteration"] != int(path.name):
            raise ValueError(f"it belongs to iteration {manifest['iteration']}")
        _check_logs(run, manifest["logs"])
        state = join(load(check_header(contents[ARRAYS])), parse_json(contents[VALUES]))
        return Snapshot(manifest["iteration"], state, manifest["logs"])
    except (PermissionError, MemoryError) as error:  # says nothing about the file
        reason = getattr(error, "strerror", None) or "there is not enough memory"
        raise CorruptRunError(f"checkpoint {path} cannot be read: {reason}")
    except Exception as error:  # whatever a damaged file provokes in a parser is damage
        raise CorruptCheckpoint(f"{type(error).__name__}: {error}" if not isinstance(error, ValueError) else str(error))


def _read_verified(path: Path, entry: Mapping[str, Any]) -> bytes:
    content = read_bounded(path, min(entry["bytes"], LARGEST[path.name]))
    if len(content) != entry["bytes"] or sha256(content) != entry["sha256"]:
        raise ValueError(f"{path.name} does not match its checksum")
    return content


def _check_logs(run: RunDirectory, logs: Mapping[str, int]) -> None:
    own = [path.name for path in run.logs]
    for name, size in logs.items():
        if name not in own or type(size) is not int or size < 0:
            raise ValueError(f"it continues {name!r} from {size!r}; accepted are {', '.join(own)} and numbers of bytes")
        found = (run.path / name).stat().st_size if (run.path / name).exists() else 0
        if found < size:
            raise ValueError(f"{name} has {found} bytes, this checkpoint continues it from {size}")


def drop_final_policy(run: RunDirectory, snapshot: Snapshot | None) -> None:
    """Remove the policy that an earlier end of the run left, where the checkpoint that it goes on from has its own."""
    if snapshot and (run.checkpoints / f"{snapshot.iteration:08}" / POLICY / "policy.json").exists():
        shutil.rmtree(run.policy, ignore_errors=True)


def split(tree: StateDict, path: str = "") -> tuple[dict[str, np.ndarray], StateDict]:
    """The arrays of a tree by their paths, and the tree without them."""
    arrays: dict[str, np.ndarray] = {}
    values: StateDict = {}
    for name, value in tree.items():
        if isinstance(value, np.ndarray):
            arrays[path + name] = np.ascontiguousarray(value)
        elif isinstance(value, dict):
            inner, values[name] = split(value, path + name + SEPARATOR)
            arrays |= inner
        else:
            values[name] = value
    return arrays, values


def join(arrays: Mapping[str, np.ndarray], values: StateDict) -> StateDict:
    """The tree that was split."""
    for path, array in arrays.items():
        *parents, name = path.split(SEPARATOR)
        place = values
        for parent in parents:
            place = place[parent]
        if name in place:
            raise ValueError(f"{path} stands twice in it")
        place[name] = array
    return values


def check_alike(state: StateDict, own: StateDict, path: str = "") -> None:
    """ValueError unless a state is one that this training can take over: the same names, arrays, kinds of values."""
    for name in sorted(state.keys() | own.keys()):
        found, wanted = (tree.get(name) for tree in (state, own))
        if isinstance(found, dict) and isinstance(wanted, dict):
            check_alike(found, wanted, path + name + SEPARATOR)
        elif _kind(found) != _kind(wanted) and not _is_empty(wanted, found):
            raise ValueError(f"{path}{name} is {_kind(found)}, this run has {_kind(wanted)}")


def _kind(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    return "a number" if type(value) in (int, float) else type(value).__name__


def _is_empty(wanted: object, found: object) -> bool:
    """What has no length yet, such as the actions of episodes that just began, may have any."""
    if not isinstance(wanted, np.ndarray) or not isinstance(found, np.ndarray):
        return False
    return len(wanted) == 0 and wanted.shape[1:] == found.shape[1:]


def truncate_logs(run: RunDirectory, logs: Mapping[str, int]) -> None:
    """Cut what was written after the checkpoint; without one, everything."""
    for path in run.logs:
        if path.exists():
            os.truncate(path, logs.get(path.name, 0))
