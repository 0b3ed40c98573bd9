"""Following files: every line once, whatever becomes of the file, in bounded memory, and through no link."""

import gzip
import json
import os
import shutil
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_runs import append_rows, metrics_row, write_config, write_run, write_status
from spo.experiments.pack import pack
from spo.watch import lines as lines_module
from spo.watch import tables
from spo.watch.files import LARGEST_JSON, Place, UnreadableFileError, read_file, read_json
from spo.watch.history import History
from spo.watch.lines import LONGEST_LINE, LineFollower, PackedFollower, read_last_lines, read_scattered_lines
from spo.watch.tables import NUMBERS, EpisodeTable, MetricTable, merge_rows, parse_row, to_number
from sweeps import make_plan, make_sweep

# Files


def test_a_link_is_not_followed_wherever_it_stands(tmp_path):
    secret = tmp_path / "secret"
    (secret / "run").mkdir(parents=True)
    (secret / "run/config.json").write_text("{}")
    root = tmp_path / "root"
    (root / "run").mkdir(parents=True)
    (root / "run/config.json").symlink_to(secret / "run/config.json")
    (root / "linked").symlink_to(secret)
    with pytest.raises(UnreadableFileError, match="links are not followed"):
        read_file(Place(root, ("run",)), "config.json", 100)
    assert read_file(Place(secret, ("run",)), "config.json", 100) == b"{}"
    assert Place(root, ("linked", "run")).open("config.json") is None  # a link is no directory here
    assert Place(root, ("run",)).signature("config.json") is None


def test_a_pipe_a_directory_and_a_device_are_told_and_nothing_waits(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(UnreadableFileError, match="not a plain file"):
            read_file(Place(tmp_path), name, 100)
    with pytest.raises(UnreadableFileError):
        read_file(Place(tmp_path), "nul\0name", 100)
    assert read_file(Place(tmp_path), "nothing", 100) is None


@pytest.mark.parametrize(
    "content, words",
    [
        (b"[1]", "holds a list"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"{", "cannot be read"),
        (b" " * (LARGEST_JSON + 1), "up to"),
    ],
)
def test_a_table_that_is_none(tmp_path, content, words):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UnreadableFileError, match=words):
        read_json(Place(tmp_path), "config.json")


# Lines


def read_all(follower) -> list[bytes]:
    found = []
    while True:
        news = follower.read()
        found += news.lines
        if not news.is_more:
            return found


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 9))
def test_every_line_comes_once_however_it_is_written(tmp_path_factory, chunks, at_once):
    """Lines longer than what is read at once aside, which are told of below."""
    path = tmp_path_factory.mktemp("log") / "log"
    follower, found = LineFollower(Place(path.parent), "log"), []
    with patch.object(lines_module, "BYTES_AT_ONCE", 2**10 * at_once):
        for chunk in chunks:
            with path.open("ab") as file:
                file.write(chunk)
            found += read_all(follower)
    assert found == b"".join(chunks).split(b"\n")[:-1]


def test_a_log_that_is_cut_and_goes_on_is_read_again(tmp_path):
    log, follower = tmp_path / "log", LineFollower(Place(tmp_path), "log")
    log.write_text("a\nb\nc\n")
    assert read_all(follower) == [b"a", b"b", b"c"]
    os.truncate(log, 2)
    news = follower.read()
    assert news.is_new and news.lines == [b"a"]
    with log.open("a") as file:  # resuming cuts and appends, maybe between two looks
        os.truncate(log, 2)
        file.write("another\n")
    news = follower.read()
    assert (news.is_new, news.lines) == (False, [b"another"])
    os.truncate(log, 2)
    with log.open("a") as file:
        file.write("a longer line than before\n")
    news = follower.read()
    assert news.is_new and news.lines == [b"a", b"a longer line than before"]


def test_a_log_that_is_replaced_or_deleted(tmp_path):
    log, follower = tmp_path / "log", LineFollower(Place(tmp_path), "log")
    log.write_text("a\nb\n")
    read_all(follower)
    (tmp_path / "new").write_text("a\nb\nc\n")
    (tmp_path / "new").replace(log)
    news = follower.read()
    assert news.is_new and news.lines == [b"a", b"b", b"c"]
    log.unlink()
    assert follower.read().is_new and not follower.read().is_new
    log.write_text("d\n")
    assert read_all(follower) == [b"d"]


def test_what_is_no_line_costs_nothing_but_itself(tmp_path):
    log, follower = tmp_path / "log", LineFollower(Place(tmp_path), "log")
    log.write_bytes(b"a\n" + b"x" * (3 * LONGEST_LINE))
    news = follower.read()
    assert news.lines == [b"a"]
    news = follower.read()
    assert news.overlong == 1 and news.lines == [] and follower.offset == 2 + 3 * LONGEST_LINE
    with log.open("ab") as file:
        file.write(b"xx\nb\n" + b"y" * (LONGEST_LINE + 1) + b"\nc\n")
    news = follower.read()
    assert news.lines == [b"b", b"c"] and news.overlong == 1


def test_unchanged_files_are_not_opened(tmp_path):
    (tmp_path / "log").write_text("a\n")
    follower = LineFollower(Place(tmp_path), "log")
    read_all(follower)
    with patch.object(Place, "open", side_effect=AssertionError):
        assert follower.read().lines == []


def test_compressed_lines_are_those_that_were_compressed(tmp_path):
    lines = [json.dumps(metrics_row(i)).encode() for i in range(1, 6000)]
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"\n".join(lines) + b"\n", mtime=0))
    assert read_all(PackedFollower(Place(tmp_path), "log.gz")) == lines


def test_a_small_file_that_promises_much_is_read_in_parts(tmp_path):
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"\0" * 2**27, mtime=0))
    follower, parts, overlong = PackedFollower(Place(tmp_path), "log.gz"), 0, 0
    while True:
        news = follower.read()
        parts, overlong = parts + 1, overlong + news.overlong
        assert news.lines == [] and len(follower.rest) <= LONGEST_LINE
        if not news.is_more:
            break
    assert parts >= 2**27 // lines_module.BYTES_AT_ONCE and overlong > 0


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(b"a\n" * 9999, mtime=0)[:40], b""])
def test_compressed_lines_that_are_damaged(tmp_path, content):
    (tmp_path / "log.gz").write_bytes(content)
    follower = PackedFollower(Place(tmp_path), "log.gz")
    with pytest.raises(UnreadableFileError, match="log.gz is damaged"):
        read_all(follower)
    assert read_all(follower) == []  # once told


def test_the_last_lines_and_some_from_everywhere(tmp_path):
    (tmp_path / "log").write_text("".join(f"{i:03}\n" for i in range(500)))
    assert read_last_lines(Place(tmp_path), "log", 13) == [b"497", b"498", b"499"]
    windows = read_scattered_lines(Place(tmp_path), "log", 5, 20)
    assert windows[0][0] == b"000" and windows[-1][-1] == b"499" and len(windows) == 5
    assert [len(window) for window in windows] == [5, 4, 4, 4, 4]
    assert read_scattered_lines(Place(tmp_path), "nothing", 5, 20) == read_last_lines(Place(tmp_path), "no", 9) == []
    (tmp_path / "short").write_text("1\n2\n3")
    assert read_scattered_lines(Place(tmp_path), "short", 5, 20) == [[b"1", b"2"]]


# Tables


def test_numbers_are_numbers():
    values = [1, -2.5, True, "3", None, [1], 1e101, float("nan"), float("inf"), 10**400, {}]
    assert [to_number(value) for value in values[:2]] == [1.0, -2.5]
    assert all(np.isnan(to_number(value)) for value in values[2:])
    assert [parse_row(line) for line in (b"[]", b"{", b"\xff", b'{"a": 1}', b"[" * 9999, b"1" * 5000)] == [
        None, None, None, {"a": 1}, None, None]  # fmt: skip


def test_a_table_of_metrics_stays_bounded_and_true():
    with patch.object(tables, "MOST_ROWS", 64):
        table, rows = MetricTable(), [metrics_row(i) | {"kl_max": float(i % 17)} for i in range(1, 1001)]
        for row in rows:
            table.add(row)
        assert 32 <= table.count <= 64 and table.merged == 16
        size = table.merged
        for place in range(table.count):
            group = rows[place * size : (place + 1) * size]
            assert table.column("env_steps")[place] == group[-1]["env_steps"]
            assert table.column("kl_max")[place] == max(row["kl_max"] for row in group)
            assert table.column("entropy")[place] == pytest.approx(np.mean([row["entropy"] for row in group]))
    generation = table.generation
    table.clear()
    assert table.count == 0 and table.generation > generation and np.isnan(table.last("kl"))


def test_rows_without_a_metric_do_not_count_towards_its_mean():
    rows = np.full((1, 3, len(NUMBERS)), np.nan)
    place = NUMBERS.index("beta"), NUMBERS.index("kl_max")
    rows[0, :, place[0]] = [1.0, np.nan, 3.0]
    merged = merge_rows(rows)[0]
    assert merged[place[0]] == 2.0 and np.isnan(merged[place[1]])


def test_earlier_names_are_todays():
    table = MetricTable()
    table.add({"ratio_max": 3.0, "outside_fraction": 0.5})
    assert table.last("ratio_deviation_sample_max") == 3.0 and table.last("clip_fraction") == 0.5


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(-1e6, 1e6)), max_size=200), st.sampled_from([0, 1000, 10**6])
)
def test_episodes_in_bins_have_the_moments_of_all(pairs, total):
    table = EpisodeTable()
    table.clear(total)
    steps, returns = np.array(pairs, dtype=float).reshape(-1, 2).T
    for part in (slice(None, 50), slice(50, None)):
        table.add(steps[part], returns[part])
    assert table.count == len(pairs) == table.moments[0].sum()
    assert (table.moments[1].sum() + table.origin * table.count) == pytest.approx(returns.sum(), abs=1e-3)
    ends, means, stds = table.curve()
    assert len(ends) == len(means) == len(stds) and (stds >= 0).all() and (np.diff(ends) > 0).all()
    assert np.array_equal(np.stack(table.points()), np.stack([steps, returns]))


def test_points_are_thinned_and_the_mean_is_not():
    table = EpisodeTable()
    table.clear(10_000)
    steps = np.arange(1, 20_001, dtype=float)
    table.add(steps, steps % 7)
    shown = table.points()
    assert 1000 < len(shown[0]) <= tables.MOST_POINTS and table.every == 8
    assert (np.diff(shown[0]) == 8).all() and table.width * tables.BINS >= 20_000
    assert table.curve()[1] == pytest.approx(3.0, abs=0.3)


# Histories


def poll_all(history: History) -> None:
    while history.poll() or history.is_more:
        pass


def test_a_history_grows_with_its_run(tmp_path):
    run = write_run(tmp_path / "run", "running", made=20)
    history = History(Place(tmp_path, ("run",)), 100_000)
    assert history.poll() and history.metrics.count == 20 and history.episodes.count == 80
    version = history.version
    assert not history.poll() and history.version == version
    generation = history.metrics.generation
    append_rows(run, 21, 25)
    assert history.poll() and history.metrics.count == 25 and history.metrics.generation == generation
    assert history.metrics.last("env_steps") == 25_000 and history.version > version
    (run / "evaluations.jsonl").write_text('{"env_steps": 5000, "return_mean": 7.5}\n')
    history.poll()
    assert history.evaluations == [(5000.0, 7.5)] and history.problems == {}


def test_a_run_that_is_resumed_from_a_checkpoint_has_no_row_twice(tmp_path):
    run = write_run(tmp_path / "run", "interrupted", made=30)
    history = History(Place(run), 100_000)
    poll_all(history)
    sizes = [
        len((run / name).read_bytes().splitlines(keepends=True)[0]) for name in ("metrics.jsonl", "episodes.jsonl")
    ]
    rows = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    os.truncate(run / "metrics.jsonl", sum(map(len, rows[:20])))
    episodes = (run / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    os.truncate(run / "episodes.jsonl", sum(map(len, episodes[:80])))
    append_rows(run, 21, 24)
    poll_all(history)
    assert sizes and history.metrics.column("iteration").tolist() == list(range(1, 25))
    assert history.episodes.count == 4 * 24


def test_hostile_logs_cost_a_sentence(tmp_path):
    run = write_run(tmp_path / "run", made=5)
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n[]\n{"iteration": "<b>", "kl": NaN, "entropy": [1]}\n' + b"z" * 200_000 + b"\n")
        file.write(json.dumps(metrics_row(6)).encode() + b"\n")
    (run / "episodes.jsonl").unlink()
    (run / "episodes.jsonl").mkdir()
    history = History(Place(run), 100_000)
    poll_all(history)
    assert history.metrics.count == 7 and np.isnan(history.metrics.column("kl")[5])
    assert set(history.problems) == {"metrics.jsonl"}  # a directory is no log: there is none
    assert "left out" in history.problems["metrics.jsonl"]


def test_a_run_that_is_deleted_while_it_is_read(tmp_path):
    run = write_run(tmp_path / "run")
    history = History(Place(tmp_path, ("run",)), 100_000)
    poll_all(history)
    shutil.rmtree(run)
    history.poll()
    assert history.metrics.count == 0 and history.episodes.count == 0
    write_run(tmp_path / "run", made=3)
    poll_all(history)
    assert history.metrics.count == 3


def test_packed_curves_and_packed_rows_are_those_of_the_run(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", make_plan(tasks=("Hill-v0",), seeds=1))
    for name, keeps_rows in (("curves", False), ("rows", True)):
        pack(sweep.path, tmp_path / name, keeps_rows=keeps_rows)
    steps = {}
    for name in ("sweep", "curves", "rows"):
        history = History(Place(tmp_path, (name, "runs", "Hill-v0", "spo", "1")), 10_000)
        poll_all(history)
        assert history.is_packed == (name == "curves") and history.problems == {}
        steps[name] = (history.metrics.column("ratio_deviation_max"), history.episodes.curve())
        assert history.episodes.count == 100 and history.metrics.last("wall_time") == pytest.approx(5.0)
    assert np.array_equal(steps["sweep"][0], steps["rows"][0])
    assert steps["curves"][0] == pytest.approx(steps["sweep"][0], rel=1e-3)
    for kept in ("curves", "rows"):
        ends, means, _ = steps[kept][1]
        assert means[-1] == pytest.approx(steps["sweep"][1][1][-1], rel=0.02) and ends[-1] == pytest.approx(
            10_000, rel=0.02
        )


DAMAGED_CURVES = (b"[]", b'{"metrics": 3}', b'{"episodes": {"count": 5}, "metrics": {}}')


@pytest.mark.parametrize("content", [b"", b"nonsense", *(gzip.compress(text, mtime=0) for text in DAMAGED_CURVES)])
def test_packed_curves_that_are_damaged(tmp_path, content):
    write_config(tmp_path / "run")
    write_status(tmp_path / "run", "finished", 100)
    (tmp_path / "run/curves.json.gz").write_bytes(content)
    history = History(Place(tmp_path / "run"), 100_000)
    poll_all(history)
    assert history.is_packed and "curves.json.gz" in history.problems and history.metrics.count == 0
