"""Examines a run directory: what is wrong, and what can be done. Changes nothing."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from spo import checkpoint
from spo.checkpoint import Damage, unsealed
from spo.errors import Refusal
from spo.policy import load_policy
from spo.rundir import RunDirectory, read_bounded

Finding = tuple[bool, str]
"""Whether all is well, and a sentence."""


def examine(run: str | os.PathLike) -> bool:
    """Prints a line for each part of the run; whether all of them are well."""
    directory = RunDirectory(run)
    if not directory.path.is_dir():
        raise Refusal(f"{run} is not a directory")
    findings = list(all_findings(directory))
    for is_well, sentence in findings:
        print(f"{'ok     ' if is_well else 'PROBLEM'}  {sentence}")
    print(advice(directory, findings))
    return all(is_well for is_well, _ in findings)


def all_findings(run: RunDirectory) -> Iterator[Finding]:
    yield _config(run)
    yield _status(run)
    for path in run.logs:
        if path.exists():
            yield _log(path)
    yield from _checkpoints(run)
    yield from _remains(run)
    if run.policy.exists():
        yield _policy(run)


def advice(run: RunDirectory, findings: list[Finding]) -> str:
    """The one thing to do next."""
    if holder := run.holder():
        return f"the run is going on ({holder}): nothing to do"
    state, good = _state(run), _good_checkpoints(run)
    if not findings[0][0] and not good:
        return "nothing here can be resumed: start the run again"
    if state == "finished":
        return "the run is finished" if all(ok for ok, _ in findings) else "what can still be had is marked ok"
    origin = f"iteration {int(good[0].name)}" if good else "the start: there is no good checkpoint"
    return f"spo resume {run.path} continues from {origin}"


def _config(run: RunDirectory) -> Finding:
    try:
        settings = unsealed(read_bounded(run.config))["settings"]
        return True, f"config.json: {settings['env']}, {settings['objective']}, seed {settings['seed']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        remedy = "resuming restores it from a checkpoint" if _good_checkpoints(run) else "it cannot be restored"
        return False, f"config.json: {error}; {remedy}"


def _status(run: RunDirectory) -> Finding:
    try:
        status = run.read_status()
    except Refusal as refusal:
        return False, f"status.json: {refusal}; resuming writes it again"
    state, holder = status.get("state"), run.holder()
    if state == "running" and not holder:
        return False, f"status.json: the run was killed after iteration {status['iteration']}"
    reason = f" ({status['reason']})" if status.get("reason") else ""
    exact = "" if status.get("exact", True) else f"; not exact: {'; '.join(status['departures'])}"
    return state != "failed", f"status.json: {state or 'not begun'}{reason}{exact}"


def _log(path: Path) -> Finding:
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            json.loads(line)
        except ValueError:
            return (
                False,
                f"{path.name}: line {number} of {len(lines)} is damaged; resuming cuts what is new",
            )
    return True, f"{path.name}: {len(lines)} rows"


def _checkpoints(run: RunDirectory) -> Iterator[Finding]:
    for path in checkpoint.published(run):
        try:
            checkpoint.read(run, path)
            yield True, f"checkpoint {path.name}"
        except Damage as damage:
            yield False, f"checkpoint {path.name}: {damage}; resuming sets it aside and takes an older one"


def _good_checkpoints(run: RunDirectory) -> list[Path]:
    return [path for path, (is_well, _) in zip(checkpoint.published(run), _checkpoints(run)) if is_well]


def _remains(run: RunDirectory) -> Iterator[Finding]:
    for path in checkpoint.leftovers(run):
        yield True, f"{path.name}: left by a process that was killed; resuming removes it"
    for path in sorted(run.checkpoints.glob(checkpoint.DAMAGED + "*")):
        yield True, f"{path.name}: set aside as damaged; it can be deleted"


def _policy(run: RunDirectory) -> Finding:
    try:
        load_policy(run.policy)
        return True, "policy: loads"
    except Refusal as refusal:
        return False, f"policy: {refusal}; resuming an unfinished run writes it again"


def _state(run: RunDirectory) -> str | None:
    try:
        return run.read_status().get("state")
    except Refusal:
        return None
