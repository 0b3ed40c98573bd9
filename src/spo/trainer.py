"""Whole runs: started, resumed, finished."""

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spo import checkpoint, interrupts
from spo.checkpoint import Boundary, Tree
from spo.checks import built, checked, typed
from spo.config import Config
from spo.envs.backends import env_maker
from spo.envs.making import EnvMaker, MakeEnv, names_module
from spo.envs.watchdog import Watched
from spo.errors import Refusal, printable
from spo.metrics import Row, TensorBoard, announce, print_summary
from spo.policy import Policy, load_policy
from spo.presets import make_config
from spo.profile import profiled, table
from spo.recording import Recorder, machine, read_record, record_of, versions
from spo.rundir import LARGEST_TEXT, RunDirectory, read_bounded, replace_file, unwritable, write_json
from spo.training import Training

Callback = Callable[[Training, Row], object]
"""Called after every iteration with the training and its newest metrics row; returning False ends the run."""


@dataclass(frozen=True)
class Run:
    """A training run that has ended."""

    directory: Path
    policy: Policy
    summary: dict[str, float | bool | None]


def train(env: str | MakeEnv, *, callback: Callback | None = None, **settings) -> Run:
    """Trains a policy on a Gymnasium id, or on what a callable makes; settings are those of `Config`."""
    config = make_config(env if isinstance(env, str) else name_of(env), **settings)
    return run_training(config, env_maker(config, env), callback)


def name_of(make_env: MakeEnv) -> str:
    """What a run calls an environment that a callable makes: with a dot, which no id or game has alone."""
    named = make_env if hasattr(make_env, "__qualname__") else type(make_env)
    return f"{named.__module__}.{named.__qualname__}"


def run_training(config: Config, make_env: EnvMaker, callback: Callback | None = None) -> Run:
    """A new run, from the environments to the saved policy."""
    RunDirectory.check_unused(config.out)
    with interrupts.handled():
        training = Training(config, make_env)
        try:
            directory = RunDirectory.create(config.out, f"{config.env}-{config.objective}-s{config.seed}")
            with _in_use(directory):
                RunDirectory.check_unused(str(directory.path))  # another process may have been first
                record = record_of(training)
                _write_record(directory, record)  # before compiling, so that a run killed there can be resumed
                path, reason = training.choose_update_path()
                record["resolved"]["update"] = path
                _write_record(directory, record)
                announce(config, f"update {path} ({reason}), {_backend(training)}")
                return _carried_out(training, Recorder(training, directory), callback)
        finally:
            training.envs.close()


@contextmanager
def _in_use(directory: RunDirectory) -> Iterator[None]:
    """No other process works on the run meanwhile, and a full or read-only disk is told in a sentence."""
    try:
        with directory.locked():
            yield
    except OSError as error:
        raise unwritable(directory.path, error) from error


def _carried_out(training: Training, recorder: Recorder, callback: Callback | None) -> Run:
    """Iterates until all is done, and leaves the directory in order however that ends."""
    directory = recorder.directory
    if isinstance(training.envs, Watched):
        training.envs.on_timeout = lambda reason: recorder.write_status("failed", reason)
    profile = profiled(training, recorder) if training.config.profile else None
    try:
        with interrupts.deferred():
            _iterate(training, recorder, callback)
            recorder.finish()
    except BaseException as error:
        told = recorder.stop(error)
        raise told from (None if told is error else error)
    finally:
        recorder.close()
    summary = directory.summary()
    print_summary(training.config, summary, directory)
    if profile:
        print(table(profile, training))
    return Run(directory.path, training.policy, summary)


def _iterate(training: Training, recorder: Recorder, callback: Callback | None) -> None:
    while training.iteration < training.config.iterations:
        started = time.perf_counter()
        row, episodes = training.iterate()
        row = training.timed(row, time.perf_counter() - started)
        recorder.record(row, episodes)
        if callback and callback(training, row) is False:
            return


def _write_record(directory: RunDirectory, record: Tree) -> None:
    write_json(directory.config, checkpoint.sealed(record), durable=True)


def _backend(training: Training) -> str:
    return f"backend {training.backend} ({training.backend_reason}), {training.threads} thread(s)"


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
    with _in_use(directory), interrupts.handled():
        boundary, told = checkpoint.newest(directory)
        checkpoint.sweep(directory)
        record = _config_record(directory, told)
        for line in told:
            _warn(line)
        if _is_finished(directory, record) and steps is None:
            return _finished_run(directory, quiet)
        config, changes = _resumed_config(record, env, objective, steps, boundary)
        training = Training(dataclasses.replace(config, quiet=quiet), env_maker(config, env))
        try:
            return _resumed(training, directory, record, boundary, changes, callback)
        finally:
            training.envs.close()


def _resumed(
    training: Training,
    directory: RunDirectory,
    record: Tree,
    boundary: Boundary | None,
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
    announce(training.config, f"resumes {start}, {_backend(training)}")
    return _carried_out(training, Recorder(training, directory, boundary), callback)


def _restore(training: Training, boundary: Boundary) -> None:
    try:
        checkpoint.check_alike(boundary.state, training.state())
        training.restore(boundary.state)
    except (LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise Refusal(f"checkpoint {boundary.iteration} does not fit this run: {error}")


def _warn(line: str) -> None:
    print(f"warning: {printable(line)}", file=sys.stderr, flush=True)


def _config_record(directory: RunDirectory, told: list[str]) -> Tree:
    """config.json; if it is damaged, a checkpoint's copy takes its place."""
    try:
        return read_record(read_bounded(directory.config, LARGEST_TEXT))
    except (OSError, ValueError, RecursionError) as error:
        copies = checkpoint.published(directory)
        if not copies:
            raise Refusal(f"{directory.config} is damaged ({error}), and there is no checkpoint to restore it from")
        told.append(f"config.json is damaged ({error}); it is restored from checkpoint {copies[0].name}")
        return _restored_record(directory, copies[0])


def _restored_record(directory: RunDirectory, copy: Path) -> Tree:
    content = checkpoint.config_copy(copy)
    try:
        record = read_record(content)
    except (ValueError, RecursionError) as error:
        raise Refusal(f"{directory.config} is damaged, and so is the copy in checkpoint {copy.name} ({error})")
    replace_file(directory.config, content)
    return record


def _is_finished(directory: RunDirectory, record: Tree) -> bool:
    try:
        status = directory.read_status()
    except Refusal:  # it is written again
        return False
    is_whole = status.get("iteration") == record["resolved"]["iterations"]
    return status.get("state") == "finished" and is_whole and (directory.policy / "policy.json").exists()


def _finished_run(directory: RunDirectory, quiet: bool) -> Run:
    if not quiet:
        print(f"{directory.path} is finished; --steps with a larger number continues it", file=sys.stderr)
    return Run(directory.path, load_policy(directory.path), directory.summary())


def _resumed_config(
    record: Tree, env: str | MakeEnv | None, objective: str | None, steps: int | str | None, boundary: Boundary | None
) -> tuple[Config, list[str]]:
    """The recorded settings with the recorded path, and in what the run will not be exact."""
    resolved, settings = record["resolved"], dict(record["settings"])
    _check_repeated(record, env, objective)
    changes = _changed_surroundings(record)
    if steps is not None:
        settings["steps"] = typed({"steps": steps})["steps"]
        changes.append(f"its length was changed from {record['settings']['steps']:,} to {settings['steps']:,} steps")
    path = {"backend": resolved["backend"], "threads": resolved["threads"], "rebuild_every": resolved["rebuild_every"]}
    if resolved["update"]:
        path["compile"] = "on" if resolved["update"] == "compiled" else "off"
    if boundary:
        path["init_from"] = None  # its weights are in the checkpoint
    config = checked(built(settings | path))
    done = boundary.iteration if boundary else 0
    if steps is not None and config.iterations <= done:
        raise Refusal(f"--steps {steps} is not accepted: this run has made {done * config.batch_size:,} steps already")
    return config, changes


def _check_repeated(record: Tree, env: str | MakeEnv | None, objective: str | None) -> None:
    """Nothing that a file names is imported unless the user names it too."""
    settings = record["settings"]
    given = name_of(env) if callable(env) else env
    needs = {"env": (settings["env"], given), "objective": (settings["objective"], objective)}
    for name, (recorded, repeated) in needs.items():
        if repeated is not None and repeated != recorded:
            raise Refusal(f"--{name} {repeated} is not this run's: it has {recorded}")
        if repeated is None and names_module([recorded, settings["env_arg"] if name == "env" else None]):
            raise Refusal(f"this run names a module of yours: repeat --{name} {recorded} to import it")
    if record["resolved"]["env_from"] == "callable" and not callable(env):
        raise Refusal(f"this run's environment was made by {settings['env']}: pass it as spo.resume(run, env=...)")


def _changed_surroundings(record: Tree) -> list[str]:
    then = record["versions"] | record["machine"]
    now = versions() | machine()
    changed = [name for name in then if then[name] != now.get(name)]
    return [f"{name} was {then[name]} and is {now.get(name, 'missing')}" for name in changed]


def _take_recorded_path(training: Training, directory: RunDirectory, record: Tree) -> None:
    recorded = record["resolved"]["update"]
    path, reason = training.choose_update_path()
    if recorded is None:  # killed while it compiled
        record["resolved"]["update"] = path
        _write_record(directory, record)
    elif path != recorded:
        raise Refusal(f"this run's update was {recorded}, which cannot be had here ({reason})")


def _rewrite_tensorboard(config: Config, directory: RunDirectory) -> None:
    """The event files of the rows that count: theirs have no place at which they could be cut."""
    if not config.tensorboard:
        return
    shutil.rmtree(directory.tensorboard, ignore_errors=True)
    tensorboard = TensorBoard(directory)
    for row in directory.read_metrics():
        tensorboard.write(row, [])
    tensorboard.write_episodes(directory.read_episodes())
    tensorboard.close()


def _record_new_length(directory: RunDirectory, record: Tree, training: Training) -> None:
    config, resolved = training.config, record["resolved"]
    lengths: Mapping[str, int] = {"total_steps": config.total_steps, "iterations": config.iterations}
    change = {"iteration": training.iteration, "from": record["settings"]["steps"], "to": config.steps}
    record["settings"]["steps"] = config.steps
    record |= {"resolved": resolved | lengths, "lengthened": [*record.get("lengthened", []), change]}
    _write_record(directory, record)
