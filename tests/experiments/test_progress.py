"""A sweep's progress as a terminal of 80 columns and a log show it."""

import json
import sys
from io import StringIO
from types import SimpleNamespace

from rich.console import Console

from spo.experiments.console import progress, progress_line, progress_table
from spo.experiments.plan import Cell
from spo.runs.directory import RunDirectory
from spo.runtime.formatting import fold

CELL = Cell("HalfCheetah-v4", "ppo-clip", 1)
ROW = {"env_steps": 204_800, "wall_time": 20.48, "ratio_deviation": 0.07321}  # no episode ended in this iteration
EPISODES = [{"return": 1200.0}, {"return": 1269.12}]


def make_sweep(row):
    run = SimpleNamespace(
        last_metrics=lambda: row, last_episodes=lambda: EPISODES, read_status=lambda: {"state": "running"}
    )
    plan = SimpleNamespace(config=lambda cell: SimpleNamespace(total_steps=1_000_000), cells=lambda: [CELL])
    return SimpleNamespace(run=lambda cell: run, plan=plan)


def test_the_live_table_has_the_return_in_80_columns():
    console = Console(file=StringIO(), width=80)
    console.print(progress_table(make_sweep(ROW), {CELL}))
    shown = " ".join(console.file.getvalue().split())
    for words in ("steps/s", "time left", "204,800 of", "10,000", "1:20", "1234.6", "0.0732"):
        assert words in shown
    assert shown.count("return") == 1


def test_what_has_ended_leaves_no_empty_table():
    console = Console(file=StringIO(), width=80)
    console.print(progress_table(make_sweep(ROW), set()))
    assert console.file.getvalue().split() == "0 of 1 done, 0 failed".split()


def test_the_return_is_that_of_the_last_episodes_whichever_iteration_they_ended_in(tmp_path):
    run = RunDirectory(tmp_path)
    assert run.last_episodes() == [] and run.last_metrics() is None
    rows = [{"return": float(number), "filler": "x" * 5000} for number in range(30)]
    run.episodes.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"return": 1')  # one is being written
    assert [row["return"] for row in run.last_episodes(3)] == [27.0, 28.0, 29.0]
    assert run.last_episodes(20) == rows[-len(run.last_episodes(20)) :]  # those that are whole within what is read


def test_a_log_labels_every_number():
    told = "204,800 of 1,000,000 steps, 10,000 steps/s, 1:20 left, return 1234.6, ratio deviation 0.0732"
    assert progress_line(progress(make_sweep(ROW), CELL)) == told
    assert progress_line(progress(make_sweep(None), CELL)) == "starting"


def test_words_break_between_words_on_a_terminal_alone(monkeypatch):
    text = "SPO has the highest return on 2 of 2 tasks; runs/ are in runs/compare-HalfCheetah-v4-with-a-long-name"
    assert fold(text, sys.stdout) == text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    lines = fold(text, sys.stdout).splitlines()
    assert " ".join(lines) == text and all(len(line) <= 30 for line in lines[:-1])
    assert lines[-1] == "runs/compare-HalfCheetah-v4-with-a-long-name"
