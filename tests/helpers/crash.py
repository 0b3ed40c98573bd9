"""Runs that die: processes forked from a warm one, killed from outside or at a chosen call, and what they leave."""

import copy
import errno
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import spo
from spo.runs import checkpoint
from spo.runs.directory import RunDirectory

TIMES = ("wall_time", "steps_per_second")
SHORT = {
    "preset": "classic", "envs": 2, "horizon": 16, "epochs": 2, "minibatches": 2, "hidden": (8,), "critic_hidden": (8,),
    "checkpoint_every": 1, "steps": 32 * 8, "compile": "off", "quiet": True,
}  # fmt: skip
"""Eight iterations in about a tenth of a second."""

# The warm process imports these, and all of torch with them, once; it finds them only through the environment.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
_warm = multiprocessing.get_context("forkserver")
_warm.set_forkserver_preload(["crash", "faulty", "spo.runs.start", "gymnasium.envs.classic_control"])


def work(out: Path, env, settings: dict, harm: Callable[[], None] | None = None) -> None:
    """Starts the run, or goes on with it; `harm` first arranges what shall go wrong."""
    if harm:
        harm()
    try:
        start_or_resume(out, env, settings)
    except spo.SpoError as refusal:
        print(f"error: {refusal}")
        os._exit(2)
    except KeyboardInterrupt as interrupt:
        os._exit(getattr(interrupt, "code", 130))


def start_or_resume(out: Path, env, settings: dict) -> spo.Run:
    if (out / "config.json").exists():
        return spo.resume(out, env=None if isinstance(env, str) else env, quiet=True)
    return spo.train(env, **SHORT | settings, out=str(out))


def child(*arguments) -> multiprocessing.Process:
    process = _warm.Process(target=work, args=arguments)
    process.start()
    return process


def killed_after(seconds: float, *arguments) -> bool:
    """Whether a run was still alive after so long, and was killed."""
    process = child(*arguments)
    process.join(seconds)
    is_alive = process.exitcode is None
    process.kill()
    process.join()
    assert is_alive or process.exitcode == 0, process.exitcode
    return is_alive


def remains(out: Path) -> dict[str, object]:
    """Everything that a run ends with, times aside."""
    run = RunDirectory(out)
    arrays, values = bits(checkpoint.read(run, checkpoint.list_checkpoints(run)[0]).state)
    values.pop("wall_time")
    return {
        "arrays": arrays,
        "values": values,
        "metrics": timeless(run.metrics),
        "episodes": run.episodes.read_bytes(),
        "policy": hashlib.sha256((run.policy / "policy.safetensors").read_bytes()).hexdigest(),
        "state": run.read_status()["state"],
    }


def bits(state: checkpoint.StateDict) -> tuple[dict[str, tuple[str, bytes]], checkpoint.StateDict]:
    """A state in a form that is equal only if every bit is."""
    arrays, values = checkpoint.split(state)
    return {name: (array.dtype.str, array.tobytes()) for name, array in arrays.items()}, copy.deepcopy(values)


def timeless(path: Path) -> list[dict]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]


class Calls:
    """Counts calls of functions of the operating system, and does harm at the chosen one."""

    def __init__(self, at: int, harm: Callable[[], None]):
        self.at, self.harm, self.count = at, harm, 0

    def around(self, function: Callable) -> Callable:
        def called(*arguments, **keywords):
            self.count += 1
            if self.count == self.at:
                self.harm()
            return function(*arguments, **keywords)

        return called


class KillAt:
    """Kills the process just before the n-th durable operation: fsync, rename, directory made or removed."""

    def __init__(self, number: int):
        self.number = number

    def __call__(self) -> None:
        calls = Calls(self.number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        os.fsync, Path.rename, Path.replace, Path.mkdir, shutil.rmtree, os.truncate = (
            calls.around(function)
            for function in (os.fsync, Path.rename, Path.replace, Path.mkdir, shutil.rmtree, os.truncate)
        )


class DiskFullAt:
    """From the n-th write or flush of a file on, the disk is full."""

    def __init__(self, number: int):
        self.number = number

    def __call__(self) -> None:
        disk, opened = self, io.open

        class Full(io.FileIO):
            def write(self, data):
                disk.number -= 1
                if disk.number <= 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return super().write(data)

        def replaced(file, mode="r", *arguments, **keywords):
            if set(mode) & set("wa") and not isinstance(file, int):
                raw = Full(file, mode.replace("b", "").replace("+", ""))
                buffered = io.BufferedWriter(raw)
                return buffered if "b" in mode else io.TextIOWrapper(buffered)
            return opened(file, mode, *arguments, **keywords)

        io.open = replaced
