"""What makes a process fast: settings that are read before imports, and memory that is kept."""

import os
import subprocess
import sys

import pytest

from spo.runs.record import machine
from spo.runtime import library_env

MEASURED = """
import resource
import numpy as np
from spo.runtime.torch_tuning import keep_freed_memory
def count_faults():
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.ones(2**24)  # more than glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
given_back = count_faults()
keep_freed_memory()
print(given_back, count_faults())
"""


@pytest.mark.parametrize("has_avx512", [True, False])
def test_the_settings_are_made_and_those_of_the_user_are_left_alone(monkeypatch, has_avx512):
    monkeypatch.setattr(os, "environ", {"GOMP_SPINCOUNT": "7"})
    monkeypatch.setattr(library_env, "_has_avx512", lambda: has_avx512)
    library_env.set_library_env()
    assert os.environ["GOMP_SPINCOUNT"] == "7" and os.environ["OPENBLAS_NUM_THREADS"] == "1"
    assert os.environ.get("OPENBLAS_CORETYPE") == ("Haswell" if has_avx512 else None)


def test_the_command_line_makes_them_before_numpy_is_imported():
    code = "import sys, os, spo.cli; print('numpy' in sys.modules, os.environ['OPENBLAS_NUM_THREADS'])"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "1"]


def test_they_can_be_made_as_the_documentation_says():
    code = "import sys, spo; spo.set_library_env(); print({'numpy', 'torch', 'gymnasium'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_run_records_which_matrix_kernels_it_used(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Nehalem")
    assert machine()["matrices"] == "Nehalem"


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told")
def test_freed_memory_is_not_taken_from_the_system_again():
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    given_back, kept = map(int, done.stdout.split())
    assert kept * 10 < given_back
