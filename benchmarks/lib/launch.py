"""Every library in a process of its own, so that none inherits another's threads or memory."""

import dataclasses
import json
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from jobs.job import READY, Job
from lib.venvs import HERE

SECONDS_TO_END = 60.0


class Failed(Exception):
    """A job that ended without a result; says what it said last."""


class Running:
    """A job in a process of its own that is set up and warm, and makes its iterations whenever it is asked."""

    def __init__(self, python: Path, job_module: str, job: Job):
        settings = json.dumps(dataclasses.asdict(dataclasses.replace(job, waits=True)))
        command = [python, "-W", "ignore", "-m", f"jobs.{job_module}", settings]
        self.errors = tempfile.TemporaryFile("w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors, "text": True}
        self.process = subprocess.Popen(command, cwd=HERE, **pipes)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_) -> None:
        """The end of its input is the end of its work; some tidy up after themselves."""
        try:
            self.process.communicate(timeout=SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def await_ready(self) -> "Running":
        _await(self.process, READY, self.errors)
        return self

    def begin(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> dict:
        return json.loads(_await(self.process, "{", self.errors))

    def measure(self) -> dict:
        self.begin()
        return self.end()


def _await(process: subprocess.Popen, beginning: str, errors: IO[str]) -> str:
    """The next line that begins so; libraries print lines of their own."""
    for line in process.stdout:
        if line.startswith(beginning):
            return line
    errors.seek(0)
    said = [line for line in errors.read().splitlines() if line.strip()]
    raise Failed(said[-1] if said else f"exit code {process.wait()}")
