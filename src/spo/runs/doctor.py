"""Examines a run directory: what is wrong, and what can be done. Changes nothing."""

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from spo.errors import CorruptRunError, SpoError, printable
from spo.models.policy_files import EncoderNotNamed, load_policy
from spo.runs import checkpoint
from spo.runs.checkpoint import CorruptCheckpoint
from spo.runs.directory import RunDirectory
from spo.runs.record import RunRecord
from spo.runtime.files import LARGEST_LOG, read_bounded

Check = tuple[bool, str]
"""Whether all is well, and a sentence."""


def examine(run: str | os.PathLike[str]) -> bool:
    """Print a line for each part of the run; return whether all of them are well."""
    directory = RunDirectory(run)
    if not os.path.isdir(directory.path):
        raise CorruptRunError(f"{run} is not a directory; accepted is the directory of a run")
    try:
        checks = list(all_checks(directory))
    except PermissionError as error:
        raise CorruptRunError(f"{error.filename or run} cannot be read: {error.strerror}")
    for is_ok, sentence in checks:
        print(f"{'ok     ' if is_ok else 'PROBLEM'}  {printable(sentence)}")
    print(printable(advice(directory, checks)))
    return all(is_ok for is_ok, _ in checks)


def all_checks(run: RunDirectory) -> Iterator[Check]:
    yield _config(run)
    yield _status(run)
    for path in run.logs:
        if path.exists():
            yield _log(path)
    yield from _checkpoints(run)
    yield from _leftovers(run)
    for path in run.unexpected_entries():
        yield False, f"{path.relative_to(run.path)}: it is not what a run leaves there"
    if run.policy.exists():
        yield _policy(run)


def advice(run: RunDirectory, checks: list[Check]) -> str:
    """The one thing to do next."""
    if owner := run.lock_owner():
        return f"the run is going on ({owner}): nothing to do"
    if run.unexpected_entries():
        return "nothing is resumed or evaluated here before what no run leaves is gone"
    state, good = _state(run), _good_checkpoints(run)
    if not checks[0][0] and not good:
        return "nothing here can be resumed: start the run again"
    if state == "finished":
        return "the run is finished" if all(ok for ok, _ in checks) else "what can still be had is marked ok"
    return _advise_resuming(run, good)


def _advise_resuming(run: RunDirectory, good: list[Path]) -> str:
    if not good and run.policy.exists():
        return f"nothing here can be resumed: --init-from {run.path} starts another run from its policy"
    if not good and checkpoint.list_checkpoints(run):
        return f"no checkpoint can be used: without {run.checkpoints} the run can be started over"
    with suppress(OSError, ValueError, RecursionError):
        command = RunRecord.read(run).resume_command(run)
        return f"{command} {f'continues from iteration {int(good[0].name)}' if good else 'starts the run again'}"
    return f"spo resume {shlex.quote(str(run.path))} continues from iteration {int(good[0].name)}"


def _config(run: RunDirectory) -> Check:
    try:
        settings = RunRecord.read(run).settings
        return True, f"config.json: {settings['env']}, {settings['objective']}, seed {settings['seed']}"
    except (OSError, ValueError, RecursionError) as error:
        remedy = "resuming restores it from a checkpoint" if _good_checkpoints(run) else "it cannot be restored"
        return False, f"config.json: {error}; {remedy}"


def _status(run: RunDirectory) -> Check:
    try:
        return _describe_status(run, run.read_status())
    except (SpoError, LookupError, TypeError) as error:
        return False, f"status.json: {error}; resuming writes it again"


def _describe_status(run: RunDirectory, status: dict[str, Any]) -> Check:
    state, owner = status.get("state"), run.lock_owner()
    if state == "running" and not owner:
        return False, f"status.json: the run was killed after iteration {status['iteration']}"
    reason = f" ({status['reason']})" if status.get("reason") else ""
    exact = "" if status.get("exact", True) else f"; not exact: {'; '.join(status['departures'])}"
    return state != "failed", f"status.json: {state or 'not begun'}{reason}{exact}"


def _log(path: Path) -> Check:
    try:
        lines = read_bounded(path, LARGEST_LOG).splitlines(keepends=True)
    except (OSError, ValueError) as error:
        return False, f"{path.name}: {error}"
    for number, line in enumerate(lines, 1):
        try:
            dict(json.loads(line))
        except (ValueError, TypeError, RecursionError):
            return False, f"{path.name}: line {number} of {len(lines)} is damaged; resuming cuts what is new"
    return True, f"{path.name}: {len(lines)} rows"


def _checkpoints(run: RunDirectory) -> Iterator[Check]:
    for path in checkpoint.list_checkpoints(run):
        try:
            checkpoint.read(run, path)
            yield True, f"checkpoint {path.name}"
        except CorruptCheckpoint as damage:
            yield False, f"checkpoint {path.name}: {damage}; resuming sets it aside and takes an older one"
        except SpoError as refusal:
            yield False, str(refusal)


def _good_checkpoints(run: RunDirectory) -> list[Path]:
    return [path for path, (is_ok, _) in zip(checkpoint.list_checkpoints(run), _checkpoints(run)) if is_ok]


def _leftovers(run: RunDirectory) -> Iterator[Check]:
    for path in checkpoint.leftovers(run):
        yield True, f"{path.name}: left by a process that was killed; resuming removes it"
    for path in sorted(run.checkpoints.glob(checkpoint.DAMAGED + "*")):
        yield True, f"{path.name}: set aside as damaged; it can be deleted"


def _policy(run: RunDirectory) -> Check:
    try:
        load_policy(run.policy)
        return True, "policy: loads"
    except EncoderNotNamed:
        return True, "policy: has an encoder of yours, which is not imported here"
    except SpoError as refusal:
        return False, f"policy: {refusal}; resuming an unfinished run writes it again"


def _state(run: RunDirectory) -> str | None:
    try:
        return run.read_status().get("state")
    except SpoError:
        return None
