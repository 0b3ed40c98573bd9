"""Long runs do not leak: after a warm-up, memory, threads and open files stay where they are."""

import os
import time
from dataclasses import astuple, dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import pytest

import spo

SECONDS = float(os.environ.get("SPO_SOAK_SECONDS", 1800))
"""How long each run trains."""
WARM_UP = 0.25
"""The share of the run after which nothing may grow."""
MEGABYTES = 5
"""What memory may grow by: it was 0.03 to 0.2 in two minutes, and would be 0.1 for every pool kept at a seam."""
PAGE = os.sysconf("SC_PAGE_SIZE")

has_tensorboard = find_spec("tensorboard") is not None
needs_envpool = pytest.mark.skipif(find_spec("envpool") is None, reason="needs the extra envpool")
SETTINGS = {
    "preset": "classic", "steps": 10**9, "horizon": 64, "epochs": 2, "hidden": (16,), "critic_hidden": (16,),
    "checkpoint_every": 1, "compile": "off", "threads": 1, "quiet": True,
}  # fmt: skip
RUNS = [
    pytest.param({"backend": "gymnasium", "eval_every": 20, "tensorboard": has_tensorboard}, id="gymnasium"),
    pytest.param({"backend": "envpool", "rebuild_every": 2}, id="envpool", marks=needs_envpool),
]


@dataclass(frozen=True)
class Sample:
    """What this process holds."""

    age: float
    megabytes: float
    threads: int
    files: int

    @classmethod
    def now(cls, age: float) -> "Sample":
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20
        return cls(age, resident, len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))


@pytest.mark.long
@pytest.mark.parametrize("settings", RUNS)
def test_a_long_run_does_not_leak(settings, tmp_path, capsys):
    samples, started = [], time.monotonic()

    def look(training, row) -> bool:
        age = time.monotonic() - started
        if not samples or age - samples[-1].age > SECONDS / 400:
            samples.append(Sample.now(age))
        return age < SECONDS

    run = spo.train("CartPole-v1", **SETTINGS | settings, out=str(tmp_path / "run"), callback=look)
    warm = [sample for sample in samples if sample.age >= WARM_UP * SECONDS]
    quarter = len(warm) // 4
    first, last = middle(warm[:quarter]), middle(warm[-quarter:])
    with capsys.disabled():
        print(f"\n{settings['backend']}, {run.summary['env_steps']:,} steps: from {first} to {last}")
    assert last.threads <= first.threads and last.files <= first.files
    assert last.megabytes - first.megabytes < MEGABYTES


def middle(samples: list[Sample]) -> Sample:
    """The median of each number: a moment's thread or file is no leak."""
    return Sample(*(median(column) for column in zip(*(astuple(sample) for sample in samples))))
