"""What is no plain file or no plain size: pipes, sockets, links, directories. Nothing is written through a link."""

import shutil
from pathlib import Path

import pytest

import spo
from crash import SHORT
from hostile import ALL, Case, find_failures, needs_proc
from poisons import CHECKPOINT, FILES, OTHERS, STRANGERS, link_to, swap, write_sparse
from spo.runs.directory import RunDirectory
from spo.runtime.files import LARGEST_FILE, read_bounded

pytestmark = needs_proc


PLACES = (*FILES, "episodes.jsonl", "lock", "policy", "checkpoints", CHECKPOINT)


def replace_all_by(kinds: dict) -> list[Case]:
    return [Case(f"{kind} as {name}", swap(name, make)) for name in PLACES for kind, make in kinds.items()]


def test_what_is_no_plain_file(run, tmp_path, marker):
    def is_told(case: Case, opener: str, answer: str) -> bool:
        if opener in ("evaluate", "resume"):
            words = ("is not what a run leaves there", "is not a run directory: it has no config.json")
            return any(word in answer for word in words)
        return opener != "doctor" or answer.endswith("PROBLEM")

    assert find_failures(run, tmp_path / "copy", replace_all_by(STRANGERS), ALL, is_told) == {}


def test_what_is_no_plain_size(run, tmp_path, marker):
    def is_told(case: Case, opener: str, answer: str) -> bool:
        if case.name.endswith(" as policy") and "this is its policy after iteration" in answer:
            return True  # without a final policy a checkpoint's is taken
        return opener != "load" or "policy" not in case.name or answer.startswith("REFUSED")

    assert find_failures(run, tmp_path / "copy", replace_all_by(OTHERS), ALL, is_told) == {}


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "lock", "status.json.tmp", "evaluation.json.tmp", "policy", "checkpoints"]
)
def test_nothing_is_written_through_a_link(run, tmp_path, name):
    """A run that is opened, or a directory that a run is trained into, may point at what is dear to its user."""
    dear = tmp_path / "dear"
    (dear / ".old-photographs").mkdir(parents=True)
    (dear / "letter").write_text("dear me")
    before = sorted((path, path.read_bytes() if path.is_file() else b"") for path in dear.rglob("*"))
    shutil.copytree(run, tmp_path / "copy")
    swap(name, link_to(str(dear if "." not in name and name != "lock" else dear / "letter")))(tmp_path / "copy")
    with pytest.raises(spo.SpoError, match="is not what a run leaves there"):
        spo.resume(tmp_path / "copy", quiet=True)
    with pytest.raises(spo.SpoError, match="is not what a run leaves there"):
        spo.evaluate(tmp_path / "copy", episodes=1)
    (tmp_path / "new").mkdir()
    shutil.copy(tmp_path / "copy" / name, tmp_path / "new" / name, follow_symlinks=False)
    with pytest.raises(spo.SpoError, match="is not what a run leaves there|already holds a run"):
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "new"))
    assert before == sorted((path, path.read_bytes() if path.is_file() else b"") for path in dear.rglob("*"))


def test_a_file_is_read_up_to_the_size_that_it_had(tmp_path):
    """What grows, or has no end though it has a size, cannot hold us up."""
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bounded(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="file has 5 bytes; accepted are up to 4"):
        read_bounded(tmp_path / "file", 4)
    write_sparse(tmp_path / "large", LARGEST_FILE + 1)
    with pytest.raises(ValueError, match="accepted are up to 2,147,483,648"):
        read_bounded(tmp_path / "large")
    with pytest.raises(ValueError, match="zero is not a plain file"):
        read_bounded(Path("/dev/zero"))
    assert read_bounded(Path("/proc/self/status")) == b""  # it has no size


def test_a_run_that_cannot_be_locked(tmp_path):
    with pytest.raises(spo.SpoError, match="gone cannot be written to: No such file"):
        RunDirectory(tmp_path / "gone").acquire_lock().__enter__()


def test_an_evaluation_that_cannot_be_written(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / "evaluation.json.tmp").mkdir()
    assert spo.evaluate(tmp_path / "copy", episodes=1) == spo.evaluate(run, episodes=1)
    assert "evaluation.json cannot be written to: Is a directory" in capsys.readouterr().err
