"""Runs of a sweep, and the processes of a search, on a Ray cluster."""

import io
import os
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from spo.errors import SpoError
from spo.experiments.executors.local import ONE_CORE, OUTPUT, SECONDS_TO_STOP, search_command, worker_command
from spo.experiments.plan import Cell
from spo.experiments.sweep import Sweep

INSTALL = "pip install 'simple-policy-optimization[ray]'"
RETRIES = 3
"""How often Ray carries out a run again whose node or worker died."""
SECONDS_TO_CONNECT = 5.0


class Cluster:
    """Jobs as Ray tasks, one core each: `function` on a node gets the directory, its `file`, and the job."""

    def __init__(self, function: Callable, file: Path, slots: int, address: str | None, folder: Callable[[Any], Path]):
        self.file, self.folder, self.ray = file, folder, connect(address, slots)
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        self.slots = min(slots, cores) if address is None else cores
        self.task = self.ray.remote(num_cpus=1, max_retries=RETRIES, max_calls=1)(function)
        self.running: dict[object, Any] = {}

    def start(self, job: Any) -> None:
        directory = str(self.file.parent.resolve())
        self.running[self.task.remote(directory, self.file.read_bytes(), job)] = job

    def poll(self) -> dict[Any, int]:
        if not self.running:
            return {}
        ended, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)
        return {self.running[reference]: self._code(reference, self.running.pop(reference)) for reference in ended}

    def _code(self, reference: object, job: Any) -> int:
        """The exit code of a job whose task has ended; what it brought back is put where it belongs."""
        try:
            code, brought_back = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SpoError):
                raise error.cause
            return 1
        except self.ray.exceptions.RayError:
            return 1
        if brought_back:
            extract_archive(brought_back, self.folder(job))
        return code

    def stop(self) -> None:
        for reference in self.running:
            self.ray.cancel(reference)
        if self.running:
            self.ray.wait(list(self.running), num_returns=len(self.running), timeout=SECONDS_TO_STOP)
        self.ray.shutdown()


def run_there(sweep: Sweep, slots: int, address: str | None) -> Cluster:
    return Cluster(run_on_node, sweep.path / "plan.json", slots, address, lambda cell: sweep.run(cell).path)


def search_there(directory: Path, slots: int, address: str | None) -> Cluster:
    return Cluster(search_on_node, directory / "search.json", slots, address, lambda number: directory)


def search_on_node(path: str, search: bytes, number: int) -> tuple[int, None]:
    """Carry out trials of a search on a node, in its directory, whose journal all nodes write."""
    if not _holds(Path(path, "search.json"), search):
        raise SpoError(
            f"node {socket.gethostname()} does not see {path}: name a directory with --out that all nodes see"
        )
    with Path(path, OUTPUT).open("a") as output:
        return _wait_for(search_command(Path(path), number), stdout=output, stderr=subprocess.STDOUT), None


def connect(address: str | None, slots: int):
    """Connect to a cluster; a local one listens on this machine alone and asks for a token."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise SpoError(f"--executor ray needs: {INSTALL}")
    quietly = {"log_to_driver": False, "logging_level": "error"}
    try:
        if address is None:
            ray.init(num_cpus=slots, include_dashboard=False, _node_ip_address="127.0.0.1", **quietly)
        else:
            _check_reachable(address)
            ray.init(address=address, **quietly)
    except SpoError:
        raise
    except Exception as error:  # whatever Ray raises, of many kinds
        sentence = " ".join(str(error).split()) or type(error).__name__
        raise SpoError(f"--ray-address {address or 'of this machine'} cannot be used: {sentence}")
    return ray


def _check_reachable(address: str) -> None:
    """Ray itself would try for a minute."""
    if address == "auto":
        return
    place = urlsplit(address if "://" in address else f"ray://{address}")
    try:
        with socket.create_connection((place.hostname, place.port), SECONDS_TO_CONNECT):
            return
    except (OSError, TypeError, ValueError, OverflowError) as error:
        raise SpoError(f"--ray-address {address} cannot be reached: {error}; accepted: host:port of a running Ray head")


def run_on_node(path: str, plan: bytes, cell: tuple[str, str, int]) -> tuple[int, bytes | None]:
    """Run a cell on a node: in the shared directory, or in one of its own, whose run is brought back."""
    if _holds(Path(path, "plan.json"), plan):
        return _wait_for(worker_command(Path(path), Cell(*cell))), None
    with tempfile.TemporaryDirectory() as own:
        Path(own, "plan.json").write_bytes(plan)
        code = _wait_for(worker_command(Path(own), Cell(*cell)))
        return code, archive_directory(Sweep.open(Path(own)).run(Cell(*cell)).path)


def _holds(file: Path, content: bytes) -> bool:
    try:
        return file.read_bytes() == content
    except OSError:
        return False


def _wait_for(command: list[str], **streams) -> int:
    """A process of its own, which saves when this one is ended."""
    process = subprocess.Popen(command, env=os.environ | ONE_CORE, start_new_session=True, **streams)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def archive_directory(directory: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.add(directory, arcname=".")
    return content.getvalue()


def extract_archive(content: bytes, directory: Path) -> None:
    """Put a run where it belongs; nothing outside of that directory is touched."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(directory, filter="data")
