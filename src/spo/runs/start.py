"""New runs: from the settings to the saved policy."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spo.config.config import Config
from spo.config.sources import make_config
from spo.envs.factory import env_maker
from spo.envs.make import EnvMaker, MakeEnv, check_maker
from spo.envs.watchdog import WatchdogVecEnv
from spo.errors import ConfigError, SpoError
from spo.models.choose_distribution import describe_action_scale
from spo.models.image_encoders import ENCODERS
from spo.models.policy import Policy
from spo.runs.console import announce_training, describe, print_summary, say, say_compiling
from spo.runs.directory import RunDirectory
from spo.runs.loggers import Logger
from spo.runs.profile import table
from spo.runs.record import RunRecord
from spo.runs.recorder import Recorder
from spo.runs.trackers import check_trackers
from spo.runtime import signals
from spo.runtime.files import write_error
from spo.trainer import Callback, Trainer


@dataclass(frozen=True)
class Run:
    """A training run that has ended; it stands for its directory wherever a path does."""

    directory: Path
    policy: Policy
    summary: dict[str, float | bool | None]

    def __fspath__(self) -> str:
        return str(self.directory)


def train(
    env: str | MakeEnv | Config, *, callback: Callback | None = None, loggers: Sequence[Logger] = (), **settings: Any
) -> Run:
    """Train a policy on a Gymnasium id, on what a callable makes, or by a Config; settings are those of `Config`."""
    if not isinstance(env, Config):
        check_maker(env)
    config = make_config(env if isinstance(env, str | Config) else name_of(env), **settings)
    return run_training(config, env_maker(config, config.env if isinstance(env, Config) else env), callback, loggers)


def name_of(make_env: MakeEnv) -> str:
    """What a run calls an environment that a callable makes: with a dot, which no id or game has alone."""
    named = make_env if hasattr(make_env, "__qualname__") else type(make_env)
    return f"{named.__module__}.{named.__qualname__}"


def run_training(
    config: Config, make_env: EnvMaker, callback: Callback | None = None, loggers: Sequence[Logger] = ()
) -> Run:
    """A new run, from the announcement to the saved policy."""
    announce_training(config)
    return carry_out(config, make_env, callback, loggers)


def carry_out(
    config: Config, make_env: EnvMaker, callback: Callback | None = None, loggers: Sequence[Logger] = ()
) -> Run:
    """A new run that has been announced, from the environments to the saved policy."""
    check_trackers(config.track)
    with signals.install_handlers():
        trainer = Trainer(config, make_env)
        try:
            _check_encoder(trainer)
            directory = RunDirectory.create(
                config.out, f"{config.env}-{config.objective}-s{config.seed}", config.overwrite
            )
            with lock_run(directory):
                RunDirectory.check_unused(str(directory.path), config.overwrite)  # another process may have been first
                if config.overwrite:
                    directory.clear()
                record = RunRecord.of(trainer)
                record.write(directory)  # before compiling, so that a run killed there can be resumed
                describe(config, *describe_backend(trainer))
                if trainer.initial_policy:
                    say(config, f"starts from the policy in {trainer.initial_policy}")
                path, reason = choose_update_path(trainer, directory, is_new=True)
                record.resolved.update = path
                record.write(directory)
                describe(config, f"update {path} ({reason})")
                return run_to_completion(trainer, Recorder(trainer, directory, loggers=loggers), callback)
        finally:
            trainer.envs.close()


def _check_encoder(trainer: Trainer) -> None:
    """Refuse an encoder of images where there are none; earlier runs that named one go on without it, as before."""
    encoder = trainer.config.encoder
    if encoder in ENCODERS and not trainer.envs.layout.images:
        space, accepted = trainer.envs.observation_space, "it must be auto, mlp or package.module:Class"
        raise ConfigError(
            f"--encoder {encoder} does not fit observation space {space}, in which is no image: {accepted}"
        )


def choose_update_path(trainer: Trainer, directory: RunDirectory, is_new: bool) -> tuple[str, str]:
    """The path of the update, and why; a new run steps every environment once before it compiles, which takes long."""
    if not trainer.will_compile:
        return trainer.choose_update_path()
    if is_new:
        trainer.make_first_step()
    with say_compiling(trainer.config, RunRecord.of(trainer).resume_command(directory)):
        return trainer.choose_update_path()


@contextmanager
def lock_run(directory: RunDirectory) -> Iterator[None]:
    """No other process works on the run meanwhile, and a full or read-only disk is told in a sentence."""
    try:
        with directory.acquire_lock():
            yield
    except OSError as error:
        raise write_error(directory.path, error) from error
    except SpoError as error:
        if error.__cause__ is not None:  # somebody else's error, such as an environment's before the first iteration
            directory.keep_traceback(error)
        raise


def run_to_completion(trainer: Trainer, recorder: Recorder, callback: Callback | None) -> Run:
    """Iterate until all is done, and leave the directory in order however that ends."""
    directory = recorder.directory
    if isinstance(trainer.envs, WatchdogVecEnv):
        trainer.envs.on_timeout = lambda reason: recorder.write_status("failed", reason)
    if trainer.config.profile:
        trainer.timer.start()
    try:
        with signals.defer_signals():
            trainer.fit(recorder.record, callback)
            recorder.finish()
    except BaseException as error:
        raised = recorder.stop(error)
        if raised is error:
            raise
        raise raised from error
    finally:
        recorder.close()
    summary = directory.summary()
    print_summary(trainer.config, summary, directory)
    if trainer.config.profile:
        print(table(trainer))
    return Run(directory.path, trainer.snapshot_policy(), summary)


def describe_backend(trainer: Trainer, reason: str | None = None) -> list[str]:
    """What steps the environments and why, and how actions are scaled, where that is worth a line."""
    threads = f"{trainer.threads} thread{'s' if trainer.threads > 1 else ''}"
    backend = f"backend {trainer.backend} ({reason or trainer.backend_reason}), {threads}"
    space, distribution = trainer.spec.action_space, trainer.spec.distribution
    note = describe_action_scale(space, distribution, trainer.config.action_scale)
    return [backend, note] if note else [backend]
