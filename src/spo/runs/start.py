"""New runs: from the settings to the saved policy."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spo.algorithms.metrics import Row
from spo.config.config import Config
from spo.config.sources import make_config
from spo.envs.factory import env_maker
from spo.envs.make import EnvMaker, MakeEnv
from spo.envs.watchdog import WatchdogVecEnv
from spo.models.policy import Policy
from spo.runs.checkpoint import StateDict
from spo.runs.console import announce, print_summary
from spo.runs.directory import RunDirectory
from spo.runs.profile import profiled, table
from spo.runs.record import record_of
from spo.runs.recorder import Recorder
from spo.runtime import signals
from spo.runtime.files import sealed, unwritable, write_json
from spo.trainer import Trainer

Callback = Callable[[Trainer, Row], object]
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
    with signals.handled():
        training = Trainer(config, make_env)
        try:
            directory = RunDirectory.create(config.out, f"{config.env}-{config.objective}-s{config.seed}")
            with lock_run(directory):
                RunDirectory.check_unused(str(directory.path))  # another process may have been first
                record = record_of(training)
                write_record(directory, record)  # before compiling, so that a run killed there can be resumed
                path, reason = training.choose_update_path()
                record["resolved"]["update"] = path
                write_record(directory, record)
                announce(config, f"update {path} ({reason}), {describe_backend(training)}")
                return run_to_completion(training, Recorder(training, directory), callback)
        finally:
            training.envs.close()


@contextmanager
def lock_run(directory: RunDirectory) -> Iterator[None]:
    """No other process works on the run meanwhile, and a full or read-only disk is told in a sentence."""
    try:
        with directory.locked():
            yield
    except OSError as error:
        raise unwritable(directory.path, error) from error


def run_to_completion(training: Trainer, recorder: Recorder, callback: Callback | None) -> Run:
    """Iterates until all is done, and leaves the directory in order however that ends."""
    directory = recorder.directory
    if isinstance(training.envs, WatchdogVecEnv):
        training.envs.on_timeout = lambda reason: recorder.write_status("failed", reason)
    profile = profiled(training, recorder) if training.config.profile else None
    try:
        with signals.deferred():
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


def _iterate(training: Trainer, recorder: Recorder, callback: Callback | None) -> None:
    while training.iteration < training.config.iterations:
        started = time.perf_counter()
        row, episodes = training.iterate()
        row = training.timed(row, time.perf_counter() - started)
        recorder.record(row, episodes)
        if callback and callback(training, row) is False:
            return


def write_record(directory: RunDirectory, record: StateDict) -> None:
    write_json(directory.config, sealed(record), durable=True)


def describe_backend(training: Trainer) -> str:
    return f"backend {training.backend} ({training.backend_reason}), {training.threads} thread(s)"
