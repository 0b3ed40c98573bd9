"""Experiment trackers as loggers: `--track wandb mlflow trackio tensorboard`.

A tracker lives in a thread of its own, so that one that fails or hangs costs a warning and nothing else. Its points
carry the tags that the TensorBoard files have. How far it came is kept in trackers.json: the rows of a resumed run are
those of the run that stopped, so what was sent once is not sent again.
"""

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from spo.algorithms.metrics import Row
from spo.errors import ConfigError, printable
from spo.runs.directory import RunDirectory
from spo.runs.loggers import Logger, tag_row
from spo.runtime.files import read_json, write_json

PROJECT = "simple-policy-optimization"
PATIENCE = 30.0
"""Seconds that the end of a run waits for a tracker to take the last points."""
MOST_WAITING = 10_000
"""Rows that wait for a tracker that does not answer; further ones are dropped."""


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run."""

    name: str
    group: str | None
    settings: Mapping[str, object]
    known_id: str | None
    """The tracker's own id of the run, if it has had it before."""


class Tracker(Protocol):
    """A run in an experiment tracker; `id` finds it again when the run is resumed.

    One that knows by itself how far it came says so by `last_step`.
    """

    id: str

    def log(self, metrics: Row, step: int) -> None: ...

    def finish(self) -> None: ...


class WandbTracker:
    """Weights & Biases; WANDB_MODE=offline keeps everything in ./wandb or WANDB_DIR."""

    def __init__(self, run: TrackedRun):
        import wandb

        arguments = {"project": os.environ.get("WANDB_PROJECT", PROJECT), "name": run.name, "group": run.group}
        self.run = wandb.init(**arguments, config=dict(run.settings), id=run.known_id, resume="allow")
        self.id = self.run.id

    def log(self, metrics: Row, step: int) -> None:
        self.run.log(metrics, step=step)

    def finish(self) -> None:
        self.run.finish()


class MlflowTracker:
    """MLflow, at MLFLOW_TRACKING_URI or where it keeps its runs by itself."""

    def __init__(self, run: TrackedRun):
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it tells that it makes its tables
        self.client, self.metric = MlflowClient(), Metric
        self.id = run.known_id or self._create(run, Param)
        points = self.client.get_metric_history(self.id, "charts/SPS") if run.known_id else []
        self.last_step = max((point.step for point in points), default=0)

    def _create(self, run: TrackedRun, param: type) -> str:
        project = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        known = self.client.get_experiment_by_name(project)
        experiment = known.experiment_id if known else self.client.create_experiment(project)
        tags = {"group": run.group} if run.group else {}
        made = self.client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
        params = [param(name, str(value)[:500]) for name, value in run.settings.items()]
        self.client.log_batch(made, params=params)
        return made

    def log(self, metrics: Row, step: int) -> None:
        now = int(time.time() * 1000)
        self.client.log_batch(self.id, metrics=[self.metric(name, value, now, step) for name, value in metrics.items()])

    def finish(self) -> None:
        self.client.set_terminated(self.id)


class TrackioTracker(WandbTracker):
    """Trackio, which keeps its runs on this machine; a run is logged to as one of Weights & Biases."""

    def __init__(self, run: TrackedRun):
        import trackio

        self.id = run.known_id or run.name
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self.run = trackio.init(
            project=project, name=self.id, group=run.group, config=dict(run.settings), resume="allow", embed=False
        )


TRACKERS: dict[str, Callable[[TrackedRun], Tracker]] = {
    "wandb": WandbTracker,
    "mlflow": MlflowTracker,
    "trackio": TrackioTracker,
}


class TrackerLogger(Logger):
    """Feeds a tracker from a thread of its own; the first thing that goes wrong is told, and ends the tracking."""

    def __init__(self, name: str, run: RunDirectory, settings: Mapping[str, object]):
        self.name, self.directory = name, run
        kept = _read_progress(run).get(name, {})
        self.sent = int(kept.get("env_steps", 0))
        self.run = TrackedRun(run.path.name, _group_of(run.path), settings, kept.get("id"))
        self.rows: queue.Queue[Row | None] = queue.Queue(MOST_WAITING)
        self.has_failed = False
        self.thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self.thread.start()

    def write(self, row: Row, episodes: list[Row]) -> None:
        if self.has_failed or row["env_steps"] <= self.sent:
            return
        try:
            self.rows.put_nowait(row)
        except queue.Full:
            self._give_up("it does not answer")

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        """Send the rows that count and were never sent."""
        for row in rows:
            self.write(row, [])

    def close(self) -> None:
        if self.has_failed:
            return
        try:
            self.rows.put_nowait(None)
        except queue.Full:
            pass
        self.thread.join(PATIENCE)
        if self.thread.is_alive():
            self._give_up(f"it did not take the last points within {PATIENCE:g} s")

    def _work(self) -> None:
        try:
            tracker = TRACKERS[self.name](self.run)
            known = max(self.sent, getattr(tracker, "last_step", 0))  # of a run that was killed before it was kept
            self._remember(tracker.id, known)
            while (row := self.rows.get()) is not None and not self.has_failed:
                if (step := int(row["env_steps"])) > known:
                    tracker.log(tag_row(row), step)
                    self._remember(tracker.id, step)
            tracker.finish()
        except BaseException as error:  # whatever a tracker throws, training goes on without it
            self._give_up(f"{type(error).__name__}: {error}")

    def _remember(self, identity: str, env_steps: int) -> None:
        with _PROGRESS:
            write_json(
                self.directory.trackers,
                _read_progress(self.directory) | {self.name: {"id": identity, "env_steps": env_steps}},
            )

    def _give_up(self, why: str) -> None:
        if not self.has_failed:
            self.has_failed = True
            print(f"warning: --track {self.name} has ended: {printable(why)}", file=sys.stderr, flush=True)


_PROGRESS = threading.Lock()


def _read_progress(run: RunDirectory) -> dict[str, Any]:
    return read_json(run.trackers) if run.trackers.exists() else {}


def _group_of(path: Path) -> str | None:
    """The sweep that a run belongs to, if any: the directory above it that holds a plan."""
    return next((parent.name for parent in path.resolve().parents if (parent / "plan.json").exists()), None)


def check_trackers(names: tuple[str, ...]) -> None:
    """Refuse a tracker that is not installed or has no credentials, before anything has run."""
    for name in names:
        if name in TRACKERS and name not in sys.modules and find_spec(name) is None:
            raise ConfigError(f"--track {name} needs: pip install 'simple-policy-optimization[{name}]'")
    if "wandb" in names:
        _check_wandb_credentials()


def _check_wandb_credentials() -> None:
    if os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return
    import wandb

    has_any, why = False, ""
    try:
        has_any = bool(wandb.login(prompt=False, verify=False))
    except TypeError:  # an earlier release, whose login always asks
        has_any = bool(wandb.api.api_key)
    except Exception as error:  # of its own kinds, which its releases call differently
        why = f" ({printable(str(error))})"
    if not has_any:
        raise ConfigError(f"--track wandb has no credentials{why}: run wandb login, or set WANDB_MODE=offline")
