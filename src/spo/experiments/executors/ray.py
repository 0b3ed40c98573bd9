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
from spo.experiments.executors.local import ONE_CORE, SECONDS_TO_STOP, search_command, worker_command
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


class ClusterSearchers:
    """The processes of a search as Ray tasks, one core each, on nodes that see its directory."""

    def __init__(self, directory: Path, count: int, address: str | None):
        self.ray = connect(address, count)
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        task = self.ray.remote(num_cpus=1, max_retries=RETRIES, max_calls=1)(search_on_node)
        path, search = str(directory.resolve()), (directory / "search.json").read_bytes()
        self.tasks = [task.remote(path, search, number) for number in range(min(count, cores))]

    def codes(self) -> list[int | None]:
        """The exit code of each process, and None of those that still run."""
        ended, _ = self.ray.wait(self.tasks, num_returns=len(self.tasks), timeout=0)
        return [self._code(task) if task in ended else None for task in self.tasks]

    def _code(self, task: object) -> int:
        try:
            return self.ray.get(task)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SpoError):
                raise error.cause
            return 1
        except self.ray.exceptions.RayError:
            return 1

    def stop(self) -> None:
        for task in self.tasks:
            self.ray.cancel(task)
        self.ray.wait(self.tasks, num_returns=len(self.tasks), timeout=SECONDS_TO_STOP)
        self.ray.shutdown()


def search_on_node(path: str, search: bytes, number: int) -> int:
    """Carry out trials of a search on a node, in its directory, whose journal all nodes write."""
    if not _holds(Path(path, "search.json"), search):
        raise SpoError(
            f"node {socket.gethostname()} does not see {path}: name a directory with --out that all nodes see"
        )
    with Path(path, "output.txt").open("a") as output:
        return _wait_for(search_command(Path(path), number), stdout=output, stderr=subprocess.STDOUT)


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
    """Run a cell on a node: in the shared directory, or in one of its own, whose run is brought back."""
    if _holds(Path(path, "plan.json"), plan):
        return _run_worker(Path(path), cell), None
    with tempfile.TemporaryDirectory() as own:
        Path(own, "plan.json").write_bytes(plan)
        code = _run_worker(Path(own), cell)
        return code, archive_directory(Sweep.open(Path(own)).run(Cell(*cell)).path)


def _holds(file: Path, content: bytes) -> bool:
    try:
        return file.read_bytes() == content
    except OSError:
        return False


def _run_worker(path: Path, cell: tuple[str, str, int]) -> int:
    return _wait_for(worker_command(path, Cell(*cell)))


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
