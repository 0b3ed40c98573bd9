"""Stopped runs, continued from their newest good checkpoint."""

import dataclasses
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from spo.config.config import Config
from spo.config.env_ids import names_module
from spo.config.validation import coerce, config_from_dict, validate
from spo.envs.factory import env_maker
from spo.envs.make import MakeEnv
from spo.errors import SpoError, printable
from spo.models.policy_files import load_policy
from spo.runs import checkpoint
from spo.runs.checkpoint import Snapshot, StateDict
from spo.runs.console import announce
from spo.runs.directory import RunDirectory
from spo.runs.loggers import TensorBoardLogger
from spo.runs.record import machine, read_record, versions
from spo.runs.recorder import Recorder
from spo.runs.start import Callback, Run, describe_backend, lock_run, name_of, run_to_completion, write_record
from spo.runtime import signals
from spo.runtime.files import LARGEST_TEXT, read_bounded, replace_file
from spo.trainer import Trainer


def resume(
    run: str | os.PathLike,
    *,
    env: str | MakeEnv | None = None,
    objective: str | None = None,
    steps: int | str | None = None,
    callback: Callback | None = None,
    quiet: bool = False,
) -> Run:
    """Continues a run from its newest good checkpoint, to the bit as if it had never stopped.

    An environment or objective that names a module of yours must be named again; `steps` gives a run a new length.
    """
    directory = RunDirectory.open(run)
    with lock_run(directory), signals.handled():
        boundary, told = checkpoint.newest(directory)
        checkpoint.sweep(directory)
        record = _config_record(directory, told)
        for line in told:
            _warn(line)
        if _is_finished(directory, record) and steps is None:
            return _finished_run(directory, quiet)
        config, changes = _resumed_config(record, env, objective, steps, boundary)
        training = Trainer(dataclasses.replace(config, quiet=quiet), env_maker(config, env))
        try:
            return _resumed(training, directory, record, boundary, changes, callback)
        finally:
            training.envs.close()


def _resumed(
    training: Trainer,
    directory: RunDirectory,
    record: StateDict,
    boundary: Snapshot | None,
    changes: list[str],
    callback: Callback | None,
) -> Run:
    _take_recorded_path(training, directory, record)
    if boundary:
        _restore(training, boundary)
        known = len(boundary.state["departures"])
        training.departures += changes
        for line in training.departures[known:]:
            _warn(f"not exact from here: {line}")
    checkpoint.truncate_logs(directory, boundary.logs if boundary else {})
    directory.summary()  # logs that cannot be read are better told now than after the last iteration
    _rewrite_tensorboard(training.config, directory)
    if record["settings"]["steps"] != training.config.steps:
        _record_new_length(directory, record, training)
    start = f"from iteration {boundary.iteration}" if boundary else "from the start: there is no checkpoint yet"
    announce(training.config, f"resumes {start}, {describe_backend(training)}")
    return run_to_completion(training, Recorder(training, directory, boundary), callback)


def _restore(training: Trainer, boundary: Snapshot) -> None:
    try:
        checkpoint.check_alike(boundary.state, training.state())
        training.restore(boundary.state)
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise SpoError(f"checkpoint {boundary.iteration} does not fit this run: {error}")


def _warn(line: str) -> None:
    print(f"warning: {printable(line)}", file=sys.stderr, flush=True)


def _config_record(directory: RunDirectory, told: list[str]) -> StateDict:
    """config.json; if it is damaged, a checkpoint's copy takes its place."""
    try:
        return read_record(read_bounded(directory.config, LARGEST_TEXT))
    except (OSError, ValueError, RecursionError) as error:
        copies = checkpoint.published(directory)
        if not copies:
            raise SpoError(f"{directory.config} is damaged ({error}), and there is no checkpoint to restore it from")
        told.append(f"config.json is damaged ({error}); it is restored from checkpoint {copies[0].name}")
        return _restored_record(directory, copies[0])


def _restored_record(directory: RunDirectory, copy: Path) -> StateDict:
    content = checkpoint.config_copy(copy)
    try:
        record = read_record(content)
    except (ValueError, RecursionError) as error:
        raise SpoError(f"{directory.config} is damaged, and so is the copy in checkpoint {copy.name} ({error})")
    replace_file(directory.config, content)
    return record


def _is_finished(directory: RunDirectory, record: StateDict) -> bool:
    try:
        status = directory.read_status()
    except SpoError:  # it is written again
        return False
    is_whole = status.get("iteration") == record["resolved"]["iterations"]
    return status.get("state") == "finished" and is_whole and (directory.policy / "policy.json").exists()


def _finished_run(directory: RunDirectory, quiet: bool) -> Run:
    if not quiet:
        print(f"{directory.path} is finished; --steps with a larger number continues it", file=sys.stderr)
    return Run(directory.path, load_policy(directory.path), directory.summary())


def _resumed_config(
    record: StateDict,
    env: str | MakeEnv | None,
    objective: str | None,
    steps: int | str | None,
    boundary: Snapshot | None,
) -> tuple[Config, list[str]]:
    """The recorded settings with the recorded path, and in what the run will not be exact."""
    resolved, settings = record["resolved"], dict(record["settings"])
    _check_repeated(record, env, objective)
    changes = _changed_surroundings(record)
    if steps is not None:
        settings["steps"] = coerce({"steps": steps})["steps"]
        changes.append(f"its length was changed from {record['settings']['steps']:,} to {settings['steps']:,} steps")
    path = {"backend": resolved["backend"], "threads": resolved["threads"], "rebuild_every": resolved["rebuild_every"]}
    if resolved["update"]:
        path["compile"] = "on" if resolved["update"] == "compiled" else "off"
    if boundary:
        path["init_from"] = None  # its weights are in the checkpoint
    config = validate(config_from_dict(settings | path))
    done = boundary.iteration if boundary else 0
    if steps is not None and config.iterations <= done:
        raise SpoError(f"--steps {steps} is not accepted: this run has made {done * config.batch_size:,} steps already")
    return config, changes


def _check_repeated(record: StateDict, env: str | MakeEnv | None, objective: str | None) -> None:
    """Nothing that a file names is imported unless the user names it too."""
    settings = record["settings"]
    given = name_of(env) if callable(env) else env
    needs = {"env": (settings["env"], given), "objective": (settings["objective"], objective)}
    for name, (recorded, repeated) in needs.items():
        if repeated is not None and repeated != recorded:
            raise SpoError(f"--{name} {repeated} is not this run's: it has {recorded}")
        if repeated is None and names_module([recorded, settings["env_arg"] if name == "env" else None]):
            raise SpoError(f"this run names a module of yours: repeat --{name} {recorded} to import it")
    if record["resolved"]["env_from"] == "callable" and not callable(env):
        raise SpoError(f"this run's environment was made by {settings['env']}: pass it as spo.resume(run, env=...)")


def _changed_surroundings(record: StateDict) -> list[str]:
    then = record["versions"] | record["machine"]
    now = versions() | machine()
    changed = [name for name in then if then[name] != now.get(name)]
    return [f"{name} was {then[name]} and is {now.get(name, 'missing')}" for name in changed]


def _take_recorded_path(training: Trainer, directory: RunDirectory, record: StateDict) -> None:
    recorded = record["resolved"]["update"]
    path, reason = training.choose_update_path()
    if recorded is None:  # killed while it compiled
        record["resolved"]["update"] = path
        write_record(directory, record)
    elif path != recorded:
        raise SpoError(f"this run's update was {recorded}, which cannot be had here ({reason})")


def _rewrite_tensorboard(config: Config, directory: RunDirectory) -> None:
    """The event files of the rows that count: theirs have no place at which they could be cut."""
    if not config.tensorboard:
        return
    shutil.rmtree(directory.tensorboard, ignore_errors=True)
    tensorboard = TensorBoardLogger(directory)
    for row in directory.read_metrics():
        tensorboard.write(row, [])
    tensorboard.write_episodes(directory.read_episodes())
    tensorboard.close()


def _record_new_length(directory: RunDirectory, record: StateDict, training: Trainer) -> None:
    config, resolved = training.config, record["resolved"]
    lengths: Mapping[str, int] = {"total_steps": config.total_steps, "iterations": config.iterations}
    change = {"iteration": training.iteration, "from": record["settings"]["steps"], "to": config.steps}
    record["settings"]["steps"] = config.steps
    record |= {"resolved": resolved | lengths, "lengthened": [*record.get("lengthened", []), change]}
    write_record(directory, record)
