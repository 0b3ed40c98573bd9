"""What a training leaves behind while it runs: logs, status, evaluations, checkpoints."""

import sys
from contextlib import suppress

from safetensors.numpy import save

from spo.algorithms.metrics import Row
from spo.evaluation import evaluate_policy
from spo.models.policy_files import save_policy
from spo.runs.checkpoint import Snapshot, publish
from spo.runs.directory import RunDirectory
from spo.runs.loggers import JsonlLogger, Logger, ProgressLogger, TensorBoardLogger
from spo.runs.ratio_samples import keep_sample, prune_samples
from spo.runtime.files import append_row, replace_file, unwritable
from spo.trainer import Trainer


class Recorder:
    """Keeps the run directory true to its training."""

    def __init__(self, training: Trainer, directory: RunDirectory, boundary: Snapshot | None = None):
        self.training, self.directory, self.config = training, directory, training.config
        self.boundary, self.published = boundary, boundary.iteration if boundary else 0
        self.sinks = self._sinks()
        prune_samples(directory.ratio_samples, self.published, self.config.watch_ratios, self.config.iterations)

    def _sinks(self) -> list[Logger]:
        sinks: list[Logger] = [JsonlLogger(self.directory)]
        if self.config.tensorboard:
            sinks.append(TensorBoardLogger(self.directory))
        if not self.config.quiet:
            sinks.append(ProgressLogger(self.config.total_steps))
        return sinks

    def record(self, row: Row, episodes: list[Row]) -> None:
        """Everything that follows an iteration."""
        for sink in self.sinks:
            sink.write(row, episodes)
        self._evaluate_when_due()
        self._keep_ratios()
        if self.training.can_resume_here:
            self.boundary = Snapshot(self.training.iteration, self.training.state(), self.directory.log_sizes())
            if self._is_due():
                self.checkpoint()
        self.write_status("running")

    def checkpoint(self) -> None:
        """Publishes the newest boundary, unless it is on the disk already."""
        if self.boundary and self.boundary.iteration > self.published:
            publish(self.directory, self.boundary, self.config.keep)
            self.published = self.boundary.iteration

    def _is_due(self) -> bool:
        """At the first boundary in every `checkpoint_every` iterations at which the run can resume."""
        every, iteration = self.config.checkpoint_every, self.training.iteration
        return bool(every) and iteration // every > self.published // every

    def finish(self) -> None:
        """A run that made all its iterations, or whose callback wanted no more."""
        self.checkpoint()
        save_policy(self.training.policy, self.directory.policy)
        is_whole = self.training.iteration == self.config.iterations
        self.write_status("finished" if is_whole else "interrupted", None if is_whole else "ended by its callback")

    def stop(self, error: BaseException) -> BaseException:
        """Saves the last boundary and says why the run ended; the error as a user should see it."""
        is_asked = isinstance(error, KeyboardInterrupt | SystemExit)
        if isinstance(error, OSError):
            error = unwritable(self.directory.path, error)
        with suppress(OSError):  # on a full disk what is there stays
            self.checkpoint()
        with suppress(OSError):
            self.write_status("interrupted" if is_asked else "failed", str(error) or repr(error))
        if not self.config.quiet or not is_asked:
            print(self._how_to_go_on(), file=sys.stderr, flush=True)
        return error

    def _how_to_go_on(self) -> str:
        if not self.published:
            return f"no checkpoint yet: spo resume {self.directory.path} starts the run again"
        return f"saved up to iteration {self.published}: spo resume {self.directory.path} continues from there"

    def write_status(self, state: str, reason: str | None = None) -> None:
        training = self.training
        self.directory.write_status(
            {
                "state": state,
                "reason": reason,
                "iteration": training.iteration,
                "env_steps": training.collector.env_steps,
                "checkpoint": self.published,
                "exact": not training.departures,
                "departures": training.departures,
            }
        )

    def _evaluate_when_due(self) -> None:
        training, every = self.training, self.config.eval_every
        if every and training.iteration % every == 0:
            result = evaluate_policy(training.policy, training.make_env, seed=self.config.seed)
            position = {"iteration": training.iteration, "env_steps": training.collector.env_steps}
            append_row(self.directory.evaluations, position | result.as_json())

    def _keep_ratios(self) -> None:
        if self.training.ratios:
            self.directory.ratios.mkdir(exist_ok=True)
            replace_file(self.directory.ratios / f"{self.training.iteration}.safetensors", save(self.training.ratios))
        if self.training.ratio_sample:
            every, iterations = self.config.watch_ratios, self.config.iterations
            kept = (self.training.iteration, self.training.ratio_sample, every, iterations)
            keep_sample(self.directory.ratio_samples, *kept)

    def close(self) -> None:
        for sink in self.sinks:
            with suppress(OSError):
                sink.close()
