"""Runs training in processes of their own, a few at a time, and follows them through their run directories."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from spo.rundir import RunDirectory


@dataclass
class Job:
    """One `spo train` and the directory that it writes."""

    name: str
    arguments: list[str]
    directory: RunDirectory
    process: subprocess.Popen | None = None
    error: str = ""
    started: float = field(default=0.0)

    @property
    def state(self) -> str:
        if self.process is None:
            return "waiting"
        code = self.process.poll()
        return "running" if code is None else "finished" if code == 0 else "failed"


def train_job(name: str, arguments: list[str], path: Path) -> Job:
    """A quiet, single-threaded run, so that as many fit the machine as it has cores."""
    return Job(name, [*arguments, "--threads", "1", "--quiet", "--out", str(path)], RunDirectory(path))


def execute(jobs: list[Job], at_once: int, on_tick: Callable[[list[Job]], None], seconds: float = 0.5) -> None:
    """Runs all jobs, at most `at_once` together, and ends those that still run if it is stopped itself."""
    try:
        while any(job.state in ("waiting", "running") for job in jobs):
            running = sum(job.state == "running" for job in jobs)
            for job in [job for job in jobs if job.state == "waiting"][: at_once - running]:
                _start(job)
            on_tick(jobs)
            time.sleep(seconds)
        on_tick(jobs)
    finally:
        for job in jobs:
            _end(job)


def _start(job: Job) -> None:
    job.directory.path.mkdir(parents=True, exist_ok=True)
    # A file, because a pipe that nobody reads would block a process with much to say.
    with (job.directory.path / "output.txt").open("w") as output:
        command = [sys.executable, "-m", "spo", "train", *job.arguments]
        # One thread for NumPy's linear algebra too: the runs share the cores.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        job.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    job.started = time.monotonic()


def _end(job: Job) -> None:
    if job.state == "running":
        job.process.terminate()
        job.process.wait()
