"""Runs of a sweep on a Ray cluster."""

import io
import os
import socket
import subprocess
import tarfile
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from spo.errors import SpoError
from spo.experiments.executors.local import ONE_CORE, SECONDS_TO_STOP, worker_command
from spo.experiments.plan import Cell
from spo.experiments.sweep import Sweep

INSTALL = "pip install 'simple-policy-optimization[ray]'"
RETRIES = 3
"""How often Ray carries out a run again whose node or worker died."""
SECONDS_TO_CONNECT = 5.0


class Cluster:
    """Runs as Ray tasks, one core each."""

    def __init__(self, sweep: Sweep, slots: int, address: str | None):
        self.sweep, self.ray = sweep, connect(address, slots)
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        self.slots = min(slots, cores) if address is None else cores
        self.task = self.ray.remote(num_cpus=1, max_retries=RETRIES, max_calls=1)(run_on_node)
        self.running: dict[object, Cell] = {}

    def start(self, cell: Cell) -> None:
        plan = (self.sweep.path / "plan.json").read_bytes()
        self.running[self.task.remote(str(self.sweep.path.resolve()), plan, tuple(cell))] = cell

    def poll(self) -> dict[Cell, bool]:
        if not self.running:
            return {}
        ended, _ = self.ray.wait(list(self.running), num_returns=len(self.running), timeout=0)
        return {self.running[reference]: self._has_died(reference, self.running.pop(reference)) for reference in ended}

    def _has_died(self, reference: object, cell: Cell) -> bool:
        try:
            code, brought_back = self.ray.get(reference)
        except self.ray.exceptions.RayError:
            return True
        if brought_back:
            extract_archive(brought_back, self.sweep.run(cell).path)
        return code not in (0, 2)

    def stop(self) -> None:
        for reference in self.running:
            self.ray.cancel(reference)
        if self.running:
            self.ray.wait(list(self.running), num_returns=len(self.running), timeout=SECONDS_TO_STOP)
        self.ray.shutdown()


def connect(address: str | None, slots: int):
    """Ray, connect to a cluster; a local one listens on this machine alone and asks for a token."""
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
    """On a node: works in the shared directory, or in one of its own whose run it brings back."""
    if _is_shared(Path(path), plan):
        return _run_worker(Path(path), cell), None
    with tempfile.TemporaryDirectory() as own:
        Path(own, "plan.json").write_bytes(plan)
        code = _run_worker(Path(own), cell)
        return code, archive_directory(Sweep.open(Path(own)).run(Cell(*cell)).path)


def _is_shared(path: Path, plan: bytes) -> bool:
    try:
        return (path / "plan.json").read_bytes() == plan
    except OSError:
        return False


def _run_worker(path: Path, cell: tuple[str, str, int]) -> int:
    """A process of its own, which saves when this one is ended."""
    environment = os.environ | ONE_CORE
    process = subprocess.Popen(worker_command(path, Cell(*cell)), env=environment, start_new_session=True)
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
    """Puts a run where it belongs; nothing outside of that directory is touched."""
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(directory, filter="data")
