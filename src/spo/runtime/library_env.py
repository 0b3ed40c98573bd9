"""Settings of NumPy's and torch's libraries, which read them when they are imported: so this module imports neither."""

import os
from contextlib import suppress

SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "GOMP_SPINCOUNT": "50000"}
"""Acting multiplies small matrices: more threads of NumPy's would only fight with stepping. Torch's threads wait for
work awake so long that they are there for the next operation of an update, but do not keep a core from stepping."""

WITH_AVX512 = {"OPENBLAS_CORETYPE": "Haswell"}
"""A processor that has multiplied with AVX-512 does all else slower for a while, MuJoCo's steps by a quarter; matrices
as small as these lose nothing with AVX2."""


def set_library_env() -> None:
    """Make this process and its children fast at training; what the user has set is left alone."""
    for name, value in (SETTINGS | (WITH_AVX512 if _has_avx512() else {})).items():
        os.environ.setdefault(name, value)


def _has_avx512() -> bool:
    with suppress(OSError), open("/proc/cpuinfo") as file:
        return any(" avx512f " in f"{line.strip()} " for line in file if line.startswith("flags"))
    return False
