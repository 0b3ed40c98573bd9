"""What a training leaves behind while it runs: logs, status, evaluations, checkpoints."""

import os
import platform
import sys
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata

import torch
from safetensors.numpy import save

from spo.checkpoint import Boundary, Tree, publish, unsealed
from spo.checks import built, under_current_names
from spo.errors import Refusal
from spo.evaluation import evaluate_policy
from spo.metrics import JsonLines, Progress, Row, Sink, TensorBoard
from spo.policy import save_policy
from spo.rundir import RunDirectory, append_row, replace_file, unwritable
from spo.training import Training

PACKAGES = ("simple-policy-optimization", "torch", "numpy", "gymnasium", "mujoco", "ale-py", "envpool", "safetensors")
"""Whose versions a run records."""


class Recorder:
    """Keeps the run directory true to its training."""

    def __init__(self, training: Training, directory: RunDirectory, boundary: Boundary | None = None):
        self.training, self.directory, self.config = training, directory, training.config
        self.boundary, self.published = boundary, boundary.iteration if boundary else 0
        self.sinks = self._sinks()

    def _sinks(self) -> list[Sink]:
        sinks: list[Sink] = [JsonLines(self.directory)]
        if self.config.tensorboard:
            sinks.append(TensorBoard(self.directory))
        if not self.config.quiet:
            sinks.append(Progress(self.config.total_steps))
        return sinks

    def record(self, row: Row, episodes: list[Row]) -> None:
        """Everything that follows an iteration."""
        for sink in self.sinks:
            sink.write(row, episodes)
        self._evaluate_when_due()
        self._keep_ratios()
        if self.training.can_resume_here:
            self.boundary = Boundary(self.training.iteration, self.training.state(), self.directory.log_sizes())
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

    def close(self) -> None:
        for sink in self.sinks:
            with suppress(OSError):
                sink.close()


def record_of(training: Training) -> Tree:
    """config.json: what was asked for, what was chosen (the update's path comes later), and with which versions."""
    config = training.config
    resolved = {
        "update": None,
        "backend": training.backend,
        "threads": training.threads,
        "total_steps": config.total_steps,
        "iterations": config.iterations,
        "objective_settings": config.objective_settings,
        "value_bound": config.value_bound,
        "rebuild_every": training.rebuild_every,
        "env_from": "callable" if callable(training.make_env.env) else "id",
    }
    return {"settings": asdict(config), "resolved": resolved, "versions": versions(), "machine": machine()}


KINDS = {
    "update": str | None,
    "backend": str,
    "threads": int,
    "total_steps": int,
    "iterations": int,
    "rebuild_every": int | None,
    "env_from": str,
}
"""What of the resolved choices a resumed run goes by."""


def read_record(content: bytes) -> Tree:
    """A config.json that proves itself and has everything that resuming needs, or ValueError."""
    record = unsealed(content)
    for name in ("settings", "resolved", "versions", "machine"):
        if not isinstance(record.get(name), dict):
            raise ValueError(f"its {name} are missing")
    record |= {name: under_current_names(record[name]) for name in ("settings", "resolved")}
    for name, kind in KINDS.items():
        if not isinstance(record["resolved"].get(name, ...), kind):
            raise ValueError(f"its {name} is {record['resolved'].get(name)!r}")
    try:
        built(record["settings"])
    except Refusal as refusal:
        raise ValueError(str(refusal))
    return record


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, str | int]:
    """What of the machine the last bit of a number can depend on."""
    model = ""
    with suppress(OSError), open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    return {
        "processor": model or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "matrices": os.environ.get("OPENBLAS_CORETYPE", "as the processor has them"),
    }
