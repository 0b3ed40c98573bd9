"""A sweep made small enough to publish: every run's settings, status, metrics and episodes, the last two compressed."""

import gzip
import shutil
from pathlib import Path

from spo.bench.results import Results
from spo.bench.suites import Sweep
from spo.checkpoint import Tree, sealed
from spo.errors import Refusal
from spo.rundir import RunDirectory, write_json, writing


def pack(source: Path, target: Path) -> None:
    """Writes the finished runs of a sweep into a new directory, from which tables, figures and report can be made."""
    sweep = Sweep.open(source)
    with writing(f"--out {target}"):
        target.mkdir(parents=True, exist_ok=True)
        is_used = any(target.iterdir())
    if is_used:
        raise Refusal(f"--out {target} is not empty; name a new directory")
    shutil.copyfile(source / "plan.json", target / "plan.json")
    for cell, run in Results(sweep).runs.items():
        if run.state == "finished":
            _pack_run(run.directory, Sweep(target, sweep.plan).run(cell))


def _pack_run(run: RunDirectory, target: RunDirectory) -> None:
    target.path.mkdir(parents=True)
    shutil.copyfile(run.status, target.status)
    write_json(target.config, sealed(_without_paths(run.read_config())))
    for path in (run.metrics, run.episodes):
        packed = path.with_name(f"{path.name}.gz")  # of a run that was packed before
        # No time in the header, so that the same rows give the same bytes.
        content = packed.read_bytes() if packed.exists() else gzip.compress(path.read_bytes(), mtime=0)
        (target.path / packed.name).write_bytes(content)


def _without_paths(record: Tree) -> Tree:
    """Where a run lay on somebody's machine is nobody else's business."""
    kept = {name: value for name, value in record.items() if name != "sha256"}
    return kept | {"settings": record["settings"] | {"out": None, "config": None}}
