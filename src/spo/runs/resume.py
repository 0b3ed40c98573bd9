"""Stopped runs, continued from their newest good checkpoint."""

import dataclasses
import importlib
import os
import sys
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

from spo.config.config import Config
from spo.config.env_ids import names_module
from spo.config.sources import to_plain
from spo.config.validation import coerce, config_from_dict, validate
from spo.envs.factory import env_maker
from spo.envs.make import MakeEnv
from spo.errors import ConfigError, CorruptRunError, SpoError, printable
from spo.models.policy_files import load_policy
from spo.runs import checkpoint
from spo.runs.checkpoint import Snapshot
from spo.runs.console import announce, describe, say
from spo.runs.directory import RunDirectory
from spo.runs.loggers import Logger
from spo.runs.record import RunRecord, check_wrappers_repeated, machine, versions
from spo.runs.recorder import Recorder
from spo.runs.start import Run, choose_update_path, describe_backend, lock_run, name_of, run_to_completion
from spo.runtime import signals
from spo.runtime.files import LARGEST_TEXT, read_bounded, replace_file
from spo.trainer import Callback, Trainer


def resume(
    run: str | os.PathLike[str],
    *,
    env: str | MakeEnv | None = None,
    objective: str | None = None,
    encoder: str | None = None,
    wrapper: Sequence[str] = (),
    steps: int | str | None = None,
    callback: Callback | None = None,
    loggers: Sequence[Logger] = (),
    quiet: bool = False,
) -> Run:
    """Continue a run from its newest good checkpoint, to the bit as if it had never stopped.

    What names a module of yours (environment, objective, encoder) must be named again; `steps` is a new length.
    """
    directory = RunDirectory.open(run)
    with lock_run(directory), signals.install_handlers():
        snapshot, warnings = checkpoint.load_newest(directory)
        checkpoint.remove_leftovers(directory)
        record = _config_record(directory, warnings)
        for line in warnings:
            _warn(line)
        if _is_finished(directory, record) and steps is None:
            return _report_finished(directory, encoder, quiet)
        if snapshot is None:
            _check_nothing_to_lose(directory)
        env = _import_class(record, env)
        check_wrappers_repeated(record.settings, wrapper)
        config, changes = _resume_config(record, env, objective, encoder, steps, snapshot)
        config = dataclasses.replace(config, quiet=quiet)
        announce(config)
        start = f"from iteration {snapshot.iteration}" if snapshot else "from the start: there is no checkpoint yet"
        say(config, f"resumes {start}")
        trainer = Trainer(config, env_maker(config, env))
        try:
            return _continue_run(trainer, directory, record, snapshot, changes, callback, loggers)
        finally:
            trainer.envs.close()


def _continue_run(
    trainer: Trainer,
    directory: RunDirectory,
    record: RunRecord,
    snapshot: Snapshot | None,
    changes: list[str],
    callback: Callback | None,
    loggers: Sequence[Logger],
) -> Run:
    describe(trainer.config, *describe_backend(trainer, "as before"))
    _take_recorded_path(trainer, directory, record, is_new=snapshot is None)
    if snapshot:
        _restore(trainer, snapshot)
        known = len(snapshot.state["departures"])
        trainer.inexact_reasons += changes
        for line in trainer.inexact_reasons[known:]:
            _warn(f"not exact from here: {line}")
    checkpoint.truncate_logs(directory, snapshot.logs if snapshot else {})
    checkpoint.drop_final_policy(directory, snapshot)
    directory.summary()  # logs that cannot be read are better told now than after the last iteration
    if record.settings["steps"] != trainer.config.steps:
        _record_new_length(directory, record, trainer)
    recorder = Recorder(trainer, directory, snapshot, loggers)
    recorder.rewind()
    return run_to_completion(trainer, recorder, callback)


def _restore(trainer: Trainer, snapshot: Snapshot) -> None:
    try:
        checkpoint.check_alike(snapshot.state, trainer.state())
        trainer.restore(snapshot.state)
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise CorruptRunError(f"checkpoint {snapshot.iteration} does not fit this run: {error}")


def _warn(line: str) -> None:
    print(f"warning: {printable(line)}", file=sys.stderr, flush=True)


def _config_record(directory: RunDirectory, warnings: list[str]) -> RunRecord:
    """config.json; if it is damaged, a checkpoint's copy takes its place."""
    try:
        return RunRecord.read(directory)
    except (OSError, ValueError, RecursionError) as error:
        copies = checkpoint.list_checkpoints(directory)
        if not copies:
            why = "and there is no checkpoint to restore it from"
            raise CorruptRunError(f"{directory.config} is damaged ({error}), {why}")
        warnings.append(f"config.json is damaged ({error}); it is restored from checkpoint {copies[0].name}")
        return _restore_record(directory, copies[0])


def _restore_record(directory: RunDirectory, copy: Path) -> RunRecord:
    content = read_bounded(copy / checkpoint.CONFIG, LARGEST_TEXT)  # proven when the checkpoint was read
    try:
        record = RunRecord.parse(content)
    except (ValueError, RecursionError) as error:
        raise CorruptRunError(f"{directory.config} is damaged, and so is the copy in checkpoint {copy.name} ({error})")
    replace_file(directory.config, content)
    return record


def _is_finished(directory: RunDirectory, record: RunRecord) -> bool:
    try:
        status = directory.read_status()
    except SpoError:  # it is written again
        return False
    has_reached_goal = record.settings.get("stop_at") is not None and status.get("reason") is not None
    is_whole = status.get("iteration") == record.resolved.iterations or has_reached_goal
    return status.get("state") == "finished" and is_whole and (directory.policy / "policy.json").exists()


def _report_finished(directory: RunDirectory, encoder: str | None, quiet: bool) -> Run:
    if not quiet:
        reason = directory.read_status().get("reason")
        hint = printable(str(reason)) if reason else "--steps with a larger number continues it"
        print(f"{directory.path} is finished; {hint}", file=sys.stderr)
    return Run(directory.path, load_policy(directory.path, encoder), directory.summary())


def _check_nothing_to_lose(directory: RunDirectory) -> None:
    """Refuse to start over what has a trained policy, such as a run that was packed or whose checkpoints are gone."""
    if directory.policy.exists():
        instead = f"--init-from {directory.path} starts another run from its policy"
        raise SpoError(f"{directory.path} has no checkpoint to go on from, only its policy; {instead}")


def _resume_config(
    record: RunRecord,
    env: str | MakeEnv | None,
    objective: str | None,
    encoder: str | None,
    steps: int | str | None,
    snapshot: Snapshot | None,
) -> tuple[Config, list[str]]:
    """The recorded settings with the recorded path, and in what the run will not be exact."""
    resolved, settings = record.resolved, dict(record.settings)
    _check_repeated(record, env, objective, encoder)
    changes = _list_changes(record)
    if steps is not None:
        settings["steps"] = coerce({"steps": to_plain(steps)})["steps"]
        if settings["steps"] != (before := record.settings["steps"]):
            changes.append(f"its length was changed from {before:,} to {settings['steps']:,} steps")
    threads = min(resolved.threads, os.cpu_count() or 1)
    if threads != resolved.threads:
        changes.append(f"threads were {resolved.threads} and are {threads}")
    path = {"backend": resolved.backend, "threads": threads, "rebuild_every": resolved.rebuild_every}
    if resolved.update:
        path["compile"] = "on" if resolved.update == "compiled" else "off"
    if snapshot:
        path["init_from"] = None  # its weights are in the checkpoint
    config = validate(config_from_dict(settings | path))
    done = snapshot.iteration if snapshot else 0
    if steps is not None and config.iterations <= done:
        made = f"{done * config.batch_size:,}"
        raise ConfigError(f"--steps {steps} is not accepted: this run has made {made} steps already")
    return config, changes


def _import_class(record: RunRecord, env: str | MakeEnv | None) -> str | MakeEnv | None:
    """What made the run's environments, where the user names it as module:Class; anything else as it was given."""
    if not isinstance(env, str) or record.resolved.env_from != "callable":
        return env
    module, separator, name = env.partition(":")
    if not separator or f"{module}.{name}" != record.settings["env"]:
        return env
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--env {env} cannot be imported: {error}")


def _check_repeated(record: RunRecord, env: str | MakeEnv | None, objective: str | None, encoder: str | None) -> None:
    """Nothing that a file names is imported unless the user names it too."""
    settings = record.settings
    given = name_of(env) if callable(env) else env
    needs = {"env": (settings["env"], given), "objective": (settings["objective"], objective)}
    needs["encoder"] = (settings["encoder"], encoder)
    for name, (recorded, repeated) in needs.items():
        if repeated is not None and repeated != recorded:
            raise ConfigError(f"--{name} {repeated} is not this run's: it has {recorded}")
        if repeated is None and names_module([recorded, settings["env_arg"] if name == "env" else None]):
            raise ConfigError(f"this run names a module of yours: repeat --{name} {recorded} to import it")
    if record.resolved.env_from == "callable" and not callable(env):
        raise ConfigError(f"this run's environment was made by {settings['env']}: pass it as spo.resume(run, env=...)")


def _list_changes(record: RunRecord) -> list[str]:
    then = record.versions | record.machine
    now = versions() | machine()
    changed = [name for name in then if then[name] != now.get(name)]
    return [f"{name} was {then[name]} and is {now.get(name, 'missing')}" for name in changed]


def _take_recorded_path(trainer: Trainer, directory: RunDirectory, record: RunRecord, is_new: bool) -> None:
    recorded = record.resolved.update
    path, reason = choose_update_path(trainer, directory, is_new)
    if recorded is None:  # killed while it compiled
        record.resolved.update = path
        record.write(directory)
    elif path != recorded:
        raise SpoError(f"this run's update was {recorded}, which cannot be had here ({reason})")


def _record_new_length(directory: RunDirectory, record: RunRecord, trainer: Trainer) -> None:
    config = trainer.config
    change = {"iteration": trainer.iteration, "from": record.settings["steps"], "to": config.steps}
    record.settings["steps"] = config.steps
    record.resolved.total_steps, record.resolved.iterations = config.total_steps, config.iterations
    record.lengthened.append(change)
    record.write(directory)
