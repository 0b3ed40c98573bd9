"""Runs the tests whose numbers go through matrix libraries as if on other processors: `make test-processors`.

Every library chooses its kernels by the processor it finds, and each can be told to find another one. A setting that
changes no bit of any probe on this machine stands for no other processor here, and is left out by name; so is one
that asks for instructions which this processor does not have.

    python tests/processors.py [--only NAME ...] [options of pytest]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from spo.runtime import library_env

library_env.set_library_env()

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "helpers"))
TESTS = (
    "test_learning.py",
    "test_probes.py",
    "test_objectives.py",
    "algorithms/test_minibatch_update.py",
    "algorithms/test_trpo.py",
    "models/test_encoders.py",
    "envs/test_mujoco.py",
    "runs/test_resume.py",
    "experiments/test_published_results.py",
)
"""Test files, each with numbers of one of the libraries."""
AVX512 = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4".split()


def personalities() -> dict[str, dict[str, str]]:
    """What a process finds in its environment, by the name of the processor or the library that it stands for."""
    dispatched = _dispatched_by_numpy()
    without_avx512 = {"NPY_DISABLE_CPU_FEATURES": " ".join(name for name in dispatched if name in AVX512)}
    without_any = {"NPY_DISABLE_CPU_FEATURES": " ".join(dispatched)}
    single = {
        "torch-default": {"ATEN_CPU_CAPABILITY": "default"},
        "torch-avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
        "onednn-sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
        "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
        "openblas-prescott": {"OPENBLAS_CORETYPE": "Prescott"},
        "openblas-haswell": {"OPENBLAS_CORETYPE": "Haswell"},
        "openblas-zen": {"OPENBLAS_CORETYPE": "Zen"},
        "openblas-skylakex": {"OPENBLAS_CORETYPE": "SkylakeX"},
        "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
        "numpy-baseline": without_any,
        "glibc-without-fma": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX512F"},
        "two-threads": {"SPO_TEST_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    }
    amd = single["torch-avx2"] | single["onednn-avx2"] | single["openblas-zen"] | without_avx512 | {"MKL_CBWR": "AVX2"}
    old = single["torch-default"] | single["onednn-sse41"] | single["openblas-prescott"] | without_any
    old |= single["mkl-compatible"] | single["glibc-without-fma"]
    return {"amd": amd, "old": old, **single}


def _dispatched_by_numpy() -> list[str]:
    """What this NumPy has kernels for beyond those that it always uses, and this processor can do."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__[name]]


# The probe, in a process of its own


def probe() -> dict[str, str]:
    """Bits that each library computes."""
    import numpy as np
    import torch

    from probes import THREADS

    torch.set_num_threads(THREADS)
    draw = np.random.default_rng(0)
    sizes = [(1, 7, 5), (16, 64, 64), (64, 376, 256), (33, 65, 129), (512, 512, 512)]
    pairs = [(draw.normal(size=(m, k)), draw.normal(size=(k, n))) for m, k, n in sizes]
    numbers, images = draw.normal(size=1001), torch.tensor(draw.normal(size=(3, 4, 36, 36)), dtype=torch.float32)
    kernel = torch.tensor(draw.normal(size=(8, 4, 8, 8)), dtype=torch.float32)
    parts: dict[str, Callable[[], list]] = {
        "NumPy's matrices": lambda: [a.astype(t) @ b.astype(t) for a, b in pairs for t in (np.float32, np.float64)],
        "NumPy's functions": lambda: [f(numbers.astype(np.float32)) for f in (np.tanh, np.exp, np.sum, np.mean)],
        "torch's matrices": lambda: [(torch.tensor(a).float() @ torch.tensor(b).float()).numpy() for a, b in pairs],
        "torch's convolution": lambda: [torch.nn.functional.conv2d(images, kernel, stride=4).numpy()],
        "torch's functions": lambda: [f(torch.tensor(numbers).float()).numpy() for f in (torch.tanh, torch.exp)],
        "Python's functions": lambda: [np.array([_of_libm(x) for x in draw.normal(size=100_000).tolist()])],
        "a training": _trained,
    }
    return {name: b"".join(np.asarray(array).tobytes() for array in part()).hex() for name, part in parts.items()}


def _of_libm(x: float) -> tuple[float, ...]:
    """Functions whose kernels agree on nearly every number, so that only many numbers tell them apart."""
    import math

    return math.exp(x), math.sin(x), math.pow(abs(x), 0.3)


def _trained() -> list:
    from probes import training

    run = training("Pendulum-v1", hidden=(64, 64), envs=4, horizon=64, epochs=2)
    run.iterate()
    return [run.parameters.vector.numpy()]


def probed(environment: dict[str, str]) -> dict[str, str] | None:
    """The bits with these settings; None where they ask for instructions that this processor does not have."""
    command = [sys.executable, __file__, "--probe"]
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True)
    if done.returncode == -signal.SIGILL:
        return None
    done.check_returncode()
    return json.loads(done.stdout)


def outcome(plain: dict[str, str], bits: dict[str, str] | None) -> tuple[bool, str]:
    """Whether a setting stands for another processor here, and what it changes or why it does not."""
    if bits is None:
        return False, "this processor does not have its instructions, so it is left out"
    changed = [part for part in plain if bits[part] != plain[part]]
    return bool(changed), ", ".join(changed) or "not a bit changes, so it is left out"


# The tests


def run_tests(name: str, environment: dict[str, str], options: list[str]) -> bool:
    files = [str(HERE / file) for file in TESTS]
    done = subprocess.run([sys.executable, "-m", "pytest", *files, *options], env=os.environ | environment)
    print(f"{name}: {'passed' if done.returncode == 0 else 'FAILED'}", flush=True)
    return done.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(personalities()), default=[])
    parser.add_argument("--probe", action="store_true", help=argparse.SUPPRESS)
    arguments, options = parser.parse_known_args()
    if arguments.probe:
        print(json.dumps(probe()))
        return 0
    plain, failed = probed({}), []
    for name, environment in personalities().items():
        if arguments.only and name not in arguments.only:
            continue
        is_another, why = outcome(plain, probed(environment))
        settings = " ".join(f"{key}='{value}'" for key, value in environment.items())
        print(f"\n{name} ({settings}): {why}", flush=True)
        if is_another and not run_tests(name, environment, options):
            failed.append(name)
    print(f"\nfailed: {', '.join(failed)}" if failed else "\nall passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
