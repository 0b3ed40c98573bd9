"""Runs of strangers: what a file can be spoilt with, each spoilt as cleverly as a stranger could."""

import hashlib
import io
import json
import os
import shutil
import socket
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.numpy import load, save

from spo.runs import checkpoint
from spo.runtime import files
from spo.runtime.files import LARGEST_FILE

STEER = "\x1b]0;pwned\x07"
REMOVED = object()
"""In place of a value: it is taken away."""
CHECKPOINT = "checkpoints/00000002"
FILES = {
    "policy/policy.json": ("load", "doctor", "evaluate"),
    "policy/policy.safetensors": ("load", "doctor"),
    "config.json": ("doctor", "evaluate", "config"),
    "status.json": ("doctor",),
    "metrics.jsonl": ("doctor",),
    f"{CHECKPOINT}/manifest.json": ("doctor",),
    f"{CHECKPOINT}/state.safetensors": ("doctor",),
    f"{CHECKPOINT}/state.json": ("doctor",),
    f"{CHECKPOINT}/config.json": (),
}
"""The files of a run, and what reads them; resuming reads them all."""
Poison = Callable[[Path], object]
"""Spoils the run in a directory."""


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def make_zip(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def make_torch_file(marker: Path) -> bytes:
    file = io.BytesIO()
    torch.save(Payload(marker), file)
    return file.getvalue()


def make_zip_bomb() -> bytes:
    return make_zip("policy.json", b"0" * 10**7)


def write_sparse(path: Path, size: int, start: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)


def describe(**changes) -> Poison:
    """A policy.json with other values."""

    def poison(run: Path) -> None:
        file = run / "policy" / "policy.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return poison


def write(name: str, content: bytes) -> Poison:
    """A file with other content; the checksums that a stranger can recompute are right again."""

    def poison(run: Path) -> None:
        (run / name).write_bytes(content)
        if name == "policy/policy.safetensors":
            describe(sha256=hashlib.sha256(content).hexdigest())(run)
        if name.startswith("checkpoints/"):
            reseal(run / Path(name).parent)

    return poison


def make_crowded_header() -> bytes:
    """Fifty thousand tensors of nothing."""
    text = json.dumps({f"t{number}": make_entry([0], [0, 0]) for number in range(50_000)}).encode()
    return struct.pack("<Q", len(text)) + text


def make_header(**tensors) -> bytes:
    """A safetensors file of a header alone, and 64 bytes of numbers."""
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text + bytes(64)


def make_entry(shape: list, offsets: list, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def swap(name: str, make) -> Poison:
    def poison(run: Path) -> None:
        path = run / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        make(path)

    return poison


def bind_socket(path: Path) -> None:
    os.chdir(path.parent)  # because the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def link_to(target: str) -> Poison:
    return lambda path: path.symlink_to(target)


STRANGERS = {
    "a pipe": os.mkfifo,
    "a socket": bind_socket,
    "a link to /dev/zero": link_to("/dev/zero"),
    "a link to /dev/null": link_to("/dev/null"),
    "a link to /etc/passwd": link_to("/etc/passwd"),
    "a link to a page table": link_to("/proc/self/pagemap"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": link_to("/nonexistent/file"),
    "a link to the parent": link_to(".."),
}
OTHERS = {
    "a directory": lambda path: path.mkdir(),
    "a file of almost 2 GB": lambda path: write_sparse(path, LARGEST_FILE - 1),
}


def record(part: str = "settings", **changes) -> Poison:
    """A config.json with other values, sealed as if a run had written it."""

    def poison(run: Path) -> None:
        record = files.verify_checksum((run / "config.json").read_bytes())
        if changes:
            record[part] |= changes
        else:
            del record[part]
        (run / "config.json").write_bytes(checkpoint.canonical_json(files.add_checksum(record)))
        (run / CHECKPOINT / "config.json").write_bytes((run / "config.json").read_bytes())
        reseal(run / CHECKPOINT)

    return poison


def reseal(path: Path, **changes) -> None:
    """Recomputes what a manifest says of its files."""
    file = path / "manifest.json"
    try:
        manifest = files.verify_checksum(file.read_bytes())
    except Exception:
        return  # the manifest itself is what was spoilt
    for name in manifest["files"]:
        content = (path / name).read_bytes()
        manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    file.write_bytes(checkpoint.canonical_json(files.add_checksum(manifest | changes)))


def set_array(name: str, array: object) -> Poison:
    """Another array in a checkpoint."""

    def poison(run: Path) -> None:
        file = run / CHECKPOINT / "state.safetensors"
        changed = load(file.read_bytes()) | {name: array}
        file.write_bytes(save({name: array for name, array in changed.items() if array is not REMOVED}))
        reseal(file.parent)

    return poison


def set_value(path: list[str], value: object) -> Poison:
    """Another value in a checkpoint."""

    def poison(run: Path) -> None:
        file = run / CHECKPOINT / "state.json"
        tree = json.loads(file.read_text())
        place = tree
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        if value is REMOVED:
            del place[path[-1]]
        file.write_text(json.dumps(tree))
        reseal(file.parent)

    return poison
