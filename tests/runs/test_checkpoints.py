"""Checkpoints: published in the right order, believed only if every byte is right, survived by the previous one."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import spo
from crash import SHORT, DiskFullAt, child, remains, start_or_resume
from spo.cli import dispatch
from spo.errors import SpoError
from spo.runs import checkpoint
from spo.runs.directory import RunDirectory
from spo.runs.doctor import examine
from spo.runtime import files


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A short finished run, to be copied before it is harmed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    start_or_resume(out, "CartPole-v1", {"steps": 32 * 4})
    return out


@pytest.fixture
def run(finished, tmp_path):
    return RunDirectory(shutil.copytree(finished, tmp_path / "run"))


def flip(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :]


def truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def zero(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    length = draw.randint(1, 64)
    return content[:start] + bytes(len(content[start : start + length])) + content[start + length :]


def swap(content: bytes, draw: random.Random) -> bytes:
    first, second = sorted(draw.sample(range(len(content)), 2))
    middle = content[first + 1 : second]
    return content[:first] + content[second : second + 1] + middle + content[first : first + 1] + content[second + 1 :]


def grow(content: bytes, draw: random.Random) -> bytes:
    return content + draw.randbytes(draw.randint(1, 64))


def test_every_mutation_is_noticed(run, amount, capsys):
    """1000 flips, cuts, zeroes, swaps and additions in all files of a checkpoint: 100 % are told from the original.

    Its policy, which no run goes on from, has a checksum of its own.
    """
    seed, tried = 5, 0
    draw = random.Random(seed)
    newest = checkpoint.list_checkpoints(run)[0]
    files = {path: path.read_bytes() for path in sorted(newest.iterdir()) if path.is_file()}
    while tried < amount(1000, 10_000):
        path, original = draw.choice(list(files.items()))
        damaged = draw.choice((flip, truncate, zero, swap, grow))(original, draw)
        if damaged == original:
            continue
        path.write_bytes(damaged)
        with pytest.raises(checkpoint.CorruptCheckpoint):
            checkpoint.read(run, newest)
        path.write_bytes(original)
        tried += 1
    checkpoint.read(run, newest)
    with capsys.disabled():
        print(f"\n{tried} mutations, seed {seed}")


def test_checkpoints_that_change_places_are_noticed(run):
    first, second = checkpoint.list_checkpoints(run)
    first.rename(first.with_name("aside"))
    second.rename(first)
    with pytest.raises(checkpoint.CorruptCheckpoint, match="belongs to iteration"):
        checkpoint.read(run, first)


def test_what_this_version_cannot_read_is_not_read(run, monkeypatch):
    newest = checkpoint.list_checkpoints(run)[0]
    manifest, state = newest / "manifest.json", newest / "state.json"
    original, content = manifest.read_bytes(), state.read_bytes()
    manifest.write_bytes(checkpoint.canonical_json(files.add_checksum(files.verify_checksum(original) | {"format": 2})))
    with pytest.raises(checkpoint.CorruptCheckpoint, match="its format is 2, this version reads 1"):
        checkpoint.read(run, newest)
    manifest.write_bytes(original)
    state.unlink()
    state.symlink_to(os.devnull)
    with pytest.raises(checkpoint.CorruptCheckpoint, match="state.json is not a plain file"):
        checkpoint.read(run, newest)
    state.unlink()
    state.write_bytes(content)
    monkeypatch.setattr(checkpoint, "LARGEST_TEXT", len(original) - 1)
    with pytest.raises(checkpoint.CorruptCheckpoint, match="manifest.json has .* bytes; accepted are up to"):
        checkpoint.read(run, newest)


def test_damaged_checkpoints_of_one_name_are_all_set_aside(run):
    for aside in ("damaged-00000004", "damaged-00000004-2"):
        (run.checkpoints / "00000004").mkdir(exist_ok=True)
        (run.checkpoints / "00000004" / "manifest.json").write_text("{}")
        assert checkpoint.load_newest(run)[0].iteration == 3
        assert (run.checkpoints / aside).is_dir()


def test_what_a_killed_process_left_is_removed(run):
    for name in (".new-00000005", ".old-00000002"):
        (run.checkpoints / name).mkdir()
    run.status.unlink()
    spo.resume(run.path, quiet=True)
    assert not checkpoint.leftovers(run)


def test_half_a_line_is_no_row(run):
    with run.metrics.open("a") as file:
        file.write('{"half')
    assert [row["iteration"] for row in run.read_metrics()] == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["state.safetensors", "state.json", "manifest.json", "config.json"])
def test_a_damaged_checkpoint_is_named_set_aside_and_the_previous_one_used(name, run, capsys):
    expected = remains(run.path)
    newest = checkpoint.list_checkpoints(run)[0]
    (newest / name).write_bytes(flip((newest / name).read_bytes(), random.Random(1)))
    run.status.unlink()
    spo.resume(run.path, quiet=True)
    assert f"checkpoint {newest.name} is damaged" in capsys.readouterr().err
    assert (run.checkpoints / f"damaged-{newest.name}").is_dir()
    assert remains(run.path) == expected


def damage_all(run):
    shutil.rmtree(run.policy)
    for path in checkpoint.list_checkpoints(run):
        (path / "state.json").unlink()


def test_a_run_of_which_every_checkpoint_is_damaged_is_refused_as_it_is(run):
    """To start it over would overwrite all that it came to, and what is damaged may be had from a backup."""
    damage_all(run)
    run.status.unlink()
    before = sorted(run.path.rglob("*"))
    with pytest.raises(SpoError, match="no checkpoint of .* can be used .*00000004: .*; 00000003: .* nothing was"):
        spo.resume(run.path, quiet=True)
    assert sorted(run.path.rglob("*")) == before
    shutil.rmtree(run.checkpoints)
    spo.resume(run.path, quiet=True)
    assert run.read_status()["iteration"] == 4


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), MemoryError()], ids=type)
def test_a_checkpoint_that_cannot_be_read_is_not_taken_for_damaged(error, run, monkeypatch, capsys):
    def fail(path, _):
        raise error

    monkeypatch.setattr(checkpoint, "read_bounded", fail)
    with pytest.raises(SpoError, match="00000004 cannot be read: (Permission denied|there is not enough memory)"):
        spo.resume(run.path, quiet=True)
    assert [path.name for path in checkpoint.list_checkpoints(run)] == ["00000004", "00000003"]
    assert not examine(run.path) and "00000004 cannot be read" in capsys.readouterr().out


def test_a_policy_without_a_checkpoint_is_not_trained_over(run, capsys):
    """As a run that was packed."""
    shutil.rmtree(run.checkpoints)
    for steps in (None, 32 * 8):
        run.status.unlink(missing_ok=True)
        with pytest.raises(SpoError, match="no checkpoint to go on from, only its policy; --init-from"):
            spo.resume(run.path, steps=steps, quiet=True)
    examine(run.path)
    assert f"--init-from {run.path} starts another run from its policy" in capsys.readouterr().out


def test_a_log_that_is_too_short_sends_the_run_back(run, capsys):
    expected = remains(run.path)
    os.truncate(run.metrics, run.metrics.stat().st_size - 1)
    run.status.unlink()
    spo.resume(run.path, quiet=True)
    assert "metrics.jsonl has" in capsys.readouterr().err
    assert remains(run.path) == expected


def test_a_damaged_config_is_restored_from_a_checkpoint(run, capsys):
    original = run.config.read_bytes()
    run.config.write_bytes(flip(original, random.Random(2)))
    assert not examine(run.path)
    spo.resume(run.path, quiet=True)
    assert "config.json is damaged" in capsys.readouterr().err
    assert run.config.read_bytes() == original and examine(run.path)


def test_a_damaged_config_without_a_checkpoint_is_refused(run):
    lose_everything(run)
    with pytest.raises(SpoError, match="config.json is damaged .* and there is no checkpoint to restore it from"):
        spo.resume(run.path)


class Calls(list):
    """Notes calls in the order in which they happen."""

    def noted(self, name, function, show):
        def called(*arguments):
            self.append((name, show(*arguments)))
            return function(*arguments)

        return called


def test_publishing_waits_for_the_disk_in_the_right_order(run, monkeypatch):
    """A kill cannot show a missing fsync, so the order of the calls is the test."""
    calls = Calls()
    write = calls.noted("write", checkpoint.write_file, lambda path, _: path.name)
    monkeypatch.setattr("spo.runs.checkpoint.sync", calls.noted("sync", checkpoint.sync, lambda path: path.name))
    monkeypatch.setattr("spo.runs.checkpoint.write_file", write)
    monkeypatch.setattr(Path, "rename", calls.noted("rename", Path.rename, lambda path, _: path.name))
    monkeypatch.setattr(os, "fsync", calls.noted("fsync", os.fsync, lambda file: os.fstat(file).st_size))
    snapshot, _ = checkpoint.load_newest(run)
    calls.clear()
    checkpoint.save_checkpoint(run, checkpoint.Snapshot(9, snapshot.state, snapshot.logs), keep=1)
    names = [call for call in calls if call[0] != "fsync"]
    files = [("write", name) for name in ("state.safetensors", "state.json", "config.json", "manifest.json")]
    logs = [("sync", "metrics.jsonl"), ("sync", "episodes.jsonl")]
    published = [("sync", ".new-00000009"), ("rename", ".new-00000009"), ("sync", "checkpoints")]
    assert names == [*logs, *files, *published, ("rename", "00000004"), ("rename", "00000003")]
    synced = [size for name, size in calls if name == "fsync"]
    assert len(synced) == len(logs) + len(files) + 2  # each of them did reach fsync
    written = [(run.checkpoints / "00000009" / name).stat().st_size for _, name in files]
    assert synced[len(logs) : len(logs) + len(files)] == written  # and nothing of it was still in a buffer


def name_of_open(file: int) -> str:
    return Path(os.readlink(f"/proc/self/fd/{file}")).name


def test_a_run_begins_when_its_config_is_on_the_disk(tmp_path, monkeypatch):
    calls = Calls()
    monkeypatch.setattr(os, "fsync", calls.noted("fsync", os.fsync, name_of_open))
    monkeypatch.setattr(Path, "replace", calls.noted("replace", Path.replace, lambda path, _: path.name))
    start_or_resume(tmp_path / "run", "CartPole-v1", {"steps": 32})
    assert calls[:3] == [("fsync", "config.json.tmp"), ("replace", "config.json.tmp"), ("fsync", "run")]


def test_arrays_and_values_come_back_as_they_went(tmp_path):
    draw = np.random.default_rng(0)
    tree = {
        "a": {"floats": draw.normal(size=(3, 2)).astype(np.float32), "count": 2**100, "none": None},
        "flags": draw.random((2, 3)) < 0.5,
        "bytes": draw.integers(0, 255, (4, 1), dtype=np.uint8),
        "empty": np.empty((0, 2)),
        "list": [1.5, "two"],
    }
    from safetensors.numpy import load, save

    arrays, values = checkpoint.split(tree)
    joined = checkpoint.join(load(save(arrays)), values)
    assert joined["a"]["count"] == 2**100 and joined["list"] == [1.5, "two"]
    for name in ("flags", "bytes", "empty"):
        assert joined[name].dtype == tree[name].dtype and (joined[name] == tree[name]).all()


def test_a_full_disk_is_survived_at_every_write(tmp_path, amount):
    """Whatever write fails, the run says so, the checkpoint before stays good, and with space again it goes on."""
    start_or_resume(tmp_path / "whole", "CartPole-v1", {"steps": 32 * 3})
    expected, number, code = remains(tmp_path / "whole"), 0, 2
    while code == 2:
        number += amount(2, 1)
        out = tmp_path / f"run-{number}"
        process = child(out, "CartPole-v1", {"steps": 32 * 3}, DiskFullAt(number))
        process.join()
        code = process.exitcode
        assert code in (0, 2), f"write {number}"
        run = RunDirectory(out)
        for path in checkpoint.list_checkpoints(run):
            checkpoint.read(run, path)  # nothing half written was adopted
        start_or_resume(out, "CartPole-v1", {"steps": 32 * 3})
        assert remains(out) == expected, f"write {number}"
        shutil.rmtree(out)
    assert number > 20


def full(*_):
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_told_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("spo.runs.recorder.save_checkpoint", full)
    with pytest.raises(SpoError, match="cannot be written to: No space left on device"):
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "run"))
    status = RunDirectory(tmp_path / "run").read_status()
    assert status["state"] == "failed" and "run cannot be written to: No space left on device" in status["reason"]


def test_a_full_disk_does_not_hide_why_a_run_ended(tmp_path, monkeypatch):
    def fail(training, row):
        monkeypatch.setattr(RunDirectory, "write_status", full)
        monkeypatch.setattr("spo.runs.loggers.JsonlLogger.close", full)
        raise SpoError("it was the gearbox")

    with pytest.raises(SpoError, match="it was the gearbox"):
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "run"), callback=fail)


def test_a_disk_that_fails_once_loses_nothing(tmp_path, monkeypatch):
    """Stopping saves once more, over what the failed attempt left."""
    sync, failed = checkpoint.sync, []

    def fail_once(path):
        if path.name.startswith(".new-") and not failed:
            failed.append(path)
            full()
        sync(path)

    monkeypatch.setattr("spo.runs.checkpoint.sync", fail_once)
    with pytest.raises(SpoError, match="No space left on device"):
        spo.train("CartPole-v1", **SHORT | {"checkpoint_every": 3}, out=str(tmp_path / "run"))
    assert checkpoint.load_newest(RunDirectory(tmp_path / "run"))[0].iteration == 3


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_directory_is_told(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(SpoError, match="cannot be written to: Permission denied"):
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "run"))


def test_a_file_where_a_directory_should_be_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SpoError, match="cannot be written to: Not a directory"):
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "file" / "run"))


def test_only_the_newest_are_kept(tmp_path):
    start_or_resume(tmp_path / "run", "CartPole-v1", {"keep": 3})
    names = [path.name for path in checkpoint.list_checkpoints(RunDirectory(tmp_path / "run"))]
    assert names == ["00000008", "00000007", "00000006"]


def kill_and_damage(run):
    run.write_status({"state": "running", "iteration": 4})
    (checkpoint.list_checkpoints(run)[0] / "state.json").unlink()


def kill_and_damage_all(run):
    run.write_status({"state": "running", "iteration": 4})
    damage_all(run)


def lose_everything(run):
    run.config.write_text("{")
    shutil.rmtree(run.checkpoints)


@pytest.mark.parametrize(
    "harm, words",
    [
        (lambda run: run.config.write_text("{"), "PROBLEM  config.json"),
        (lambda run: run.status.write_text("nonsense"), "PROBLEM  status.json"),
        (lambda run: run.metrics.open("a").write("{half"), "PROBLEM  metrics.jsonl: line 5 of 5 is damaged"),
        (lambda run: (checkpoint.list_checkpoints(run)[0] / "state.json").unlink(), "PROBLEM  checkpoint 00000004"),
        (lambda run: (run.policy / "policy.safetensors").write_bytes(b"x"), "PROBLEM  policy"),
        (lambda run: (run.checkpoints / ".new-00000005").mkdir(), "left by a process that was killed"),
        (lambda run: (run.checkpoints / "damaged-00000003").mkdir(), "set aside as damaged; it can be deleted"),
        (lambda run: run.write_status({"state": "failed", "reason": "why"}), "PROBLEM  status.json: failed (why)"),
        (lambda run: run.write_status({"exact": False, "departures": ["why"]}), "not exact: why"),
        (kill_and_damage, "continues from iteration 3"),
        (lose_everything, "nothing here can be resumed: start the run again"),
        (kill_and_damage_all, "no checkpoint can be used: without "),
    ],
)
def test_the_doctor_says_what_is_wrong(harm, words, run, capsys):
    assert examine(run.path)
    assert "the run is finished" in capsys.readouterr().out
    harm(run)
    examine(run.path)
    assert words in capsys.readouterr().out


def test_a_problem_is_an_exit_code(run):
    dispatch(["doctor", str(run.path)])
    run.config.write_text("{")
    with pytest.raises(SystemExit, match="1"):
        dispatch(["doctor", str(run.path)])


def test_the_doctor_sees_a_killed_and_a_living_run(run, capsys):
    run.write_status({"state": "running", "iteration": 3})
    assert not examine(run.path)
    out = capsys.readouterr().out
    assert "the run was killed after iteration 3" in out and f"spo resume {run.path} continues from iteration 4" in out
    with run.acquire_lock():
        examine(run.path)
    assert "the run is going on (process" in capsys.readouterr().out
