"""Every measurement in a fresh process, so that no library inherits another's threads or memory."""

import dataclasses
import json
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from jobs.job import READY, Job
from venvs import HERE


class Failed(Exception):
    """A job that ended without a result; says what it said last."""


def run_at_once(python: Path, job_module: str, jobs: list[Job]) -> list[dict]:
    """Runs jobs beside each other; their clocks start together, when all are warm."""
    with tempfile.TemporaryFile("w+") as errors:
        processes = [_start(python, job_module, job, errors) for job in jobs]
        try:
            for process in processes:
                _await(process, READY, errors)
            for process in processes:
                process.stdin.write("\n")
                process.stdin.flush()
            results = [json.loads(_await(process, "{", errors)) for process in processes]
            for process in processes:
                process.communicate()  # some tidy up after themselves
            return results
        except BaseException:
            for process in processes:
                process.kill()
                process.wait()
            raise


def run_alone(python: Path, job_module: str, job: Job) -> dict:
    return run_at_once(python, job_module, [job])[0]


def _start(python: Path, job_module: str, job: Job, errors: IO[str]) -> subprocess.Popen:
    settings = json.dumps(dataclasses.asdict(dataclasses.replace(job, waits=True)))
    command = [python, "-W", "ignore", "-m", f"jobs.{job_module}", settings]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
    return subprocess.Popen(command, cwd=HERE, **pipes)


def _await(process: subprocess.Popen, beginning: str, errors: IO[str]) -> str:
    """The next line that begins so; libraries print lines of their own."""
    for line in process.stdout:
        if line.startswith(beginning):
            return line
    errors.seek(0)
    said = [line for line in errors.read().splitlines() if line.strip()]
    raise Failed(said[-1] if said else f"exit code {process.wait()}")
