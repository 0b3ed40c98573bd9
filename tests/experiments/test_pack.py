"""Packed sweeps: small, added to, and read as if all rows were there; whatever is wrong with one is told."""

import gzip
import io
import json
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spo
from crash import DiskFullAt
from spo import cli
from spo.errors import SpoError
from spo.experiments.figures import learning_curves
from spo.experiments.history import BINS, CURVES, SUMMARY, History, fill_gaps, from_files, from_rows, pack_history
from spo.experiments.pack import STAGING, pack
from spo.experiments.plan import Cell
from spo.experiments.report.page import make_report
from spo.experiments.results import Results
from spo.experiments.sweep import Sweep
from spo.runs.directory import RunDirectory
from sweep_fixtures import write_sweep
from sweeps import make_plan, make_sweep, write_run

FIRST = Cell("Hill-v0", "ppo", 1)
METRIC = "ratio_deviation_max"
DIGITS = 5.001e-4
"""How far a number may be from itself in four significant digits, relatively."""


def rows_of(iterations: int, batch: int, generator: np.random.Generator, metrics: int = 3) -> list[dict]:
    """Iterations with metrics of every size."""
    values = generator.lognormal(0, 2, (iterations, metrics)).tolist()
    places = [{"iteration": n, "env_steps": n * batch, "wall_time": 0.7 * n} for n in range(1, iterations + 1)]
    names = ["ratio_deviation_max", "ratio_deviation", *(f"metric_{number}" for number in range(2, metrics))]
    return [place | dict(zip(names, own)) for place, own in zip(places, values)]


def episodes_of(count: int, steps: int, generator: np.random.Generator) -> list[dict]:
    ended, returns = np.sort(generator.integers(1, steps + 1, count)), generator.normal(500, 1000, count)
    return [{"env": 0, "return": value, "length": 9, "env_steps": step} for step, value in zip(ended.tolist(), returns)]


def history_of(rows: list[dict], episodes: list[dict], last: float = 0.1) -> History:
    return from_rows(rows, episodes, rows[-1]["env_steps"], len(rows), last)


def read_back(history: History, path: Path) -> History:
    path.mkdir(parents=True, exist_ok=True)
    for name, content in pack_history(history).items():
        (path / name).write_bytes(content)
    return from_files(RunDirectory(path))


# What is kept of a run


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 1200), st.integers(1, 50), st.integers(0, 300), st.sampled_from([1, 20, 100]), st.integers(0, 99))
def test_curves_are_those_of_the_rows(iterations, batch, count, points, seed):
    """The mean of the episodes of each bin, whatever bins are joined to, and no peak of an iteration is lost."""
    generator, total = np.random.default_rng(seed), iterations * batch
    rows, episodes = rows_of(iterations, batch, generator), episodes_of(count, total, generator)
    history = history_of(rows, episodes)
    returns, peaks = by_bin(episodes, "return", points, total), by_bin(rows, METRIC, points, total)
    found = history.return_curve(points), history.peak_curve(METRIC, points)
    for number, values in returns.items():
        assert found[0][number] == pytest.approx(np.mean(values), rel=1e-9, abs=1e-7)
    for number, values in peaks.items():
        assert found[1][number] == max(values)
    assert np.isnan(found[0]).all() == (not count) and found[1].max() == max(max(values) for values in peaks.values())


def by_bin(rows: list[dict], name: str, points: int, total: int) -> dict[int, list[float]]:
    """A bin has its upper edge: in whole numbers, bin < step·points/total ≤ bin + 1."""
    found = {}
    for row in rows:
        found.setdefault((row["env_steps"] * points - 1) // total, []).append(row[name])
    return found


def test_a_bin_without_a_value_repeats_the_one_before():
    nothing = np.nan
    assert fill_gaps(np.array([nothing, 3, nothing, nothing, 5, nothing])).tolist() == [3, 3, 3, 3, 5, 5]
    assert np.isnan(fill_gaps(np.full(3, nothing))).all()


@pytest.mark.parametrize("count", [0, 5, 900])
def test_numbers_are_kept_exactly_and_curves_to_four_digits(tmp_path, count):
    generator = np.random.default_rng(1)
    rows, episodes = rows_of(700, 64, generator), episodes_of(count, 700 * 64, generator)
    for row in rows[300:]:
        row["epsilon"] = 0.2 + 0.0001 * row["iteration"]  # a metric that earlier rows do not have
    history = history_of(rows, episodes, last=0.25)
    again = read_back(history, tmp_path / "run")
    assert again.numbers == history.numbers and again.is_packed and not history.is_packed
    assert [own["share"] for own in again.numbers["returns"]] == [0.25, 0.1, 0.01]
    assert again.summary(0.1)["return_from_last_episodes"] == (count < 900)
    assert set(again.metrics) == set(rows[-1]) - {"iteration", "env_steps"}
    np.testing.assert_array_equal(again.episodes["count"], history.episodes["count"])
    for name, curve in {"episodes": history.episodes, **history.metrics}.items():
        kept = again.episodes if name == "episodes" else again.metrics[name]
        for key, values in curve.items():
            np.testing.assert_allclose(kept[key], values, rtol=DIGITS, atol=0)
    assert np.isnan(history.metrics["epsilon"]["mean"][:210]).all() and history.metric_curve("epsilon", 100)[0] > 0.2
    assert pack_history(again) == pack_history(history)  # packed twice is packed once
    with pytest.raises(SpoError, match="has no return over the last 0.5 of the steps"):
        again.summary(0.5)


def test_a_run_of_ten_million_steps_is_small():
    """As many rows, metrics and episodes as the longest run of Table 1, and noise, which nothing can compress."""
    generator = np.random.default_rng(0)
    rows = rows_of(4_883, 2_048, generator, metrics=22)
    history = history_of(rows, episodes_of(80_000, 10_000_384, generator))
    assert sum(map(len, pack_history(history).values())) < 75_000  # and 5 kB for config and status


# Reports and figures


@pytest.fixture(scope="module")
def table1(tmp_path_factory) -> dict[str, Results]:
    """The same sweep with all its rows and as packed curves."""
    path = tmp_path_factory.mktemp("table1")
    whole = write_sweep(path / "whole", "table1", tasks=("Ant-v4", "Hopper-v4"), seeds=2)
    pack(path / "whole", path / "small")
    pack(path / "whole", path / "rows", keeps_rows=True)
    return {name: Results(Sweep.open(path / name)) for name in ("small", "rows")} | {"whole": whole}


@pytest.mark.parametrize("name", ["small", "rows"])
def test_a_packed_sweep_gives_the_same_numbers(table1, name):
    whole, kept = table1["whole"], table1[name]
    assert kept.csv() == whole.csv() and kept.is_complete()
    for cell, run in whole.runs.items():
        assert kept.runs[cell].summary == run.summary
        assert kept.runs[cell].history.iteration_means == run.history.iteration_means
        for curve in (Results.curve, Results.deviation_curve):
            steps, values = curve(whole, cell.task, cell.variant)
            again, others = curve(kept, cell.task, cell.variant)
            np.testing.assert_array_equal(again, steps)
            np.testing.assert_allclose(others, values, rtol=0, atol=DIGITS * np.abs(values).max())


def test_a_report_says_what_it_was_read_from(table1, tmp_path):
    pages = {}
    for name, results in table1.items():
        page, *_ = make_report(results.sweep.path, tmp_path / f"{name}.html")
        text = re.sub(r"base64,[A-Za-z0-9+/=]*", "", page.read_text()).replace(f"--out {name}", "--out x")
        pages[name], told = re.subn(r"Read from [^<;]*", "", text)
        assert told == 1
    assert "Read from all rows;" in (tmp_path / "whole.html").read_text()
    assert "Read from packed curves (500 bins, 4 digits);" in (tmp_path / "small.html").read_text()
    assert pages["rows"] == pages["whole"]
    # Under a picture stands where its curves end, to more digits than are packed.
    assert re.sub(r"At the end: [^\"]*", "", pages["small"]) == re.sub(r"At the end: [^\"]*", "", pages["whole"])


def test_a_figure_says_what_it_was_read_from(table1, tmp_path):
    notes = {
        name: learning_curves.training_curves(results, has_deviations=True).note for name, results in table1.items()
    }
    assert notes["whole"].endswith(" · from all rows") and notes["rows"] == notes["whole"]
    assert notes["small"].endswith(" · from packed curves (500 bins, 4 digits)")
    assert notes["small"].rpartition(" · ")[0] == notes["whole"].rpartition(" · ")[0]
    mixed = Sweep.open(shutil.copytree(table1["rows"].sweep.path, tmp_path / "mixed"))
    cell = mixed.plan.cells()[0]
    shutil.rmtree(mixed.run(cell).path)
    shutil.copytree(table1["small"].sweep.run(cell).path, mixed.run(cell).path)
    assert Results(mixed).origin == "all rows of 15 runs and packed curves (500 bins, 4 digits) of 1"


# Packing, and adding to a pack


@pytest.fixture
def sweep(tmp_path) -> Sweep:
    """Eleven finished runs and one that goes on."""
    plan = make_plan()
    last = plan.cells()[-1]
    sweep = make_sweep(tmp_path / "sweep", plan, without=(last,))
    write_run(sweep, last, "running")
    return sweep


def listed(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_runs_that_finish_later_are_added(sweep, tmp_path, capsys):
    small, last = tmp_path / "small", sweep.plan.cells()[-1]
    cli.dispatch(["pack", str(sweep.path), "--into", str(small)])
    assert f"11 runs packed into {small}, " in (told := capsys.readouterr().out) and "1 running, left out" in told
    before = listed(small)
    assert len(before) == 1 + 4 * 11 and not any(STAGING in name for name in before)
    shutil.rmtree(sweep.run(last).path)
    write_run(sweep, last)
    cli.dispatch(["pack", str(sweep.path), "--into", str(small)])
    assert f"1 run packed into {small}, " in (told := capsys.readouterr().out) and "11 were there" in told
    after = listed(small)
    assert before.items() <= after.items() and len(after) == len(before) + 4
    assert Results(Sweep.open(small)).csv() == Results(sweep).csv()
    assert str(pack(sweep.path, small, is_new=False)) == f"0 runs packed into {small}; 12 were there"
    assert listed(small) == after


def test_a_pack_grows_by_sweeps_of_other_tasks(sweep, tmp_path):
    other = make_sweep(tmp_path / "other", make_plan(tasks=("Moor-v0",), seeds=1))
    for source in (sweep.path, other.path):
        pack(source, tmp_path / "small", is_new=False)
    plan = Sweep.open(tmp_path / "small").plan
    assert plan.tasks == ("Hill-v0", "Dale-v0", "Moor-v0") and plan.seeds == 3
    states = [run.state for run in Results(Sweep.open(tmp_path / "small")).runs.values()]
    assert (states.count("finished"), states.count("waiting")) == (13, 5)


def refused(words: str, *arguments: object) -> None:
    with pytest.raises(SpoError) as refusal:
        cli.dispatch(["pack", *map(str, arguments)])
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_what_disagrees_is_refused(sweep, tmp_path):
    small = tmp_path / "small"
    pack(sweep.path, small)
    before = listed(small)
    shutil.rmtree(sweep.run(FIRST).path)
    write_run(sweep, FIRST, returns=lambda share: 70 * share)
    refused(f"--into {small} holds another run of {FIRST}: returns is [", sweep.path, "--into", small)
    shutil.rmtree(sweep.run(FIRST).path)
    write_run(sweep, FIRST, settings={"learning_rate": 0.5})
    words = "learning_rate (settings) is 0.0003 there and 0.5 here; nothing was packed"
    refused(words, sweep.path, "--into", small)
    make_sweep(tmp_path / "longer", make_plan(steps=20_000), without=tuple(make_plan().cells()))
    refused(f"--into {small} holds runs with steps 10000, not 20000", tmp_path / "longer", "--into", small)
    shutil.copytree(sweep.run(Cell("Hill-v0", "ppo", 2)).path, sweep.run(FIRST).path, dirs_exist_ok=True)
    refused("is damaged, so nothing was packed: ", sweep.path, "--into", small)
    assert listed(small) == before


def test_other_bad_input(sweep, tmp_path):
    small, path = tmp_path / "small", sweep.path
    refused("needs one of --out, a new directory, and --into, a pack to add to", path)
    refused("needs one of --out", path, "--out", small, "--into", small)
    refused("is not empty; name a new directory, or add to it with --into", path, "--out", path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    refused("is not empty and holds no plan.json; accepted is what spo pack", path, "--into", tmp_path / "other")
    refused("cannot be written to: Not a directory", path, "--out", tmp_path / "other" / "notes.txt")
    none = make_sweep(tmp_path / "none", without=tuple(make_plan().cells()))
    refused(f"{none.path} has no finished run, so there is nothing to pack", none.path, "--out", small)
    assert not small.exists()
    pack(path, small)
    refused("has no rows for --rows to keep: it was packed without them", small, "--out", tmp_path / "rows", "--rows")
    assert not (tmp_path / "rows").exists()
    write_run(Sweep(small, sweep.plan), sweep.plan.cells()[-1], "running")
    shutil.rmtree(sweep.run(sweep.plan.cells()[-1]).path)
    write_run(sweep, sweep.plan.cells()[-1])
    refused("holds Dale-v0 · spo · seed 3, which is running; nothing was packed", path, "--into", small)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch, is_new):
    """Whatever write fails, the target is what it was, and with space again all is packed."""
    sweep = make_sweep(tmp_path / "sweep", make_plan(tasks=("Hill-v0",), seeds=1))
    target, before, number, opened = tmp_path / "small", {}, 0, io.open
    if not is_new:
        pack(make_sweep(tmp_path / "other", make_plan(tasks=("Dale-v0",), seeds=1)).path, target)
        before = listed(target)
    while True:
        number += 1
        DiskFullAt(number)()
        try:
            pack(sweep.path, target, is_new)
            break
        except SpoError as refusal:
            assert str(refusal).endswith(f"{target} cannot be written to: No space left on device")
        finally:
            io.open = opened
        assert target.exists() != is_new and (is_new or listed(target) == before), f"write {number}"
    assert number > 1 + 2 * 4  # the plan, and four files of each run
    results = Results(Sweep.open(target))
    assert results.is_complete() and not (target / STAGING).exists()


def test_a_pack_that_was_killed_is_packed_again(sweep, tmp_path, monkeypatch):
    """What was left aside does not count, and what was moved already is the same run."""
    small = tmp_path / "small"
    (small / STAGING / "runs").mkdir(parents=True)  # killed before anything was moved
    with monkeypatch.context() as patched:
        moved, rename = [], Path.rename

        def killed(path: Path, place: Path) -> None:
            if len(moved) == 3:
                patched.setattr(
                    "spo.experiments.pack.shutil.rmtree", lambda *_, **__: None
                )  # as when the process is gone
                raise KeyboardInterrupt
            moved.append(rename(path, place))

        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            pack(sweep.path, small)
    assert (small / STAGING).exists() and len(list(small.glob("runs/*/*/*/config.json"))) == 3
    assert pack(sweep.path, small, is_new=False).known == 3
    assert Results(Sweep.open(small)).csv() == Results(sweep).csv().replace("running", "waiting")
    assert not (small / STAGING).exists()


# A single run and its policy


@pytest.fixture(scope="module")
def lone(tmp_path_factory) -> Path:
    """A run that belongs to no sweep."""
    path = tmp_path_factory.mktemp("lone") / "run"
    spo.train("CartPole-v1", out=str(path), steps=2048, envs=2, horizon=64, minibatches=1, epochs=1, quiet=True)
    return path


def test_a_run_is_packed_with_a_policy_that_plays(lone, tmp_path, capsys):
    small = tmp_path / "zoo" / "CartPole-v1-spo"
    cli.dispatch(["pack", str(lone), "--out", str(small)])
    assert re.fullmatch(rf"1 run packed into {small}, [\d.]+ kB\n", capsys.readouterr().out)
    assert sorted(listed(small.parent)) == [
        f"CartPole-v1-spo/{name}"
        for name in ("config.json", CURVES, "policy/policy.json", "policy/policy.safetensors", "status.json", SUMMARY)
    ]
    observation = np.linspace(-0.1, 0.1, 40).reshape(10, 4).astype(np.float32)
    np.testing.assert_array_equal(spo.load(small).act(observation), spo.load(lone).act(observation))
    assert spo.evaluate(small, episodes=2) == spo.evaluate(lone, episodes=2)
    assert make_report(small)[1].read_text() == make_report(lone, tmp_path / "report.html")[1].read_text()


def test_a_run_that_reached_its_return_early_is_packed(tmp_path):
    """It is whole with fewer steps than were planned, and its curves end where it did."""
    settings = {"preset": "classic", "steps": 8192, "envs": 4, "horizon": 64, "compile": "off"}
    run = spo.train("CartPole-v1", **settings, learning_rate=1e-6, quiet=True, stop_at=8, out=str(tmp_path / "run"))
    cli.dispatch(["pack", str(run.directory), "--out", str(tmp_path / "small")])
    assert make_report(tmp_path / "small")[1].read_text() == make_report(run.directory)[1].read_text()
    last = (run.directory / "curves.csv").read_text().splitlines()[-1].split(",")
    assert float(last[3]) == run.summary["env_steps"] < 8192


def test_packs_made_at_once_wait_for_each_other(tmp_path):
    """Eight sweeps of a variant each, packed together by as many threads: the plan and the runs name all of them."""
    names = [f"variant-{number}" for number in range(8)]
    for name in names:
        plan = make_plan(
            tasks=("Hill-v0",), seeds=1, variants={name: {"label": name, "objective": "spo"}}, baseline=None
        )
        make_sweep(tmp_path / name, plan)
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: pack(tmp_path / name, tmp_path / "small", is_new=False), names))
    packed = Sweep.open(tmp_path / "small")
    assert sorted(packed.plan.variants) == names and Results(packed).is_complete()
    assert sorted(path.name for path in packed.path.iterdir()) == ["plan.json", "runs"]


def test_sweeps_begun_at_once_name_all_that_was_asked_for(tmp_path):
    plans = [make_plan(variants={str(number): {"objective": "spo"}}, baseline=None) for number in range(8)]
    with ThreadPoolExecutor(len(plans)) as pool:
        list(pool.map(lambda plan: Sweep.begin(tmp_path / "sweep", plan), plans))
    assert sorted(Sweep.open(tmp_path / "sweep").plan.variants) == [str(number) for number in range(8)]


def test_a_run_that_cannot_be_packed_leaves_nothing(lone, tmp_path):
    run, small = Path(shutil.copytree(lone, tmp_path / "run")), tmp_path / "small"
    refused(f"--into {small} takes runs of a sweep", run, "--into", small)
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").touch()
    refused(f"--out {tmp_path / 'used'} is not empty; name a new directory", run, "--out", tmp_path / "used")
    os.truncate(run / "policy" / "policy.safetensors", 100)
    refused(f"the policy in {run / 'policy'} is damaged", run, "--out", small)
    RunDirectory(run).write_status({"state": "running"})
    refused(f"{run} has no finished run", run, "--out", small)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "used"]


def test_a_disk_full_of_a_policy_leaves_nothing(lone, tmp_path):
    target, number, opened = tmp_path / "small", 0, io.open
    while not target.exists():
        number += 1
        DiskFullAt(number)()
        try:
            cli.dispatch(["pack", str(lone), "--out", str(target)])
        except SpoError as refusal:
            assert str(refusal) == f"--out {target} cannot be written to: No space left on device"
            assert not list(tmp_path.iterdir()), f"write {number}"
        finally:
            io.open = opened
    assert number == 1 + 6  # status, config, numbers, curves, and two files of the policy


# Packs of strangers


def changed(name: str, change: Callable[[dict], object]) -> Callable[[RunDirectory], None]:
    """Another content of one of the two files."""

    def damage(run: RunDirectory) -> None:
        path, is_packed = run.path / name, name.endswith(".gz")
        values = json.loads(gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes())
        content = json.dumps(change(values)).encode()
        path.write_bytes(gzip.compress(content) if is_packed else content)

    return damage


def without_bin(curves: dict) -> dict:
    curves["episodes"]["mean"].pop()
    return curves


def with_value(value: object) -> Callable[[dict], dict]:
    def change(curves: dict) -> dict:
        curves["metrics"]["ratio_deviation_max"]["max"][3] = value
        return curves

    return change


def with_count(value: object) -> Callable[[dict], dict]:
    def change(curves: dict) -> dict:
        count = curves["episodes"]["count"]
        count[:2] = [value, count[0] + count[1] - value]
        return curves

    return change


BOMB = gzip.compress(b"[" + b"0," * 2**23 + b"0]")
STRANGERS = {
    "another version": (changed(SUMMARY, lambda values: values | {"format": 2}), "has format 2; accepted is 1: "),
    "other curves": (changed(CURVES, lambda values: values | {"format": None}), "has format None; accepted is 1"),
    "an unfinished run": (lambda run: run.write_status({"state": "running"}), "only finished runs are packed"),
    "other numbers": (changed(SUMMARY, lambda values: values | {"episodes": 7}), "are not of the same run"),
    "other iterations": (changed(SUMMARY, lambda values: values | {"iterations": 7}), "has 7 whole rows; 10 were made"),
    "other metrics": (changed(CURVES, lambda values: values | {"metrics": {}}), "are not of the same run"),
    "no metrics": (changed(SUMMARY, lambda values: values | {"metrics": []}), "AttributeError"),
    "text": (changed(SUMMARY, lambda values: values | {"wall_time": "<b>"}), "does not hold the numbers of a run"),
    "truth": (changed(SUMMARY, lambda values: values | {"env_steps": True}), "does not hold the numbers of a run"),
    "too large": (changed(SUMMARY, lambda values: values | {"wall_time": 1e200}), "does not hold the numbers"),
    "not finite": (lambda run: (run.path / SUMMARY).write_text('{"format": NaN}'), "is not a finite number"),
    "one extreme": (changed(SUMMARY, lambda values: values | {"iteration_means": [1]}), "does not hold the numbers"),
    "no return": (changed(SUMMARY, lambda values: values | {"returns": []}), "has no return over the last 0.1"),
    "a list": (changed(SUMMARY, lambda values: [values]), "holds a list; accepted is a table"),
    "a list of curves": (changed(CURVES, lambda values: [values]), "cannot be read"),
    "too few bins": (changed(CURVES, without_bin), "a number or null in each of 500 bins"),
    "a text in a bin": (changed(CURVES, with_value("1")), "a number or null in each of 500 bins"),
    "a table in a bin": (changed(CURVES, with_value({})), "a number or null in each of 500 bins"),
    "a negative count": (changed(CURVES, with_count(-1)), "are not of the same run"),
    "curves gone": (lambda run: (run.path / CURVES).unlink(), "cannot be read: "),
    "curves cut": (lambda run: os.truncate(run.path / CURVES, 100), "cannot be read: "),
    "no gzip": (lambda run: (run.path / CURVES).write_bytes(b"{}"), "cannot be read: "),
    "garbled": (lambda run: (run.path / CURVES).write_bytes(b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 99), "is damaged: "),
    "a bomb": (lambda run: (run.path / CURVES).write_bytes(BOMB), "holds more than 8,388,608 bytes"),
    "nested deeply": (lambda run: (run.path / CURVES).write_bytes(gzip.compress(b"[" * 10**6)), "cannot be read: "),
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("packs")
    pack(make_sweep(path / "sweep").path, path / "small")
    return path / "small"


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_damaged_pack_is_a_visible_cell_and_hides_no_other(kind, small, tmp_path):
    damage, words = STRANGERS[kind]
    copy = Sweep.open(shutil.copytree(small, tmp_path / "copy"))
    damage(copy.run(FIRST))
    results = Results(copy)
    (found,) = results.entry(FIRST.task, FIRST.variant).unfinished
    assert found.startswith("seed 1 damaged: ") and words in found and str(tmp_path) not in found
    assert [run.state for run in results.runs.values()].count("finished") == 11
    refused(f"{copy.run(FIRST).path} is damaged, so nothing was packed: ", copy.path, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_bins_are_those_that_the_files_have(small):
    run = next(iter(Results(Sweep.open(small)).runs.values()))
    assert len(run.history.episodes["mean"]) == len(run.history.metrics["wall_time"]["max"]) == BINS
