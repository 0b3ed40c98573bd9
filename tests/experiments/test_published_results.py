"""The published results: their report and table come from their runs, and they are what they say they are."""

import json
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import spo
from published_tables import APART, PAGES, deep_returns, put_tables, read_published, tables_of
from spo import cli
from spo.experiments.figure_data.recorded_ratios import read_ratios
from spo.experiments.plan import read_suite
from spo.experiments.report.page import make_report
from spo.experiments.results import Results
from spo.experiments.statistics import difference_of_means
from spo.experiments.sweep import Sweep
from spo.experiments.verdict import DEPTHS
from spo.runs.directory import RunDirectory

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results" / "table1-1M"
TASKS = ("Hopper-v4", "HalfCheetah-v4", "Humanoid-v4")
VARIANTS = ("ppo-3", "spo-3", "ppo-7", "spo-7")


@pytest.fixture(scope="module")
def results() -> Results:
    return Results(Sweep.open(PUBLISHED))


def without_pictures(page: Path) -> str:
    """Another version of the drawing library draws the same in other strokes."""
    return re.sub(r"base64,[A-Za-z0-9+/=]*", "", page.read_text())


def test_the_published_report_comes_from_the_published_runs(tmp_path):
    page, table, _ = make_report(PUBLISHED, tmp_path / "report.html")
    assert table.read_bytes() == (PUBLISHED / "results.csv").read_bytes()
    assert without_pictures(page) == without_pictures(PUBLISHED / "report.html")


def test_every_run_is_there_finished_exact_and_as_the_paper_has_it(results):
    cells = {(cell.task, cell.variant, cell.seed) for cell in results.runs}
    assert cells == {(task, variant, seed) for task in TASKS for variant in VARIANTS for seed in (1, 2, 3)}
    for cell, run in results.runs.items():
        settings, status = run.directory.read_config()["settings"], run.directory.read_status()
        assert (status["state"], status["exact"]) == ("finished", True), cell
        assert settings["paper"] and settings["steps"] == 10**6 and settings["seed"] == cell.seed
        assert settings["objective"] == {"ppo": "ppo-clip", "spo": "spo"}[cell.variant.split("-")[0]]
        assert len(settings["hidden"]) + 1 == int(cell.variant.split("-")[1])


def test_they_are_labelled_as_reduced(results):
    assert "reduced" in (PUBLISHED / "report.html").read_text().lower()
    assert results.sweep.plan.steps == 10**6


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_numbers_of_the_runs(name):
    page = (ROOT / name).read_text()
    assert put_tables(page, tables_of(name)) == page


@pytest.fixture(scope="module")
def full() -> Results:
    return read_published("table1")


def test_full_length_is_that_of_the_paper_and_nothing_else_was_changed(full):
    finished = [run for run in full.runs.values() if run.state == "finished"]
    assert full.plan.steps == read_suite("table1").steps == 10**7 and finished
    assert all(run.config["settings"]["paper"] and run.status["exact"] for run in finished)


def test_deep_policies_learn_on_with_spo_and_stay_at_the_bound_as_the_first_page_says(full):
    tasks = [task for task in full.plan.tasks if f"| {task} |" in deep_returns(full)]
    ppo, spo = ([full.entry(task, name) for task in tasks] for name in ("ppo-7", "spo-7"))
    assert [task for task, one, other in zip(tasks, ppo, spo) if other.mean < one.mean] == [
        "HalfCheetah-v4",
        "Hopper-v4",
    ]
    assert min(entry.deviation for entry in ppo) > 100 and max(entry.deviation for entry in spo) < 0.22


@pytest.mark.parametrize(
    "task, highest, at, lowest",
    [("Walker2d-v4", 1470, 0.9, 600), ("HumanoidStandup-v4", 139_000, 1, 83_000), ("Humanoid-v4", 626, 2.3, 525)],
)
def test_ppo_rises_and_falls_as_the_pages_say(full, task, highest, at, lowest):
    """In hundredths of the run: where its return is highest, in millions of steps, and how low it falls from there."""
    curve = full.finished_runs(task, "ppo-7")[0].history.return_curve(100)
    top = int(curve.argmax())
    assert (top + 1) / 10 == at
    assert [curve[top], curve[top:].min()] == pytest.approx([highest, lowest], rel=0.005)


def positions_of(task: str, name: str) -> np.ndarray:
    """Where a published policy's robot is after each step of an episode."""
    policy = spo.load(ROOT / "results" / "policies" / f"{task}-{name}")
    env = gym.make(task)
    observation, _ = env.reset(seed=0)
    positions, is_over = [], False
    while not is_over:
        observation, _, terminated, truncated, _ = env.step(policy.act(observation))
        is_over = terminated or truncated
        positions.append(env.unwrapped.data.qpos.copy())
    env.close()
    return np.array(positions)


@pytest.mark.parametrize("name, walks", [("spo", True), ("ppo", False)])
def test_one_humanoid_walks_and_one_falls(name, walks):
    """As the page says: to the end of the episode and metres away, or down within its first third."""
    positions = positions_of("Humanoid-v4", name)
    assert (len(positions) == 1000 and positions[-1, 0] > 5) if walks else len(positions) < 333


@pytest.mark.parametrize("name, is_upright", [("spo", True), ("ppo", False)])
def test_one_humanoid_sits_to_the_end_and_one_sinks_back(name, is_upright):
    """As the page says: whether the torso stays above 0.4 m once it is up."""
    heights = positions_of("HumanoidStandup-v4", name)[200:, 2]
    assert heights.max() > 0.4 and (heights.min() > 0.4) == is_upright


@pytest.mark.parametrize(
    "name, low, high", [("spo", 0.9, 1.0), ("ppo-3", 0.9, 1.0), ("ppo", 0.0, 0.2), ("spo-3", 0.0, 0.2)]
)
def test_two_cheetahs_run_on_their_backs_and_two_upright(name, low, high):
    """As the page says of the four policies: the share of an episode's steps in which the torso is upside down."""
    angles = positions_of("HalfCheetah-v4", name)[:, 2]
    assert low <= np.mean(np.cos(angles) < 0) <= high


def test_few_short_runs_of_the_cheetah_get_far_as_the_page_counts_them():
    returns = {"ppo": [], "spo": [], "spo-wide": [], "spo-adaptive-0.07": [], "spo-adaptive-0.1": []}
    for results in (read_published("table1-1M"), read_published("width")):
        for name in returns:
            for variant in {f"{name}-3", f"{name}-7"} & set(results.plan.variants):
                returns[name] += list(results.entry("HalfCheetah-v4", variant).returns)
    far = {name: (sum(value > 2000 for value in own), len(own)) for name, own in returns.items()}
    assert far["ppo"] == (3, 12) and far["spo"] == (0, 12)
    others = [counts for name, counts in far.items() if name not in ("ppo", "spo")]
    assert tuple(map(sum, zip(*others))) == (2, 18)


def short_returns(task: str, depth: str) -> tuple[np.ndarray, np.ndarray]:
    """SPO's and PPO's at 1M steps, of both studies."""
    found = [read_published(name) for name in ("table1-1M", "width")]
    has_task = [results for results in found if task in results.plan.tasks]
    return tuple(
        np.concatenate([results.entry(task, f"{name}-{depth}").returns for results in has_task])
        for name in ("spo", "ppo")
    )


def test_at_a_tenth_of_the_length_ppo_is_ahead_everywhere_and_nowhere_surely(results):
    tasks = sorted({*results.plan.tasks, *read_published("width").plan.tasks})
    assert len(tasks) == 4
    gaps = [difference_of_means(*short_returns(task, depth)) for task in tasks for depth in DEPTHS]
    assert all(gap.low < 0 < gap.high for gap in gaps)
    assert (round(max(gap.value for gap in gaps)), round(min(gap.value for gap in gaps))) == (-60, -586)


def test_the_command_of_the_first_picture_draws_it(full, tmp_path, monkeypatch):
    """And it shows every task of which the table beside it has numbers."""
    monkeypatch.chdir(ROOT)
    command = next(
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("spo figures curves")
    )
    *words, out = command.partition("#")[0].split()[1:]
    assert f"]({out}/curves.png)" in (ROOT / "README.md").read_text() and (ROOT / out / "curves.png").is_file()
    cli.dispatch([*words, str(tmp_path)])
    drawing = (tmp_path / "curves.svg").read_text()
    shown = [task for task in full.plan.tasks if f"| {task} |" in deep_returns(full)]
    assert shown and all(task in drawing for task in shown) and "SPO, 7 layers" in drawing


@pytest.fixture(scope="module")
def widths() -> Results:
    return read_published("width")


def test_the_study_of_widths_has_three_exact_seeds_of_every_cell(widths):
    assert widths.plan.steps == 10**6 and len(widths.plan.variants) == 14
    for task in widths.plan.tasks:
        for variant in widths.plan.variants:
            runs = widths.finished_runs(task, variant)
            assert len(runs) >= 3 and all(run.status["exact"] for run in runs), (task, variant)
            assert {run.config["settings"]["value_clip"] for run in runs} == {0.2}


def test_the_published_ratios_draw_figure_2(tmp_path):
    runs = [str(PUBLISHED.parent / "fig2" / name) for name in ("ppo-clip", "spo")]
    cli.dispatch(["figures", "fig2", "--runs", *runs, "--out", str(tmp_path)])
    drawing = (tmp_path / "fig2.svg").read_text()
    assert "72% outside" in drawing and "26% outside" in drawing and "raw advantage" not in drawing
    for recorded in read_ratios(tuple(map(Path, runs)), None):  # normalised in minibatches of equal size
        np.testing.assert_allclose(recorded.advantage.mean(axis=1), 0, atol=1e-6)
        np.testing.assert_allclose(recorded.advantage.std(axis=1), 1, atol=2e-3)


def test_the_followed_samples_end_as_the_page_says(tmp_path):
    """SPO's on 1 ± ε, on the side of their advantage; PPO's outside of it, though they are the same samples."""
    runs = tuple(PUBLISHED.parent / "fig2-follow" / name for name in ("ppo-clip", "spo"))
    ppo, spo = read_ratios(runs, None)
    assert ppo.ratio.shape == spo.ratio.shape == (100, 64)
    np.testing.assert_allclose(ppo.advantage, spo.advantage, atol=1e-5)
    np.testing.assert_allclose(spo.ratio[-1], 1 + 0.2 * np.sign(spo.advantage[-1]), atol=0.0024)
    assert (np.abs(ppo.ratio[-1] - 1) > 0.2).all() and np.abs(ppo.ratio[-1] - 1).mean() == pytest.approx(
        0.52, abs=0.005
    )
    cli.dispatch(["figures", "fig2", "--follow", "--runs", *map(str, runs), "--out", str(tmp_path)])
    assert "largest |r − 1|: 1.47" in (tmp_path / "fig2-follow.svg").read_text()


@pytest.mark.parametrize(
    "target, plan", [("demo", "3 of 3 runs to do, 150,000 steps"), ("show", "2 of 2 runs to do, 1,500,000 steps")]
)
def test_the_command_of_a_target_is_accepted(target, plan, tmp_path, capsys):
    cli.dispatch([*commands_of(target)[0], "--dry-run", "--out", str(tmp_path / target)])
    assert f"{plan} each" in capsys.readouterr().out


@pytest.mark.parametrize("number, words_of_it", [(1, "5 seeds"), (2, "SPO, 7 layers")])
def test_the_demo_ends_with_what_was_published(number, words_of_it, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    *words, out = commands_of("demo")[number]
    cli.dispatch([*words, str(tmp_path / "report.html")])
    assert words[-1] == "--out" and out.startswith("runs/")  # which git ignores
    assert words_of_it in capsys.readouterr().out


def test_the_published_demo_is_what_the_command_runs(monkeypatch):
    plans = []
    monkeypatch.setattr("spo.experiments.run_sweep.bench", lambda plan, *_: plans.append(plan))
    words = [*commands_of("demo")[0], "--seeds", "5"]
    cli.dispatch(words)
    assert json.dumps(plans[0].as_json()) == json.dumps(read_published("demo").plan.as_json())
    assert f"spo {' '.join(words)} --out runs/demo" in (ROOT / "results" / "README.md").read_text()


def test_in_the_demo_every_run_of_spo_ends_above_every_one_of_ppo_clip():
    results = read_published("demo")
    names = ("ppo-clip", "spo", "spo-adaptive")
    clipped, *bounded = (results.entry("InvertedDoublePendulum-v4", name).returns for name in names)
    assert [len(own) for own in (clipped, *bounded)] == [5, 5, 5]
    assert max(clipped) < min(map(min, bounded))


@pytest.mark.parametrize("name", APART.values())
def test_what_makes_the_demo_differs_from_it_only_as_it_is_called(name):
    own, demo = read_published(name).plan, read_published("demo").plan
    allowed = {"hidden", "epochs", "horizon"}
    assert own.steps == demo.steps and set(own.settings) <= set(demo.settings)
    assert all(own.settings[key] == demo.settings[key] for key in set(demo.settings) - allowed)


def commands_of(target: str) -> list[list[str]]:
    """The words after `spo` of each call that a target of the Makefile makes."""
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    return [line.split()[1:] for line in recipe.splitlines() if "/bin/spo " in line]


def test_nothing_published_names_a_place_on_a_machine():
    configs = list(PUBLISHED.parent.rglob("config.json"))
    assert len(configs) >= 40  # more as runs finish
    for path in configs:
        assert RunDirectory(path.parent).read_config()["settings"]["out"] is None


def test_the_published_results_are_small():
    files = [path for path in PUBLISHED.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 30e6
    for config in PUBLISHED.rglob("config.json"):
        assert sum(path.stat().st_size for path in config.parent.iterdir()) <= 80_000
