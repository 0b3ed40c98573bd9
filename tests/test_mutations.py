"""Each guard is proved by one recorded change of the code, mutations.toml, that makes its test fail."""

import os
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from relocate import relocate

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"
MUTATIONS = tomllib.loads((HERE / "mutations.toml").read_text())["mutation"]
PATIENCE = 60
"""Seconds that a test of broken code waits for what may never happen."""
FAILED = 1
"""pytest's exit code for tests that ran and failed; whatever else goes wrong has another."""

each_mutation = pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation["guard"] for mutation in MUTATIONS])


@each_mutation
def test_the_record_is_true(mutation):
    """Each line is still there, once, and so is the test that guards it."""
    file, _, name = mutation["test"].partition("::")
    assert (SOURCE / "spo" / mutation["file"]).read_text().count(mutation["old"]) == 1
    assert f"def {name.partition('[')[0]}(" in (HERE / file).read_text()


def test_no_guard_is_recorded_twice():
    assert len({mutation["guard"] for mutation in MUTATIONS}) == len(MUTATIONS)


ENTRY = """# Guards

[[mutation]]
guard = "One."
file = "a.py"
old = "    return 1"
new = "    return 2"
test = "test_a.py::test_one[x]"
"""


def test_a_line_and_a_test_that_moved_are_followed(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "b.py").write_text("def f():\n    return 1\n")
    (tmp_path / "runs" / "test_b.py").write_text("def test_one(x):\n    assert x\n")
    record, lost = relocate(ENTRY, tmp_path, tmp_path)
    assert lost == [] and record == ENTRY.replace('"a.py"', '"runs/b.py"').replace("test_a.py", "runs/test_b.py")
    assert relocate(record, tmp_path, tmp_path) == (record, [])


def test_a_line_that_changed_is_told(tmp_path):
    (tmp_path / "a.py").write_text("def f():\n    return 3\n")
    (tmp_path / "test_a.py").write_text("def test_one(x):\n    assert x\n")
    assert relocate(ENTRY, tmp_path, tmp_path) == (ENTRY, ["One. its line stands in 0 files"])


@pytest.mark.long
@each_mutation
def test_a_broken_guard_is_noticed(mutation, tmp_path):
    source = shutil.copytree(SOURCE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    path = source / "spo" / mutation["file"]
    path.write_text(path.read_text().replace(mutation["old"], mutation["new"]))
    code, output = run_test(mutation["test"], source, tmp_path)
    assert code == FAILED and " failed" in output, f"{mutation['guard']} The test's exit code is {code}:\n{output}"


def run_test(test: str, source: Path, tmp_path: Path) -> tuple[int | None, str]:
    """The exit code and output of a test that sees this source, in all the processes that it starts."""
    options = ["-x", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "tests"), str(HERE / test)]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options],
        cwd=HERE.parent,
        env=os.environ | {"PYTHONPATH": str(source), "SPO_TEST_PATIENCE": str(PATIENCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=10 * PATIENCE)
        return process.returncode, output
    finally:
        end_all_of(process)


def end_all_of(leader: subprocess.Popen) -> None:
    """Ends the test with every process that it has left behind."""
    try:
        os.killpg(leader.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    leader.wait()
