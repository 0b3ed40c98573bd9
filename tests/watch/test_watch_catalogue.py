"""Finding runs and looking at them, the kept ratios, words, the terminal, and who may ask the server for what."""

import io
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save

from made_runs import append_rows, cloud, write_cloud, write_config, write_run, write_status, write_sweep
from spo.errors import SpoError
from spo.runtime.formatting import clock_or_days, draw_bars
from spo.watch import catalogue as catalogue_module
from spo.watch.catalogue import Catalogue
from spo.watch.command import watch_runs
from spo.watch.fans import Fan, measure, share_of
from spo.watch.files import Place
from spo.watch.glance import look
from spo.watch.samples import SampleReader
from spo.watch.text import draw
from spo.watch.words import list_differences, show_number, show_steps
from waiting import PATIENCE


def fresh(root: Path) -> Catalogue:
    found = Catalogue([root])
    found.poll(PATIENCE)
    return found


def look_again(catalogue: Catalogue) -> None:
    catalogue._next_walk = catalogue._next_look = 0.0
    catalogue.poll(PATIENCE)


# Finding


def test_runs_and_sweeps_are_found_as_they_come_and_go(tmp_path):
    write_sweep(tmp_path / "sweep", made=3)
    write_run(tmp_path / "deep/er/run", made=3)
    found = fresh(tmp_path)
    assert set(found.glances) == {
        "0/deep/er/run",
        *(f"0/sweep/runs/Hill-v0/{v}/{s}" for v in ("ppo", "spo") for s in (1, 2)),
    }
    assert found.plans["0/sweep"].size == 4 and found.label(found.glances["0/sweep/runs/Hill-v0/ppo/1"]) == "PPO"
    version = found.version
    look_again(found)
    assert found.version == version
    write_run(tmp_path / "new", made=2)
    shutil.rmtree(tmp_path / "deep")
    look_again(found)
    assert "0/new" in found.glances and "0/deep/er/run" not in found.glances and found.version > version


def test_links_are_noted_and_what_lies_behind_them_is_not_shown(tmp_path):
    write_run(tmp_path / "secret/run", made=2)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "secret")
    found = fresh(tmp_path / "root")
    assert found.glances == {} and "is a link" in found.found.notes[0]
    (tmp_path / "given").symlink_to(tmp_path / "secret")  # one that was given is meant
    assert list(fresh(tmp_path / "given").glances) == ["0/run"]


def test_too_much_costs_a_note(tmp_path):
    for number in range(5):
        write_config(tmp_path / f"run{number}")
    with patch.object(catalogue_module, "MOST_RUNS", 3):
        found = fresh(tmp_path)
    assert len(found.glances) == 3 and "more than 3 runs" in found.found.notes[0]
    deep = tmp_path / "/".join("abcdefghijkl")
    write_config(deep / "run")
    assert "too deep" in " ".join(fresh(tmp_path).found.notes)
    assert "not a directory (yet)" in fresh(tmp_path / "nowhere").found.notes[0]


def test_names_of_any_bytes_have_a_key_of_letters(tmp_path):
    name = os.fsdecode(b"run \xff \xe2\x82\xac/".rstrip(b"/"))
    write_config(tmp_path / name)
    found = fresh(tmp_path)
    assert list(found.glances) == ["0/run%20%FF%20%E2%82%AC"]
    assert found.place("0/run%20%FF%20%E2%82%AC").path == tmp_path / name and found.place("0/../run") is None


# Looking


def test_a_look_reads_little_however_long_the_run_is(tmp_path):
    run = write_run(tmp_path / "run", "running", made=3000)
    read, real = [], os.pread
    with patch.object(os, "pread", lambda *arguments: read.append(arguments[1]) or real(*arguments)):
        glance = look("0/run", Place(run))
    assert sum(read) < 100_000 < (run / "metrics.jsonl").stat().st_size
    assert (glance.state, glance.steps, glance.deviation_max) == ("running", 3_000_000, pytest.approx(0.075))
    assert glance.last_return == pytest.approx(np.mean([i + n for i in range(2976, 3001) for n in range(4)]))
    assert len(glance.spark) > 20 and list(glance.spark) == sorted(glance.spark)


def test_a_run_that_stopped_without_a_word_is_silent(tmp_path):
    run = write_run(tmp_path / "run", "running", made=10)
    glance = look("0/run", Place(run))
    assert glance.state == "running" and glance.seconds_left == pytest.approx(45.0)
    long_ago = time.time() - 3600
    os.utime(run / "status.json", (long_ago, long_ago))
    glance = look("0/run", Place(run))
    assert glance.state == "silent" and np.isnan(glance.seconds_left)
    assert glance.reason.startswith("nothing was written for 1:00:")


@pytest.mark.parametrize("name, content, words", [
    ("config.json", b"[]", "config.json holds a list"), ("config.json", b"\0" * 300_000, "up to"),
    ("status.json", b"{", "status.json cannot be read"), ("metrics.jsonl", b"junk\n", "no row"),
    ("config.json", b'{"settings": 3, "resolved": []}', ""), ("status.json", b'{"state": {"a": 1}}', ""),
    ("episodes.jsonl", b'{"return": "<b>"}\n[1]\n', ""), ("summary.json", b'{"returns": [3], "metrics": 7}', ""),
])  # fmt: skip
def test_hostile_files_cost_a_sentence(tmp_path, name, content, words):
    run = write_run(tmp_path / "run", made=3)
    (run / name).write_bytes(content)
    found = fresh(tmp_path)
    assert words in " ".join(found.glances["0/run"].problems) and len(found.glances) == 1


# Kept ratios


def test_kept_ratios_are_listed_read_and_measured(tmp_path):
    for iteration in (1, 2, 30):
        write_config(tmp_path)
        write_cloud(tmp_path, iteration, "ppo-clip")
    (tmp_path / "ratio_samples/junk.txt").write_text("")
    reader = SampleReader(Place(tmp_path))
    assert reader.list_iterations() == [1, 2, 30]
    sample, made = reader.read(30), cloud(30, "ppo-clip")
    assert np.array_equal(sample.ratio, made["ratio"].astype(float)) and sample.epsilon == pytest.approx(0.2)
    outside, alone = share_of(sample, 3, 0.2)
    assert outside == pytest.approx((np.abs(made["ratio"][3] - 1) > np.float32(0.2)).mean()) and 0 < alone < outside
    assert share_of(sample, 0, 0.2) == (0.0, 0.0)
    fan = Fan(reader, 0.2)
    assert fan.poll(PATIENCE) and not fan.poll(PATIENCE) and fan.columns()["iteration"].tolist() == [1, 2, 30]
    assert fan.spreads[30] == measure(sample, 0.2) and fan.reach()[1] > 1.2
    (tmp_path / "ratio_samples/1.safetensors").unlink()
    assert fan.poll(PATIENCE) and fan.columns()["iteration"].tolist() == [2, 30]
    assert reader.read(99) is None and "not kept" in reader.problem


@pytest.mark.parametrize("content", [
    b"", b"junk" * 100, (2**40).to_bytes(8, "little") + b"{}", save({"ratio": np.ones(3, np.float32)}),
    save({"ratio": np.ones((1, 3), np.float32), "advantage": np.ones((2, 2), np.float32)}),
    save({"ratio": np.ones((1, 3), np.int32), "advantage": np.ones((1, 3), np.float32)}),
    save({"ratio": np.ones((0, 3), np.float32), "advantage": np.ones((0, 3), np.float32)}),
])  # fmt: skip
def test_kept_ratios_that_are_damaged(tmp_path, content):
    (tmp_path / "ratio_samples").mkdir()
    (tmp_path / "ratio_samples/5.safetensors").write_bytes(content)
    reader = SampleReader(Place(tmp_path))
    assert reader.read(5) is None and reader.problem.startswith("ratio_samples/5.safetensors")
    assert Fan(reader, 0.2).poll() and Fan(reader, 0.2).columns()["iteration"].tolist() == []


def test_recorded_ratios_of_all_samples_are_thinned(tmp_path):
    (tmp_path / "ratios").mkdir()
    wide = {"ratio": np.full((2, 9000), np.nan, np.float32), "advantage": np.ones(9000, np.float32)}
    (tmp_path / "ratios/10.safetensors").write_bytes(save(wide))
    sample = SampleReader(Place(tmp_path)).read(10)
    assert sample.ratio.shape == sample.advantage.shape == (2, 1800) and sample.is_left_alone is None
    assert measure(sample, 0.2) is None and np.isnan(share_of(sample, 0, 0.2)).all()


# Words and the terminal


def test_words():
    assert [show_number(x) for x in (0, 1234.5, -0.05, 1e9, np.nan, 3e-6)] == [
        "0",
        "1,234",
        "−0.0500",
        "1.00e+09",
        "–",
        "3.00e−06",
    ]
    assert [show_steps(x) for x in (999, 12_000, 1_500_000)] == ["999", "12k", "1.5M"]
    assert [clock_or_days(x) for x in (5, 3723, 1e6, np.inf)] == ["0:05", "1:02:03", "11 d 13 h", "–"]
    assert draw_bars([0, 1, 2], 3) == "▁▅█" and draw_bars([5, 5]) == "▁▁" and draw_bars([]) == ""


def test_settings_that_differ_are_told_within_a_task(tmp_path):
    write_config(tmp_path / "a", hidden=[64, 64])
    write_config(tmp_path / "b", hidden=[9, 9, 9])
    write_config(tmp_path / "c", env="Other-v0", hidden=[1])
    found = fresh(tmp_path)
    assert list_differences(found.glances.values()) == {"0/a": "hidden 64 64", "0/b": "hidden 9 9 9", "0/c": ""}


def test_the_table_in_a_terminal_steers_nothing(tmp_path):
    write_run(tmp_path / "run", "failed", made=3, env="[red]x\x1b[2J", reason="why \x07 not\nhere")
    append_rows(tmp_path / "run", 4, 5)
    written = io.StringIO()
    Console(file=written, width=150, force_terminal=False).print(draw(fresh(tmp_path), (150, 40)))
    text = written.getvalue()
    assert "[red]x\\x1b[2J" in text and "\x1b" not in text and "\x07" not in text and "1 failed" in text


def test_the_table_in_a_terminal_fits_and_says_why_runs_failed(tmp_path):
    write_sweep(tmp_path / "sweep", made=3)
    write_run(tmp_path / "run", "failed", made=3, env="Walker2d-v4", reason="training diverged")
    for width in (40, 80, 120):
        written = io.StringIO()
        Console(file=written, width=width, force_terminal=False).print(draw(fresh(tmp_path), (width, 9)))
        lines = written.getvalue().splitlines()
        assert lines[-1].startswith("run: training diverged") and "3 more" in lines[-2] and len(lines) == 6
        assert max(map(len, lines)) <= width and ("SPO, seed 2 · sweep" in written.getvalue()) == (width == 120)


def test_the_command_says_what_it_cannot_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoError, match="is not a directory"):
        watch_runs([tmp_path / "file"], "127.0.0.1", 0, False, True)
    with pytest.raises(SpoError, match="--port 70000 is not accepted"):
        watch_runs([tmp_path], "127.0.0.1", 70_000, False, False)
    with patch.dict(sys.modules, {"spo.watch.server": None}), pytest.raises(SpoError, match=r"\[watch\]"):
        watch_runs([tmp_path], "127.0.0.1", 0, False, False)


def test_text_for_a_pipe_is_printed_once(tmp_path):
    write_run(tmp_path / "run", made=3)
    command = [sys.executable, "-m", "spo", "watch", str(tmp_path), "--text"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1 finished" in done.stdout and "Hill-v0" in done.stdout and done.stderr == ""


def test_nothing_here_locks_or_writes():
    for path in Path(catalogue_module.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert not [
            word for word in ("fcntl", "flock", "write_text", "write_bytes", "O_WRONLY", "O_RDWR") if word in text
        ]


def test_status_that_is_being_replaced_is_no_damage(tmp_path):
    run = write_run(tmp_path / "run", "running", made=3)
    (run / "status.json.tmp").write_text("{")
    write_status(run, "running", 4)
    assert fresh(tmp_path).glances["0/run"].problems == ()


def test_nothing_is_cut_off_in_a_terminal_of_eighty_letters(tmp_path):
    write_run(
        tmp_path / "HalfCheetah-v4-spo-adaptive-s1", "interrupted", env="HalfCheetah-v4", objective="spo-adaptive"
    )
    write_sweep(tmp_path / "sweep", made=20)
    written = io.StringIO()
    Console(file=written, width=80, force_terminal=False).print(draw(fresh(tmp_path), (80, 40)))
    assert "…" not in written.getvalue()
    for word in ("interrupted", "HalfCheetah-v4", "SPO adaptive", "100 %", "deviation", "return", "▁"):
        assert word in written.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_no_number_is_cut_off_in_any_terminal(tmp_path, width):
    for seed in (1, 2):
        path = tmp_path / f"run-{seed}"
        write_run(path, "finished", made=20, env="InvertedDoublePendulum-v4", objective="spo-adaptive", seed=seed)
    written = io.StringIO()
    Console(file=written, width=width, force_terminal=False).print(draw(fresh(tmp_path), (width, 40)))
    header, *rows = written.getvalue().splitlines()[1:]
    assert len(rows) == 2 and max(map(len, [header, *rows])) <= width and "deviation" in header
    cut = {word[:-1] for row in rows for word in row.split() if word.endswith("…")}
    assert all(any(name.startswith(part) for name in ("InvertedDoublePendulum-v4", "SPO", "adaptive")) for part in cut)
    if width >= 80:
        column = header.index("seed")
        assert {row[column : column + 4].strip() for row in rows} == {"1", "2"}
