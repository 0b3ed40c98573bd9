"""What a training leaves behind while it runs: logs, status, evaluations, checkpoints."""

import dataclasses
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from safetensors.numpy import save

from spo.algorithms.metrics import Row
from spo.envs.watchdog import Watchdog
from spo.evaluation import Evaluation, evaluate_policy
from spo.models.policy_files import save_policy
from spo.runs.best_policy import BestPolicyKeeper
from spo.runs.checkpoint import Snapshot, save_checkpoint
from spo.runs.directory import RunDirectory
from spo.runs.loggers import JsonlLogger, Logger, ProgressLogger, TableLogger, TensorBoardLogger
from spo.runs.ratio_samples import keep_sample, prune_samples
from spo.runs.record import RunRecord
from spo.runs.return_goal import ReturnGoal
from spo.runs.trackers import TRACKERS, TrackerLogger
from spo.runtime.files import append_row, replace_file, write_error
from spo.trainer import Trainer

LONG_EPISODE = 100_000
"""Steps of an evaluation's episode after which a user should know why nothing else happens."""
ENDLESS = (
    f"an episode of an evaluation has lasted {LONG_EPISODE:,} steps and goes on; where a task never ends,"
    " --env-arg max_episode_steps=1000 cuts its episodes"
)


class Recorder:
    """Keeps the run directory true to its training."""

    def __init__(
        self,
        trainer: Trainer,
        directory: RunDirectory,
        snapshot: Snapshot | None = None,
        loggers: Sequence[Logger] = (),
    ):
        self.trainer, self.directory, self.config = trainer, directory, trainer.config
        self.snapshot, self.published = snapshot, snapshot.iteration if snapshot else 0
        goal, has_evaluations = self.config.stop_at, self.config.eval_every > 0
        self.goal = None if goal is None else ReturnGoal(goal, has_evaluations)
        self.loggers = [*self._own_loggers(), *loggers]
        prune_samples(directory.ratio_samples, self.published, self.config.watch_every, self.config.iterations)

    def _own_loggers(self) -> list[Logger]:
        loggers: list[Logger] = [JsonlLogger(self.directory)]
        if self.config.tensorboard or "tensorboard" in self.config.track:
            loggers.append(TensorBoardLogger(self.directory))
        settings = dataclasses.asdict(self.config)
        loggers += [TrackerLogger(name, self.directory, settings) for name in self.config.track if name in TRACKERS]
        if self.config.keep_best:
            loggers.append(BestPolicyKeeper(self.directory, self.trainer.snapshot_policy))
        loggers += [self.goal] if self.goal else []
        if not self.config.quiet:
            loggers.append(TableLogger() if self.config.verbose else ProgressLogger(self.config.total_steps))
        return loggers

    def rewind(self) -> None:
        """Take the loggers back to the rows that count, which are those in the run directory."""
        rows, episodes = self.directory.read_metrics(), self.directory.read_episodes()
        for logger in self.loggers:
            logger.rewind(rows, episodes)

    def record(self, row: Row, episodes: list[Row]) -> bool:
        """Everything that follows an iteration; the row gets the evaluation's means, where one is due.

        False where the run has reached the return at which it stops.
        """
        row.update(self._evaluate_when_due())
        with self.trainer.timer("logging"):
            for logger in self.loggers:
                logger.write(row, episodes)
        self._keep_ratios()
        if self.trainer.can_resume_here:
            self.snapshot = Snapshot(self.trainer.iteration, self.trainer.state(), self.directory.log_sizes())
            if self._is_due():
                self.checkpoint()
        self.write_status("running")
        return self.goal is None or self.goal.reached is None

    def checkpoint(self) -> None:
        """Publish the newest snapshot, unless it is on the disk already."""
        if self.snapshot and self.snapshot.iteration > self.published:
            with self.trainer.timer("checkpoint"):
                save_checkpoint(self.directory, self.snapshot, self.config.keep, self._save_policy)
            self.published = self.snapshot.iteration

    def _save_policy(self, folder: Path) -> None:
        assert self.snapshot is not None
        save_policy(self.trainer.policy_at(self.snapshot.state), folder)

    def _is_due(self) -> bool:
        """At the first snapshot in every `checkpoint_every` iterations at which the run can resume."""
        every, iteration = self.config.checkpoint_every, self.trainer.iteration
        return bool(every) and iteration // every > self.published // every

    def finish(self) -> None:
        """A run that made all its iterations, reached its goal, or whose callback wanted no more."""
        self.checkpoint()
        save_policy(self.trainer.snapshot_policy(), self.directory.policy)
        is_whole, reached = self.trainer.iteration == self.config.iterations, self.goal and self.goal.reached
        why = reached or (None if is_whole else "ended by its callback")
        self.write_status("finished" if is_whole or reached else "interrupted", why)

    def stop(self, error: BaseException) -> BaseException:
        """Save the last snapshot and say why the run ended; the error as a user should see it."""
        is_asked = isinstance(error, KeyboardInterrupt | SystemExit)
        if isinstance(error, OSError):
            error = write_error(self.directory.path, error)
        elif not is_asked:
            self.directory.keep_traceback(error)
        with suppress(OSError):  # on a full disk what is there stays
            self.checkpoint()
        with suppress(OSError):
            self.write_status("interrupted" if is_asked else "failed", str(error) or repr(error))
        if not is_asked:
            error.add_note(self._how_to_go_on())  # a command line shows notes below the error, and so does Python
        elif not self.config.quiet:
            print(self._how_to_go_on(), file=sys.stderr, flush=True)
        return error

    def _how_to_go_on(self) -> str:
        command = RunRecord.of(self.trainer).resume_command(self.directory)
        if not self.published:
            same_place = ", as does spo train with --overwrite" if self.config.out else ""
            return f"no checkpoint yet: {command} starts the run again{same_place}"
        return f"saved up to iteration {self.published}: {command} continues from there"

    def write_status(self, state: str, reason: str | None = None) -> None:
        trainer = self.trainer
        self.directory.write_status(
            {
                "state": state,
                "reason": reason,
                "iteration": trainer.iteration,
                "env_steps": trainer.collector.env_steps,
                "checkpoint": self.published,
                "exact": not trainer.inexact_reasons,
                "departures": trainer.inexact_reasons,
            }
        )

    def _evaluate_when_due(self) -> Row:
        trainer, every = self.trainer, self.config.eval_every
        if not every or trainer.iteration % every:
            return {}
        result = self._evaluate()
        position = {"iteration": trainer.iteration, "env_steps": trainer.collector.env_steps}
        append_row(self.directory.evaluations, position | result.as_json())
        length_mean = sum(result.lengths) / len(result.lengths)
        return {"eval_return_mean": result.return_mean, "eval_length_mean": length_mean}

    def _evaluate(self) -> Evaluation:
        """Play with the policy as it is, under a clock as in training: for each step of the environment."""
        trainer, config = self.trainer, self.config

        def on_step(episode: int, step: int) -> None:
            clock.start()
            if step == LONG_EPISODE:
                print(f"warning: {ENDLESS}", file=sys.stderr, flush=True)

        def on_timeout(reason: str) -> None:
            self.write_status("failed", reason)

        clock = Watchdog(config.env_timeout, lambda what: f"the environment of an evaluation {what}", on_timeout)
        clock.start()
        try:
            return evaluate_policy(trainer.snapshot_policy(), trainer.make_env, seed=config.seed, on_step=on_step)
        finally:
            clock.close()

    def _keep_ratios(self) -> None:
        if self.trainer.ratios:
            self.directory.ratios.mkdir(exist_ok=True)
            replace_file(self.directory.ratios / f"{self.trainer.iteration}.safetensors", save(self.trainer.ratios))
        if self.trainer.ratio_sample:
            every, iterations = self.config.watch_every, self.config.iterations
            kept = (self.trainer.iteration, self.trainer.ratio_sample, every, iterations)
            keep_sample(self.directory.ratio_samples, *kept)

    def close(self) -> None:
        for logger in self.loggers:
            with suppress(OSError):
                logger.close()
