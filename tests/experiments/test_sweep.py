"""Sweeps: plans, what is skipped, resumed and tried again, and that kills lose and double nothing."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from spo.cli.training import parse_train
from spo.errors import CorruptRunError, SpoError
from spo.experiments.answer import compare_returns, judge_deviations
from spo.experiments.command_lines import sweep_command
from spo.experiments.compare import critic_note, plan_comparison, read_variation
from spo.experiments.console import draw_sparks, result_table
from spo.experiments.executors import local
from spo.experiments.plan import Cell, Plan, narrow, path_component, read_suite, restrict, suite_names
from spo.experiments.results import Entry, Results
from spo.experiments.run_sweep import bench, check_settings, find_remaining, write_tables
from spo.experiments.sweep import Sweep
from spo.runs.record import RunRecord
from spo.runtime.formatting import BARS
from waiting import HELPERS, PATIENCE, children, wait_for

TINY = {"envs": 2, "horizon": 16, "epochs": 2, "minibatches": 2, "hidden": [8], "critic_hidden": [8], "compile": "off"}

VARIANTS = {"ppo": {"label": "PPO", "objective": "ppo-clip"}, "spo": {"label": "SPO", "objective": "spo"}}


def tiny(**changes) -> Plan:
    """Eight runs of a second each."""
    fixed = {"suite": "tiny", "title": "Tiny", "source": "a test", "preset": "classic", "settings": TINY}
    values = {"steps": 32 * 20, "seeds": 2, "tasks": ("CartPole-v1", "Acrobot-v1"), "variants": VARIANTS}
    return Plan(**fixed | values | {"baseline": "ppo"} | changes)


def two() -> Plan:
    return tiny(tasks=("CartPole-v1",), seeds=1)


@pytest.mark.parametrize("name", suite_names())
def test_every_suite_expands_to_runs_that_could_start(name):
    plan = read_suite(name)
    cells = plan.cells()
    assert len(cells) == len(set(cells)) == len(plan.tasks) * len(plan.variants) * plan.seeds
    assert plan.baseline in plan.variants and not plan.note
    for variant in plan.variants:
        config = plan.config(Cell(plan.tasks[0], variant, 1))
        assert (config.steps, config.threads, config.seed) == (plan.steps, 1, 1)
    assert all(set(row) == set(plan.variants) for row in plan.paper.values())


def test_table1_is_the_papers():
    plan = read_suite("table1")
    assert (plan.seeds, plan.steps, len(plan.cells())) == (5, 10_000_000, 120)
    deep = plan.config(Cell("Humanoid-v4", "spo-7", 3))
    assert deep.hidden == (256, 256, 128, 128, 64, 64) and deep.paper and deep.truncation == "terminal"
    assert plan.paper["Humanoid-v4"]["ppo-7"] == [614.1, 2411.845]
    assert len(read_suite("fig4").variants) == 8 and read_suite("fig4").final_fraction == 0.01
    assert len(read_suite("atari35").tasks) == 35 and len(read_suite("atari-resnet").tasks) == 54
    assert read_suite("fig6").config(Cell("Assault", "ppo-resnet-narrow", 1)).objective_settings == {"epsilon": 0.1}


def test_a_worker_hears_no_ctrl_c_but_is_as_nice_as_its_sweep(tmp_path, monkeypatch):
    """Ctrl-C goes to a process group; Linux shares the cores between sessions, whatever the niceness inside them."""
    code = "import os; print(os.getpgid(0) == os.getpid(), os.getsid(0))"
    monkeypatch.setattr(local, "worker_command", lambda path, cell: [sys.executable, "-c", code])
    sweep, cell = Sweep(tmp_path, tiny()), tiny().cells()[0]
    executor = local.run_here(sweep, 1)
    executor.start(cell)
    executor.processes[cell].wait()
    assert (sweep.run(cell).path / "output.txt").read_text().split() == ["True", str(os.getsid(0))]


def test_variants_of_our_own_run_only_if_named(tmp_path):
    suite, adaptive = read_suite("table1"), ("spo-adaptive-3", "spo-adaptive-7")
    assert not set(adaptive) & set(restrict(suite).variants) and not restrict(suite, seeds=5).note
    alone = restrict(suite, variants=adaptive)
    assert tuple(alone.variants) == adaptive and alone.note == "reduced: 0 of 4 variants"
    beside = restrict(suite, variants=(*adaptive, *suite.variants))
    assert tuple(beside.variants) == (*suite.variants, *adaptive) and not beside.note
    assert all("(ours)" in beside.label(name) and name not in suite.paper["Ant-v4"] for name in adaptive)
    config = beside.config(Cell("Ant-v4", "spo-adaptive-7", 1))
    assert (config.objective, config.hidden, config.value_clip_range) == (
        "spo-adaptive",
        (256, 256, 128, 128, 64, 64),
        0.2,
    )
    Sweep.begin(tmp_path, suite)
    Sweep.begin(tmp_path, alone)
    added = Sweep.open(tmp_path).plan
    assert (added.variants, added.baseline, added.note) == (beside.variants, "ppo-3", "")


def test_the_study_of_widths_differs_in_the_objective_alone():
    plan = read_suite("width")
    assert (plan.steps, plan.seeds, len(plan.cells())) == (1_000_000, 5, 3 * 14 * 5) and not plan.paper
    assert plan.tasks == ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4") and "no part of the paper" in plan.source
    configs = {name: plan.config(Cell("Hopper-v4", name, 1)) for name in plan.variants}
    assert all(config.paper and config.value_clip_range == 0.2 for config in configs.values())
    told = {name: (config.objective, *config.objective_settings.values()) for name, config in configs.items()}
    rules = {
        "ppo": ("ppo-clip", 0.2),
        "ppo-wide": ("ppo-clip", 0.5),
        "spo": ("spo", 0.2),
        "spo-wide": ("spo", 0.5),
        "spo-adaptive-0.07": ("spo-adaptive", 0.2, 0.07, 0.02, 0.99, 0.2),
        "spo-adaptive-0.1": ("spo-adaptive", 0.2, 0.1, 0.02, 0.99, 0.2),
        "spo-power": ("spo-power", 0.2, 8.0),
    }
    layers = {"3": (64, 64), "7": (256, 256, 128, 128, 64, 64)}
    assert told == {f"{rule}-{depth}": own for depth in layers for rule, own in rules.items()}
    assert all(config.hidden == layers[name[-1]] for name, config in configs.items())


def test_a_narrowed_plan_says_in_what():
    plan = restrict(read_suite("table1"), scale=0.1, seeds=3, tasks=("Hopper-v4",), variants=("spo-7", "ppo-7"))
    assert plan.note == "reduced: 1,000,000 of 10,000,000 steps, 3 of 5 seeds, 1 of 6 tasks, 2 of 4 variants"
    assert list(plan.variants) == ["ppo-7", "spo-7"] and plan.baseline is None
    assert restrict(read_suite("table1"), steps="10M").note == ""


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["bench", "table2"], "suite 'table2' is unknown (did you mean table1?); accepted: atari-resnet, atari35"),
        (["bench", "table1", "--tasks", "Hoper-v4"], "--tasks Hoper-v4 is not in this suite; accepted: Ant-v4"),
        (["bench", "table1", "--variants", "spo"], "--variants spo is not in this suite; accepted: ppo-3, spo-3"),
        (["bench", "table1", "--scale", "2"], "--scale 2.0 is not accepted: it must be a number above 0 and at most 1"),
        (
            ["bench", "smoke", "--scale", "0.000001"],
            "--scale 1e-06 is not accepted: it leaves 0 of 40,960 steps, less than one iteration of 1,024",
        ),
        (["bench", "smoke", "--scale", "0.02"], "--scale 0.02 is not accepted: it leaves 819 of 40,960 steps"),
        (["bench", "table1", "--steps", "1M", "--scale", "0.1"], "exclude each other"),
        (["bench", "smoke", "--steps", "10"], "--steps 10 is less than one iteration"),
        (["bench", "smoke", "--executor", "ray", "--ray-address", "127.0.0.1:1"], "127.0.0.1:1 cannot be reached"),
    ],
)
def test_bad_input_is_told_in_a_sentence(arguments, words, tmp_path, monkeypatch):
    from spo.cli import dispatch

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpoError) as refusal:
        dispatch(arguments)
    assert words in str(refusal.value)


def test_a_dry_run_prints_the_plan_and_runs_nothing(tmp_path, capsys):
    bench(tiny(), tmp_path / "sweep", jobs=2, dry_run=True)
    printed = capsys.readouterr().out
    assert "8 of 8 runs to do, 640 steps each, 2 at once: about" in printed and printed.count("seed 2") == 4
    assert not (tmp_path / "sweep").exists()


def read_files(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A sweep without any accident; all in this process, which has imported torch already."""
    from spo.experiments.worker import run_cell  # with torch, which the drivers below need not

    path = tmp_path_factory.mktemp("sweeps") / "clean"
    for cell in Sweep.begin(path, tiny()).plan.cells():
        run_cell(path, cell)
    bench(tiny(), path)
    return path


@pytest.fixture
def copy(done, tmp_path):
    return Path(shutil.copytree(done, tmp_path / "sweep"))


@pytest.mark.parametrize("from_last_episodes", [True, False])
def test_the_table_explains_its_star_where_there_is_one(done, monkeypatch, from_last_episodes):
    entry = Entry(np.ones(2), np.ones(2), None, (), from_last_episodes)
    monkeypatch.setattr(Results, "entry", lambda *_: entry)
    table = result_table(Results(Sweep.open(done)))
    stars = [cell for cell in table.columns[3].cells if cell.endswith("*")]
    assert (len(stars), "last 8 were taken" in (table.caption or "")) == (
        (4, True) if from_last_episodes else (0, False)
    )


def test_a_sweep_ends_with_its_answer_and_a_picture(copy, capsys):
    bench(tiny(), copy, jobs=2)
    table, answer, kept = capsys.readouterr().out.rsplit("\n", 3)[:3]
    results = Results(Sweep.open(copy))
    assert answer == compare_returns(results) + " " + judge_deviations(results)
    assert "curves.png" in kept and (copy / "curves.png").stat().st_size > 5000
    assert any(letter in BARS for letter in table)


def test_spark_lines_of_one_task_share_a_scale(done, monkeypatch):
    curves = {"spo": np.linspace(0, 1, 10), "ppo": np.linspace(0, 0.5, 10)}
    monkeypatch.setattr(Results, "curve", lambda self, task, variant, points: (None, curves[variant][None]))
    sparks = draw_sparks(Results(Sweep.open(done)), "CartPole-v1")
    assert sparks["CartPole-v1", "spo"].endswith("█") and sparks["CartPole-v1", "ppo"].endswith("▅")


def test_what_is_done_is_not_done_again(copy, capsys):
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("metrics.jsonl")}
    assert len(before) == 8
    bench(tiny(), copy, jobs=2)
    assert "0 of 8 runs to do" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("metrics.jsonl")} == before


def test_a_failed_run_is_a_visible_cell_and_is_retried_only_when_asked(copy, capsys):
    sweep = Sweep.open(copy)
    cell = Cell("CartPole-v1", "spo", 1)
    run = sweep.run(cell)
    run.write_status(run.read_status() | {"state": "failed", "reason": "its environment broke", "iteration": 5})
    with pytest.raises(SpoError, match="1 of 8 runs failed; --retry-failed tries them again"):
        bench(tiny(), copy, jobs=2)
    out, err = capsys.readouterr()
    assert "[1 runs missing]" in out and "failed: CartPole-v1 · spo · seed 1: its environment broke" in err
    assert find_remaining(sweep, retry_failed=True) == [cell]
    bench(tiny(), copy, jobs=2, retry_failed=True)
    assert Results(Sweep.open(copy)).is_complete()


def test_a_dry_run_leaves_out_what_failed_as_the_call_would(copy, capsys):
    sweep, before = Sweep.open(copy), read_files(copy)
    run = sweep.run(Cell("CartPole-v1", "spo", 1))
    run.write_status(run.read_status() | {"state": "failed", "reason": "its environment broke"})
    bench(tiny(), copy, jobs=2, dry_run=True)
    told = capsys.readouterr().out
    assert "0 of 8 runs to do" in told and "1 run left out that failed; --retry-failed tries them again" in told
    bench(tiny(), copy, jobs=2, dry_run=True, retry_failed=True)
    told = capsys.readouterr().out
    assert "CartPole-v1 · spo · seed 1\n1 of 8 runs to do" in told and "left out" not in told
    assert read_files(copy) == before | {run.status: run.status.read_bytes()}


def test_a_dry_run_is_refused_as_the_call_would_be(copy, tmp_path, monkeypatch):
    """The same sentence, and nothing is written by either."""
    file, strange = tmp_path / "file", tmp_path / "strange"
    strange.mkdir()
    file.touch()
    (strange / "mine").touch()
    record = Sweep.open(copy).run(Cell("CartPole-v1", "spo", 1)).config
    record.write_text(record.read_text().replace('"learning_rate": 0.001', '"learning_rate": 0.5'))
    before = read_files(tmp_path)
    cases = {
        "steps 640, not 1280": (tiny(steps=1280), copy),
        "was made with learning_rate 0.5": (tiny(), copy),
        "is not empty and holds no plan.json": (tiny(), strange),
        f"--out {file} cannot be written to: Not a directory": (tiny(), file),
        f"--out {file / 'new' / 'one'} cannot be written to: Not a directory": (tiny(), file / "new" / "one"),
    }
    for words, (plan, out) in cases.items():
        sentences = set()
        for dry_run in (True, False):
            with pytest.raises(SpoError, match=re.escape(words)) as refusal:
                bench(plan, out, jobs=1, dry_run=dry_run)
            sentences.add(str(refusal.value))
        assert len(sentences) == 1 and read_files(tmp_path) == before
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SpoError, match="cannot be written to: Permission denied"):
        bench(tiny(), tmp_path / "new", jobs=1, dry_run=True)


@pytest.mark.parametrize("name", ["results.csv", "curves.csv"])
def test_a_table_that_cannot_be_written_is_told(copy, name):
    (copy / name).unlink()
    (copy / name).mkdir()
    with pytest.raises(SpoError, match=f"{name} cannot be written to: Is a directory"):
        bench(tiny(), copy, jobs=2)


def test_a_table_appears_all_at_once(copy, monkeypatch):
    """What a full disk interrupts leaves the table that was there."""

    def fill_disk(path: Path, content: bytes, durable: bool = True) -> None:
        path.write_bytes(content[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = (copy / "results.csv").read_bytes()
    sweep = Sweep.open(copy)
    monkeypatch.setattr("spo.runtime.files.write_file", fill_disk)
    with pytest.raises(SpoError, match="results.csv cannot be written to: No space left on device"):
        write_tables(Results(sweep), copy)
    assert (copy / "results.csv").read_bytes() == before


def test_a_run_that_cannot_start_is_a_failed_cell(tmp_path):
    from spo.experiments.worker import run_cell

    plan = tiny(tasks=("NoSuchTask-v0",), seeds=1, variants={"spo": {"objective": "spo"}}, baseline=None)
    Sweep.begin(tmp_path / "sweep", plan)
    with pytest.raises(SpoError, match="is not a registered"):
        run_cell(tmp_path / "sweep", *plan.cells())
    with pytest.raises(SpoError, match="1 of 1 runs failed"):
        bench(plan, tmp_path / "sweep")
    (failure,) = Results(Sweep.open(tmp_path / "sweep")).failures()
    assert failure.cell.task == "NoSuchTask-v0" and "is not a registered Gymnasium id" in failure.reason


def test_a_directory_follows_one_plan(copy):
    with pytest.raises(SpoError, match="holds runs with steps 640, not 1280; name another directory"):
        bench(tiny(steps=1280), copy)
    with pytest.raises(SpoError, match="holds another variant spo; name another directory"):
        bench(tiny(variants={"spo": {"objective": "spo", "epsilon": 0.1}}, baseline=None), copy)
    named = Sweep.begin(copy, tiny(tasks=("Pendulum-v1",), seeds=1)).plan
    assert (named.tasks, named.seeds) == (("Pendulum-v1",), 1)
    united = Sweep.open(copy).plan
    assert united.tasks == ("CartPole-v1", "Acrobot-v1", "Pendulum-v1") and united.seeds == 2
    (copy / "plan.json").unlink()
    with pytest.raises(SpoError, match="is not empty and holds no plan.json"):
        bench(tiny(), copy)


def test_a_queue_of_calls_keeps_its_order(done, tmp_path, monkeypatch, capsys):
    """Each call carries out, estimates and tells what it names, and the directory remembers what all of them named."""
    queue = [
        tiny(tasks=("Acrobot-v1",), variants={"spo": VARIANTS["spo"]}, seeds=1, baseline=None),
        tiny(tasks=("CartPole-v1",), seeds=1),
        tiny(tasks=("Acrobot-v1",)),
    ]
    path, calls = tmp_path / "sweep", []

    def train(cells, executor, on_look):
        calls.append(cells)
        for cell in cells:
            shutil.copytree(Sweep.open(done).run(cell).path, executor.folder(cell))

    monkeypatch.setattr("spo.experiments.run_sweep.execute", train)
    Sweep.begin(path, tiny())  # a call that named everything and was stopped
    for plan, amount in zip(queue, ("1 of 1", "2 of 2", "3 of 4")):
        bench(plan, path, jobs=1)
        out, err = capsys.readouterr()
        assert f"{amount} runs to do, 1 at once" in err
        assert {task for task in tiny().tasks if task in out} == set(plan.tasks)
    assert [len(cells) for cells in calls] == [1, 2, 3] and len(set().union(*calls)) == 6
    assert calls[0] == queue[0].cells() and set(calls[1]) == set(queue[1].cells())
    assert Sweep.open(path).plan.cells() == tiny().cells()
    states = [line.split(",")[3] for line in (path / "results.csv").read_text().splitlines()[1:]]
    assert (states.count("finished"), states.count("waiting")) == (6, 2)


def test_a_directory_remembers_in_the_suites_order(tmp_path):
    for variants, tasks in ((("spo-7", "ppo-7"), ("Humanoid-v4",)), (("spo-3", "ppo-3"), ("Ant-v4",))):
        Sweep.begin(tmp_path, restrict(read_suite("table1"), variants=variants, tasks=tasks, seeds=1))
    plan = Sweep.open(tmp_path).plan
    assert (plan.tasks, tuple(plan.variants)) == (("Ant-v4", "Humanoid-v4"), ("ppo-3", "spo-3", "ppo-7", "spo-7"))
    assert plan.note == "reduced: 1 of 5 seeds, 2 of 6 tasks"


def edit_record(sweep: Sweep, part: str, **values) -> Cell:
    """Changes what the first run of SPO recorded of itself."""
    cell = Cell("CartPole-v1", "spo", 1)
    record = json.loads(sweep.run(cell).config.read_text())
    record[part] |= values
    sweep.run(cell).config.write_text(json.dumps(record))
    return cell


def test_a_run_with_other_settings_is_named(copy):
    sweep = Sweep.open(copy)
    edit_record(sweep, "settings", learning_rate=0.5)
    with pytest.raises(SpoError, match="was made with learning_rate 0.5, the plan says 0.001"):
        check_settings(sweep)


@pytest.mark.parametrize("content", ["{}", '{"settings": []}'])
def test_a_run_without_settings_is_named(copy, content):
    sweep = Sweep.open(copy)
    run = sweep.run(Cell("CartPole-v1", "spo", 1))
    run.config.write_text(content)
    with pytest.raises(CorruptRunError, match=f"{run.config} has no table 'settings'; delete {run.path} to run it"):
        check_settings(sweep)


def test_a_sweep_goes_on_whatever_its_runs_kept_for_watching(copy):
    sweep = Sweep.open(copy)
    cell = edit_record(sweep, "settings", watch_ratios=1)
    check_settings(sweep)
    assert sweep.plan.config(cell).watch_ratios != 1


def test_mixed_versions_are_seen(copy):
    sweep = Sweep.open(copy)
    cell = edit_record(sweep, "versions", torch="1.0")
    assert Results(sweep).versions()["torch"]["1.0"] == [cell]


def driver_of(path: Path, plan: str = "tiny()", executor: str = "local") -> subprocess.Popen:
    """`bench` in a process of its own."""
    program = f"from test_sweep import *; bench({plan}, Path({str(path)!r}), jobs=2, executor={executor!r})"
    paths = [str(Path(__file__).parent), str(HELPERS), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, **pipes)


def part_of(done: Path, path: Path, plan: Plan) -> Path:
    """What a sweep without any accident leaves that names no more than this plan."""
    sweep = Sweep.begin(path, plan)
    for cell in plan.cells():
        shutil.copytree(Sweep.open(done).run(cell).path, sweep.run(cell).path)
    bench(plan, path)
    return path


def test_kills_of_workers_and_driver_lose_and_double_nothing(done, tmp_path, amount, capsys):
    """Two runs, in test-long eight, random kills of both kinds: the aggregate is a clean sweep's, byte for byte."""
    seed, plan = 3, amount("two()", "tiny()")
    clean = part_of(done, tmp_path / "clean", amount(two(), tiny()))
    draw = random.Random(seed)
    victims = ["worker"] * amount(1, 3) + ["driver"] * amount(1, 2)
    path = tmp_path / "sweep"
    driver, kills = driver_of(path, plan), []
    for victim in draw.sample(victims, len(victims)):
        rows = _bytes_of_rows(path)
        wait_for(lambda rows=rows, driver=driver: _bytes_of_rows(path) > rows or driver.poll() is not None)
        time.sleep(draw.uniform(0, 0.5))
        workers = children(driver.pid)
        if driver.poll() is None:
            os.kill(draw.choice(workers) if victim == "worker" and workers else driver.pid, signal.SIGKILL)
            kills.append(victim)
        if victim == "driver" or driver.poll() is not None:
            driver.communicate()
            driver = driver_of(path, plan)
    driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0
    with capsys.disabled():
        print(f"\nkilled {kills}, seed {seed}")
    assert (path / "results.csv").read_bytes() == (clean / "results.csv").read_bytes()
    episodes = (sorted(sweep.rglob("episodes.jsonl")) for sweep in (clean, path))
    for expected, killed in zip(*episodes, strict=True):
        assert expected.read_bytes() == killed.read_bytes()


def _bytes_of_rows(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("metrics.jsonl"))


def test_ctrl_c_saves_what_runs(tmp_path):
    path = tmp_path / "sweep"
    driver = driver_of(path, "tiny(steps=32 * 100_000, seeds=1)")
    wait_for(lambda: sum(file.stat().st_size > 0 for file in path.rglob("metrics.jsonl")) == 2)
    driver.send_signal(signal.SIGINT)
    errors = driver.communicate(timeout=PATIENCE)[1]
    assert "stopped; what ran has saved, and the same command goes on" in errors
    states = [json.loads(status.read_text()) for status in path.rglob("status.json")]
    assert len(states) == 2 and all(state["state"] == "interrupted" and state["checkpoint"] for state in states)


def test_compare_is_a_plan_like_any_other():
    words = ["--preset", "classic", "--steps", "4096"]
    plan = plan_comparison(["CartPole-v1"], ["spo", "ppo-clip"], [], 3, words, parse_train)
    assert [str(cell) for cell in plan.cells()][:2] == ["CartPole-v1 · spo · seed 1", "CartPole-v1 · ppo-clip · seed 1"]
    config = plan.config(Cell("CartPole-v1", "spo", 2))
    assert (config.objective, config.seed, config.hidden) == ("spo", 2, (64, 64))
    assert plan.baseline == "ppo-clip" and plan.settings == {"paper": False}


def test_the_title_of_a_comparison_names_all_that_was_compared(tmp_path):
    """Whichever call was the last; and a part of it names what is in the part."""
    words = ["--preset", "classic", "--steps", "4096"]
    envs, calls = ["CartPole-v1", "Acrobot-v1"], (["spo"], ["ppo-clip", "simple"])
    for objectives in calls:
        plan = plan_comparison(envs, objectives, [], 1, words, parse_train)
        assert plan.title == f"CartPole-v1, Acrobot-v1: {', '.join(objectives)}"
        Sweep.begin(tmp_path / "sweep", plan)
    merged = Sweep.open(tmp_path / "sweep").plan
    assert merged.title == "CartPole-v1, Acrobot-v1: spo, ppo-clip, simple"
    assert narrow(merged, ("Acrobot-v1",), ("spo", "simple")).title == "Acrobot-v1: spo, simple"
    for title in ("Mine", "Mine, renamed"):  # a suite says its title itself
        Sweep.begin(tmp_path / "suite", tiny(title=title))
    assert Sweep.open(tmp_path / "suite").plan.title == "Mine, renamed"


def test_a_comparison_varies_any_setting_on_several_environments():
    """Values arrive as a configuration has them; the critic's clip does not follow a varied ε unless --paper asks."""
    envs, words = ["CartPole-v1", "Acrobot-v1"], ["--preset", "classic", "--steps", "4096"]
    variations = [read_variation("epsilon=0.1,0.3"), read_variation("hidden=32,64 32")]
    plan = plan_comparison(envs, ["spo"], variations, 2, words, parse_train)
    assert list(plan.variants) == [f"epsilon {e}, hidden {h}" for e in ("0.1", "0.3") for h in ("32", "64 32")]
    config = plan.config(Cell("Acrobot-v1", "epsilon 0.3, hidden 64 32", 1))
    assert (config.epsilon, config.hidden, config.value_clip, config.env) == (0.3, (64, 32), 0.2, "Acrobot-v1")
    assert "stays at 0.2" in critic_note(plan, variations)
    followed = plan_comparison(envs, ["spo"], variations, 2, [*words, "--paper"], parse_train)
    assert "value_clip" not in followed.settings and "varies too" in critic_note(followed, variations)
    both = plan_comparison(envs[:1], ["spo", "ppo-clip"], [read_variation("paper=true,false")], 1, words, parse_train)
    assert both.variants["ppo-clip, paper false"]["paper"] is False and both.baseline is None


OWN_SUITE = """
steps = "2k"
tasks = ["CartPole-v1", "Acrobot-v1"]
preset = "classic"
[variants.narrow]
objective = "spo"
epsilon = 0.1
[variants.wide]
objective = "spo"
epsilon = 0.3
"""


def test_a_suite_of_ones_own_is_a_plan_that_remembers_its_whole(tmp_path):
    file = tmp_path / "widths.toml"
    file.write_text(OWN_SUITE)
    suite = read_suite(str(file))
    assert (suite.suite, suite.steps, suite.seeds, suite.note) == ("widths", 2000, 1, "")
    assert suite.config(Cell("Acrobot-v1", "wide", 1)).epsilon == 0.3
    parts = [restrict(suite, tasks=(task,)) for task in suite.tasks]
    assert parts[0].note == "reduced: 1 of 2 tasks"
    for part in parts:
        Sweep.begin(tmp_path / "sweep", part)
    assert Sweep.open(tmp_path / "sweep").plan.note == "" and sweep_command(suite, "here") == ""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "tasks = 3", "'steps' is missing"),
        ("a.toml", OWN_SUITE.replace('["CartPole-v1", "Acrobot-v1"]', '"CartPole-v1"'), "a list of tasks is needed"),
        ("a.toml", "colour = 3\n" + OWN_SUITE, "is not a plan of tasks, steps and variants: .*'colour'"),
        ("a.toml", OWN_SUITE.replace("[variants.wide]", "[wings]"), "unexpected keyword argument 'wings'"),
        ("a.toml", "steps = [", "cannot be read as TOML"),
        ("a.toml", OWN_SUITE.replace('"2k"', '"many"'), "many"),
        ("a.toml", 'baseline = "x"\n' + OWN_SUITE, "baseline 'x' is none of its variants"),
        ("a.toml", OWN_SUITE.replace("Acrobot-v1", "CartPole-v1"), "tasks CartPole-v1, CartPole-v1 are not each named"),
        ("a.toml", OWN_SUITE + "[settings]\nthreads = 2", r"threads stands in \[settings\]; each run has one thread"),
        ("a.toml", OWN_SUITE + "seed = 3", r"seed stands in \[variants.wide\]; --seeds says how many"),
        ("a.toml", OWN_SUITE + "steps = 3", r"steps stands in \[variants.wide\]; all runs have the same"),
        ("a.toml", OWN_SUITE + "[extra.far]\nquiet = true", r"quiet stands in \[variants.far\]; each run prints into"),
        ("table1.toml", OWN_SUITE, "has the name of a suite of the project"),
    ],
)
def test_a_suite_that_is_none_is_refused(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(SpoError, match=words):
        read_suite(str(tmp_path / name))
    with pytest.raises(SpoError, match="cannot be read as TOML"):
        read_suite(str(tmp_path / "missing.toml"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epsilon", "it must be KEY=a,b,c"),
        ("epsilon=0.1,0.1", "with each value once"),
        ("seed=1,2", "seed is set with --seeds"),
        ("threads=1,2", "each run has one thread, and --jobs says how many run at once"),
        ("wings=1,2", "it must be a setting of spo train"),
    ],
)
def test_what_cannot_vary_is_refused(text, words):
    with pytest.raises(SpoError, match=f"--vary {text} is not accepted: .*{words}"):
        read_variation(text)


@pytest.mark.parametrize("keeps_rows", [False, True])
def test_a_packed_sweep_says_the_same_and_is_done(copy, tmp_path, capsys, monkeypatch, keeps_rows):
    from spo.experiments.pack import pack

    for source, name in ((copy, "first"), (tmp_path / "first", "second")):  # what is packed can be packed again
        pack(source, tmp_path / name, keeps_rows=keeps_rows)
    packed = Results(Sweep.open(tmp_path / "first"))
    assert packed.csv() == Results(Sweep.open(copy)).csv() and packed.is_complete()
    files = [path for path in (tmp_path / "first").rglob("*") if path.is_file()]
    assert {path.name for path in files if path.suffix == ".gz"} == (
        {"metrics.jsonl.gz", "episodes.jsonl.gz"} if keeps_rows else {"curves.json.gz"}
    )
    assert len(files) == 1 + 4 * 8
    for path in files:
        assert path.read_bytes() == (tmp_path / "second" / path.relative_to(tmp_path / "first")).read_bytes()
    for path in (tmp_path / "first").rglob("config.json"):
        assert str(tmp_path) not in path.read_text() and RunRecord.parse(path.read_bytes()).settings["out"] is None
    monkeypatch.setattr("spo.experiments.run_sweep.execute", lambda cells, *_: None if not cells else 1 / 0)
    bench(tiny(), tmp_path / "first", jobs=2)
    assert "0 of 8 runs to do" in capsys.readouterr().err
    for path in packed.sweep.run(Cell("CartPole-v1", "spo", 1)).path.glob("[ec]*.json*.gz"):  # episodes, or curves
        path.write_bytes(b"")
    with pytest.raises(SpoError, match="was packed and is damaged: .* is empty; delete it to run it again"):
        bench(tiny(), tmp_path / "first", jobs=2)


def test_every_name_is_one_part_of_a_path_of_its_own(tmp_path):
    names = ["", ".", "..", "../x", "a/b", "a_b", "a:b", "a b", "a%3Ab", "é", "\udcff", "\n", "Hopper-v4"]
    parts = [path_component(name) for name in names]
    assert len(set(parts)) == len(names) and parts[-1] == "Hopper-v4"
    for part in parts:
        (tmp_path / part).mkdir()
        assert (tmp_path / part).resolve().parent == tmp_path.resolve()
