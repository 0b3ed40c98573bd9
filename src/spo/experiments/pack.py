"""Results made small enough to publish: of finished runs their settings, status, numbers and curves, or their rows; of
a single one its policy too."""

import gzip
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spo.errors import SpoError
from spo.experiments.history import pack_history
from spo.experiments.plan import Plan, merge
from spo.experiments.results import Result, Results
from spo.experiments.sweep import LoneRun, Sweep, open_sweep_or_run
from spo.runs.checkpoint import StateDict
from spo.runs.directory import RunDirectory
from spo.runtime.files import (
    LARGEST_LOG,
    add_checksum,
    canonical_json,
    is_empty,
    lock_directory,
    packed_path,
    read_bounded,
    translate_os_errors,
    write_file,
)
from spo.runtime.formatting import plural

STAGING = ".packing"
"""In the target: where everything is written before any of it is put in its place."""


@dataclass(frozen=True)
class Packed:
    """What a call has packed."""

    path: Path
    added: int
    size: int  # bytes of the added runs
    known: int  # runs that were there before
    left_out: Mapping[str, int]  # by state

    def __str__(self) -> str:
        size = f", {self.size / self.added / 1000:.1f} kB{' each' * (self.added > 1)}" if self.added else ""
        known = [f"{self.known} were there"] if self.known else []
        left_out = [f"{count} {state}, left out" for state, count in sorted(self.left_out.items())]
        return "; ".join([f"{plural(self.added, 'run')} packed into {self.path}{size}", *known, *left_out])


def pack_named(source: str, out: str | None, into: str | None, keeps_rows: bool) -> Packed:
    """As the command line asks for it."""
    if bool(out) == bool(into):
        raise SpoError("spo pack needs one of --out, a new directory, and --into, a pack to add to")
    opened = open_sweep_or_run(Path(source))
    if not isinstance(opened, LoneRun):
        return pack(Path(source), Path(out or into), bool(out), keeps_rows)
    if into:
        raise SpoError(
            f"--into {into} takes runs of a sweep, and {source} is a single run: name --out, a new directory"
        )
    return pack_run(opened, Path(out), keeps_rows)


def pack(source: Path, target: Path, is_new: bool = True, keeps_rows: bool = False) -> Packed:
    """Write the finished runs of a sweep into a new directory, or add them to those that are there."""
    where = f"{'--out' if is_new else '--into'} {target}"
    sweep = Sweep.open(source)
    with translate_os_errors(where), lock_directory(target):
        there = _open_target(target, where, is_new)
        plan = merge(there.plan, sweep.plan, where) if there else sweep.plan
        runs = list(Results(sweep).runs.values())
        finished = _check_finished(runs, source, keeps_rows)
        new = _not_there(finished, Sweep(target, plan), where)
        size = _publish(Sweep(target, plan), new, keeps_rows)
    left_out = Counter(run.state for run in runs if run.state != "finished")
    return Packed(target, len(new), size, len(finished) - len(new), left_out)


def pack_run(source: LoneRun, target: Path, keeps_rows: bool = False) -> Packed:
    """Write a finished run that belongs to no sweep, and its policy, into a new directory."""
    where = f"--out {target}"
    _open_target(target, where, is_new=True)
    (run,) = _check_finished(list(Results(source).runs.values()), source.path, keeps_rows)
    policy = _policy_files(source.path)
    staged = RunDirectory(target.with_name(f"{STAGING}-{target.name}"))
    with translate_os_errors(where):
        try:
            shutil.rmtree(staged.path, ignore_errors=True)
            staged.policy.mkdir(parents=True)
            size = _write_run(run, staged, keeps_rows) + _write(policy, staged.policy)
            staged.path.replace(target)
        finally:
            shutil.rmtree(staged.path, ignore_errors=True)
    return Packed(target, 1, size, 0, {})


def _policy_files(run: Path) -> dict[str, bytes]:
    """The files of a run's final policy, which is loaded first: what is damaged is not published."""
    from spo.models.policy_files import load_newest_policy  # brings torch, which sweeps are packed without

    _, folder = load_newest_policy(run)
    return {path.name: path.read_bytes() for path in sorted(folder.glob("policy.*"))}


def _open_target(target: Path, where: str, is_new: bool) -> Sweep | None:
    """The pack that is added to, if there is one."""
    with translate_os_errors(where):
        is_used = os.path.lexists(target) and not is_empty(target, besides=STAGING)
    is_pack = is_used and os.path.isfile(target / "plan.json")
    if is_used and is_new:
        hint = f", or add to it with --into {target}" if is_pack else ""
        raise SpoError(f"{where} is not empty; name a new directory{hint}")
    if is_used and not is_pack:
        raise SpoError(f"{where} is not empty and holds no plan.json; accepted is what spo pack has made")
    return Sweep.open(target) if is_used else None


def _check_finished(runs: list[Result], source: Path, keeps_rows: bool) -> list[Result]:
    finished = [run for run in runs if run.state == "finished"]
    for run in runs:
        if run.state == "damaged":
            raise SpoError(f"{run.directory.path} is damaged, so nothing was packed: {run.reason}")
    for run in finished:
        if keeps_rows and run.history.is_packed:
            raise SpoError(f"{run.directory.path} has no rows for --rows to keep: it was packed without them")
    if not finished:
        raise SpoError(f"{source} has no finished run, so there is nothing to pack")
    return finished


# Adding to a pack


def _not_there(runs: list[Result], target: Sweep, where: str) -> list[Result]:
    """The runs that the target does not have; those that it has must be the same."""
    there = Results(target).runs
    for run in runs:
        _check_same(run, there[run.cell], where)
    return [run for run in runs if there[run.cell].state == "waiting"]


def _check_same(run: Result, other: Result, where: str) -> None:
    if other.state == "waiting":
        if os.path.lexists(other.directory.path):
            raise SpoError(f"{other.directory.path} is there but holds no run; delete it to pack {run.cell}")
    elif other.state != "finished":
        raise SpoError(f"{where} holds {run.cell}, which is {other.state_text}; nothing was packed")
    else:
        mine, theirs = _facts(run), _facts(other)
        for name in (name for name in mine if name in theirs and mine[name] != theirs[name]):
            problem = f"{name} is {theirs[name]} there and {mine[name]} here"
            raise SpoError(f"{where} holds another run of {run.cell}: {problem}; nothing was packed")


def _facts(run: Result) -> dict[str, object]:
    """What is the same for the same run, however it was kept."""
    parts = {part: _strip_paths(run.config)[part] for part in ("settings", "resolved", "versions", "machine")}
    facts = {f"{name} ({part})": value for part, values in parts.items() for name, value in values.items()}
    numbers = {name: value for name, value in run.history.numbers.items() if name not in ("format", "metrics")}
    return facts | numbers | {f"{name} (metrics)": own for name, own in run.history.numbers["metrics"].items()}


# Writing


def _publish(target: Sweep, runs: list[Result], keeps_rows: bool) -> int:
    """Write all files aside, then move them, the plan first: what lies in the target is a pack at any moment."""
    staged = Sweep(target.path / STAGING, target.plan)
    try:
        shutil.rmtree(staged.path, ignore_errors=True)
        size = _write_all(staged, target.plan, runs, keeps_rows)
        (staged.path / "plan.json").replace(target.path / "plan.json")
        for run in runs:
            place = target.run(run.cell).path
            place.parent.mkdir(parents=True, exist_ok=True)
            staged.run(run.cell).path.rename(place)
        return size
    finally:
        shutil.rmtree(staged.path, ignore_errors=True)


def _write_all(staged: Sweep, plan: Plan, runs: list[Result], keeps_rows: bool) -> int:
    staged.path.mkdir(parents=True)
    write_file(staged.path / "plan.json", canonical_json(plan.as_json()))
    for run in runs:
        staged.run(run.cell).path.mkdir(parents=True)
    return sum(_write_run(run, staged.run(run.cell), keeps_rows) for run in runs)


def _write_run(run: Result, directory: RunDirectory, keeps_rows: bool) -> int:
    records = {
        directory.status.name: canonical_json(run.status),
        directory.config.name: canonical_json(add_checksum(_strip_paths(run.config))),
    }
    return _write(
        records | (_compress_rows(run.directory) if keeps_rows else pack_history(run.history)), directory.path
    )


def _write(files: Mapping[str, bytes], folder: Path) -> int:
    """Write files by name, and return how many bytes they have."""
    for name, content in files.items():
        write_file(folder / name, content)
    return sum(map(len, files.values()))


def _compress_rows(directory: RunDirectory) -> dict[str, bytes]:
    return {packed_path(path).name: _compress(path) for path in (directory.metrics, directory.episodes)}


def _compress(path: Path) -> bytes:
    if packed_path(path).exists():  # of a run that was packed before
        return read_bounded(packed_path(path), LARGEST_LOG)
    # No time in the header, so that the same rows give the same bytes.
    return gzip.compress(read_bounded(path, LARGEST_LOG), mtime=0)


def _strip_paths(record: Mapping) -> StateDict:
    """Where a run lay on somebody's machine is nobody else's business."""
    kept = {name: value for name, value in record.items() if name != "sha256"}
    return kept | {"settings": record["settings"] | {"out": None, "config": None}}
