"""Figures of sweeps: what is drawn are the numbers of the results, and the words below say what is missing."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from spo import cli
from spo.errors import SpoError
from spo.experiments import random_scores, statistics
from spo.experiments.figures import FIGURES, appendix_a, fig4, learning_curves, score_bars
from spo.experiments.figures.style import (
    DASHED,
    DOTTED,
    FORMATS,
    plot_options,
    pyplot,
    save,
    short_number,
    styles_for,
    write_note,
)
from spo.experiments.figures.sweep_notes import seed_count
from spo.experiments.plan import Cell, read_suite, restrict, suite_names
from spo.experiments.report.scores import score_section
from spo.experiments.results import Results
from spo.experiments.scores import compare_variants
from spo.experiments.sweep import Sweep
from spo.runs.directory import RunDirectory
from sweep_fixtures import write_sweep
from sweeps import make_plan, make_sweep, scores_by_hand

SUITES = {"fig1": "fig1", "fig4": "fig4", "fig5": "table1", "fig6": "fig6", "appendix-a": "atari35"}
SUITES |= {"appendix-c": "layers-minibatches", "appendix-c-resnet": "atari-resnet", "width": "width"}
TWO = ("Ant-v4", "Hopper-v4")


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    pyplot().close("all")


@pytest.fixture(scope="module")
def table1(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("table1"), "table1", tasks=TWO, seeds=3)


@pytest.fixture(scope="module")
def fig6(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("fig6"), "fig6", tasks=("Asterix", "BeamRider"))


@pytest.fixture(scope="module")
def baselines(tmp_path_factory):
    variants = ("ppo-clip", "spo", "spu")
    return write_sweep(tmp_path_factory.mktemp("fig4"), "fig4", tasks=TWO, variants=variants, seeds=3)


@pytest.fixture(scope="module")
def games(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("atari35"), "atari35", tasks=("Alien", "Assault", "Boxing"), seeds=2)


def lines_of(axis) -> dict[str, np.ndarray]:
    """What is drawn, by its label."""
    return {line.get_label(): np.asarray(line.get_ydata()) for line in axis.lines}


def band_of(axis, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The lower and upper edge of a band, from the corners of its polygon."""
    corners = axis.collections[number].get_paths()[0].vertices
    heights = [corners[corners[:, 0] == x, 1] for x in np.unique(corners[:, 0])]
    return np.array([each.min() for each in heights]), np.array([each.max() for each in heights])


def words_under(figure) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def refused(*arguments: str) -> str:
    with pytest.raises(SpoError) as refusal:
        cli.dispatch(["figures", *arguments])
    return str(refusal.value)


# Every figure


def test_there_is_a_figure_of_every_suite():
    assert set(SUITES.values()) == set(suite_names()) - {"smoke"}
    assert {name for name, figure in FIGURES.items() if "sweep" in figure.options} == {*SUITES, "curves"}


@pytest.mark.parametrize("name", SUITES)
def test_the_same_sweep_gives_the_same_files(name, tmp_path, amount):
    """Each is drawn; one of every kind, and in test-long each, is drawn again."""
    plan = read_suite(SUITES[name])
    write_sweep(tmp_path / "sweep", plan.suite, tasks=plan.tasks[:1], variants=tuple(plan.variants)[:2], seeds=2)
    files = []
    for _ in range(amount(2 if name in ("fig4", "fig5", "width") else 1, 2)):
        cli.dispatch(["figures", name, "--sweep", str(tmp_path / "sweep"), "--out", str(tmp_path / "out")])
        files.append({path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()})
    assert files[0] == files[-1]
    stems = [name, "fig4-profiles"] if name == "fig4" else [name]
    assert set(files[0]) == {f"{stem}.{ending}" for stem in stems for ending in FORMATS}


@pytest.mark.parametrize("name", SUITES)
def test_a_figure_without_its_sweep_names_the_command_that_makes_it(name, tmp_path):
    suite = SUITES[name]
    command = f"suite {suite}, which spo bench {suite} --out runs/{suite} runs"
    assert refused(name) == f"figure {name} needs --sweep, the directory of a sweep of {command}"
    sentence = refused(name, "--sweep", str(tmp_path))
    assert sentence == f"--sweep {tmp_path} holds no plan.json; figure {name} shows {command}"
    Sweep.begin(tmp_path / "smoke", read_suite("smoke"))
    sentence = refused(name, "--sweep", str(tmp_path / "smoke"))
    assert sentence == f"--sweep {tmp_path / 'smoke'} is of suite smoke; figure {name} shows {command}"
    path = tmp_path / "none"
    Sweep.begin(path, restrict(read_suite(suite), seeds=1))
    assert refused(name, "--sweep", str(path)) == (
        f"--sweep {path} has no finished run; spo bench {suite} --seeds 1 --out {path} goes on with it"
    )


def test_a_sweep_is_read_only_by_figures_that_show_one(tmp_path):
    assert refused("fig3", "--sweep", "a") == "--sweep is not accepted: figure fig3 does not read it"
    assert refused("fig5", "--runs", "a") == "--runs is not accepted: figure fig5 does not read it"


def test_the_number_of_seeds():
    assert [seed_count(counts) for counts in ([1, 1], [3], [5, 3, 4])] == ["1 seed", "3 seeds", "3 to 5 seeds"]


def test_any_sweep_has_its_curves_drawn(tmp_path, capsys):
    """Also a study of one objective, whose variants differ in a setting alone."""
    variants = {f"epsilon {value}": {"objective": "spo", "epsilon": value} for value in (0.1, 0.2, 0.3)}
    make_sweep(tmp_path / "sweep", make_plan(variants=variants, baseline=None, seeds=2))
    cli.dispatch(["figures", "curves", "--sweep", str(tmp_path / "sweep"), "--out", str(tmp_path)])
    paths = capsys.readouterr().out.split()
    assert [Path(path).name for path in paths] == [f"curves.{ending}" for ending in FORMATS]
    text = (tmp_path / "curves.svg").read_text()
    assert all(name in text for name in (*variants, "Hill-v0", "Dale-v0"))
    styles = styles_for(variants).values()
    assert len({style.colour for style in styles}) == len({style.marker for style in styles}) == 3
    with pytest.raises(SpoError, match="figure curves needs --sweep, the directory of a sweep"):
        cli.dispatch(["figures", "curves"])


def test_curves_of_some_tasks_and_variants_say_what_they_leave_out(table1, tmp_path):
    sweep = str(table1.sweep.path)
    chosen = ("--tasks", "Hopper-v4", "--variants", "ppo-7", "spo-7")
    cli.dispatch(["figures", "fig5", "--sweep", sweep, "--out", str(tmp_path), *chosen])
    text = html.unescape((tmp_path / "fig5.svg").read_text())
    assert "Hopper-v4" in text and "SPO, 7 layers" in text
    assert "Ant-v4" not in text and "3 layers" not in text
    assert "reduced: 3 of 5 seeds, 1 of 6 tasks, 2 of 4 variants" in text
    sentence = "--variants spo-9 is not in this suite; accepted: ppo-3, spo-3, ppo-7, spo-7"
    assert refused("fig5", "--sweep", sweep, "--variants", "spo-9") == sentence
    assert refused("fig4", "--sweep", sweep, "--tasks", "Ant-v4").startswith("--tasks is not accepted: figure fig4")


def test_no_letter_of_a_note_is_cut_off(tmp_path):
    """Letters are not as wide at the resolution of a file as at that of a screen."""
    figure = pyplot().figure(figsize=(7, 1))
    write_note(figure, "m" * 120 + " i" * 200)
    (path,) = save(figure, "note", tmp_path, ("png",))
    pixels = pyplot().imread(path)[..., :3]
    assert pixels.min() < 0.5 and pixels[:, -10:].min() == 1


# Styles


@pytest.mark.parametrize("suite", [suite for suite in suite_names() if suite != "layers-minibatches"])
def test_lines_differ_without_colour(suite):
    styles = styles_for(read_suite(suite).variants)
    assert len({(style.line, style.marker, style.is_filled) for style in styles.values()}) == len(styles)


def test_colour_tells_the_objective_and_the_line_the_network():
    plan = read_suite("fig6")
    styles = styles_for(plan.variants)
    assert len({styles[name].colour for name in ("ppo-cnn", "ppo-resnet", "ppo-resnet-narrow")}) == 1
    assert styles["spo-cnn"].colour == styles["spo-resnet"].colour != styles["ppo-cnn"].colour
    assert styles["spo-cnn"].line == styles["ppo-cnn"].line == DASHED and not styles["spo-cnn"].is_filled
    assert styles["spo-resnet"].line == styles["ppo-resnet"].line == "-" and styles["spo-resnet"].is_filled
    assert styles["ppo-resnet-narrow"].line == DOTTED
    assert [styles[name].label for name in plan.variants] == [plan.label(name) for name in plan.variants]
    assert plot_options(styles["spo-cnn"])["markerfacecolor"] == "white"


def test_short_numbers():
    texts = {0: "0", 0.5: "0.5", 2500: "2500", 12_500: "12.5k", -20_000: "−20k", 10_000_000: "10M", 2_500_000: "2.5M"}
    assert {number: short_number(number) for number in texts} == texts


# Training curves


def test_training_curves_are_those_of_the_results(table1):
    figure = learning_curves.draw_training(learning_curves.training_curves(table1, has_deviations=True), columns=3)
    assert [axis.get_title() for axis in figure.axes] == ["Ant-v4", "", "Hopper-v4", ""]
    for task, returns, deviations in zip(TWO, figure.axes[::2], figure.axes[1::2]):
        assert returns.get_xlim() == (0, 10_000_000) and deviations.get_yscale() == "log"
        for number, variant in enumerate(table1.plan.variants):
            steps, runs = table1.curve(task, variant)
            line = returns.lines[number]
            assert line.get_label() == table1.plan.label(variant)
            np.testing.assert_array_equal(line.get_xdata(), steps)
            np.testing.assert_array_equal(line.get_ydata(), runs.mean(0))
            low, high = band_of(returns, number)
            np.testing.assert_allclose(low, runs.mean(0) - runs.std(0, ddof=1))
            np.testing.assert_allclose(high, runs.mean(0) + runs.std(0, ddof=1))
            _, runs = table1.deviation_curve(task, variant)
            np.testing.assert_array_equal(deviations.lines[number].get_ydata(), runs.mean(0))
            np.testing.assert_array_equal(band_of(deviations, number), (runs.min(0), runs.max(0)))
        assert deviations.lines[-1].get_ydata() == [0.2, 0.2]
        bottom, top = deviations.get_ylim()
        assert bottom < table1.deviation_curve(task, "spo-3")[1].min() and top > table1.entry(task, "ppo-7").deviation
        assert (bottom, top) == pytest.approx((0.01, 10_000))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [*(table1.plan.label(variant) for variant in table1.plan.variants), "ε = 0.2"]
    assert words_under(figure) == (
        "reduced: 3 of 5 seeds, 2 of 6 tasks · mean over 3 seeds (bands: standard deviation of returns, range of ratio "
        "deviations); ratio deviations are those of the largest minibatch · the authors' behaviour (--paper) · from "
        "all rows"
    )


def test_the_rows_of_runs_are_not_kept(table1):
    """A sweep of the paper's size has gigabytes of them."""
    learning_curves.training_curves(table1, has_deviations=True)
    assert {name for run in table1.runs.values() for name in vars(run)} & {"episodes", "metrics"} == set()


def test_what_a_cnn_reaches_is_a_horizontal_line(fig6):
    figure = learning_curves.draw_training(
        learning_curves.training_curves(fig6, True, ("spo-cnn", "ppo-cnn")), columns=4
    )
    for task, axis in zip(fig6.plan.tasks, figure.axes[::2]):
        assert list(lines_of(axis))[:3] == ["SPO, ResNet-18", "PPO, ResNet-18", "PPO, ResNet-18, ε 0.1"]
        for line, variant in zip(axis.lines[3:], ("spo-cnn", "ppo-cnn"), strict=True):
            assert set(line.get_ydata()) == {fig6.entry(task, variant).mean}
            assert to_hex(line.get_color()) == styles_for(fig6.plan.variants)[variant].colour.lower()
    assert [line.get_ydata() for line in figure.axes[1].lines[-2:]] == [[0.1, 0.1], [0.2, 0.2]]
    assert len(figure.axes[1].lines) == 3 + 2
    assert figure.legends[0].get_texts()[-1].get_text() == "ε = 0.1 and 0.2"
    assert "horizontal: returns over the last 10 % of the steps" in words_under(figure)


def test_figure_6_without_a_cnn(tmp_path):
    write_sweep(tmp_path / "sweep", "fig6", tasks=("Asterix",), variants=("spo-resnet", "ppo-cnn"), seeds=1)
    cli.dispatch(["figures", "fig6", "--sweep", str(tmp_path / "sweep"), "--out", str(tmp_path)])
    assert "horizontal" in svg_words(tmp_path / "fig6.svg")
    write_sweep(tmp_path / "other", "fig6", tasks=("Asterix",), variants=("spo-resnet",), seeds=1)
    cli.dispatch(["figures", "fig6", "--sweep", str(tmp_path / "other"), "--out", str(tmp_path)])
    assert "horizontal" not in svg_words(tmp_path / "fig6.svg")


def svg_words(path: Path) -> str:
    """The texts of a picture, which stand beside their outlines as comments."""
    return " ".join(re.findall(r"<!-- (.*?) -->", path.read_text(), re.DOTALL))


def test_what_is_missing_is_said_and_left_out(tmp_path):
    states = {Cell("Ant-v4", "ppo-3", 1): "failed", Cell("Ant-v4", "ppo-3", 2): "running"}
    states |= {Cell("Hopper-v4", variant, seed): "waiting" for variant in ("ppo-3", "spo-3") for seed in (1, 2)}
    silent = [Cell("Ant-v4", "spo-3", 1)]
    results = write_sweep(tmp_path, "table1", states, silent, tasks=TWO, variants=("ppo-3", "spo-3"), seeds=2)
    figure = learning_curves.draw_training(learning_curves.training_curves(results), columns=3)
    ant, hopper = figure.axes
    _, runs = results.curve("Ant-v4", "spo-3")
    assert list(lines_of(ant)) == ["SPO, 3 layers"] and np.isnan(runs[0]).all()
    np.testing.assert_array_equal(lines_of(ant)["SPO, 3 layers"], runs[1])
    assert not hopper.lines and hopper.texts[0].get_text() == "no returns yet"
    note = "6 of 8 runs unfinished (1 of them failed) · 1 of 8 runs ended no episode · one seed"
    assert note in words_under(figure)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["SPO, 3 layers"]


def test_finished_runs_without_an_episode(tmp_path):
    cells = [Cell("Breakout", variant, 1) for variant in read_suite("fig1").variants]
    results = write_sweep(tmp_path, "fig1", silent=cells, seeds=1)
    figure = learning_curves.draw_training(learning_curves.training_curves(results), columns=1)
    assert figure.axes[0].texts[0].get_text() == "no returns yet" and not figure.legends[0].get_texts()
    figure = learning_curves.draw_training(learning_curves.training_curves(results, has_deviations=True), columns=1)
    assert len(figure.legends[0].get_texts()) == len(figure.axes[1].lines) == 4 + 1
    assert "4 of 4 runs ended no episode" in words_under(figure)


def test_runs_of_the_default_behaviour_say_so(tmp_path):
    write_sweep(tmp_path, "fig1", seeds=1)
    plan = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"settings": {}}))
    results = Results(Sweep.open(tmp_path))
    assert (
        learning_curves.training_curves(results).note
        == "reduced: 1 of 3 seeds · one seed · default behaviour · from all rows"
    )


# Aggregates


def test_aggregates_are_those_of_the_statistics(baselines):
    data = score_bars.aggregates(baselines)
    figure = score_bars.draw_aggregates(data)
    assert [axis.get_title() for axis in figure.axes] == ["median ↑", "IQM ↑", "mean ↑", "optimality gap ↓"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["PPO-Clip", "SPO", "SPU"]
    own = {name: scores_by_hand(baselines, name, "per-seed") for name in baselines.plan.variants}
    for metric, axis in zip(statistics.AGGREGATES, figure.axes):
        for row, variant in enumerate(own):
            interval = statistics.aggregates(scores_by_hand(baselines, variant))[metric]
            bar, stroke = axis.patches[row], axis.lines[row]
            assert bar.get_x() == interval.low and bar.get_x() + bar.get_width() == pytest.approx(interval.high)
            assert bar.get_y() + bar.get_height() / 2 == pytest.approx(row)
            assert list(stroke.get_xdata()) == [interval.value] * 2
        others = [statistics.AGGREGATES[metric](scores) for scores in own.values()]
        np.testing.assert_allclose(axis.lines[-1].get_xdata(), others)
        assert not np.allclose(others, [line.get_xdata()[0] for line in axis.lines[:-1]])
    assert words_under(figure) == (
        "reduced: 3 of 10 seeds, 2 of 6 tasks, 3 of 8 variants · 2 tasks, 3 seeds (fewer than ten: the intervals are "
        "too narrow) · scores: 0 and 1 are the lowest and highest iteration mean of PPO-Clip, of all its seeds · "
        "returns over the last 1 % of the steps (of 18 runs their last 8 episodes, because fewer ended there) · the "
        "authors' behaviour (--paper) · from all rows"
    )


def test_profiles_are_those_of_the_statistics(baselines):
    data = fig4.profiles(baselines)
    figure = fig4.draw_profiles(data)
    profile, efficiency, improvement, _ = figure.axes
    scores = {name: scores_by_hand(baselines, name) for name in baselines.plan.variants}
    for number, (name, values) in enumerate(scores.items()):
        label = baselines.plan.label(name)
        expected = statistics.profile(values, data.thresholds)
        np.testing.assert_array_equal(lines_of(profile)[label], expected.value)
        np.testing.assert_array_equal(band_of(profile, number), (expected.low, expected.high))
        raw = {task: baselines.curve(task, name, fig4.POINTS)[1] for task in TWO}
        expected = statistics.curve(statistics.iqm, compare_variants(baselines).normalize(raw))
        np.testing.assert_array_equal(lines_of(efficiency)[label], expected.value)
        np.testing.assert_array_equal(band_of(efficiency, number), (expected.low, expected.high))
    assert data.thresholds[0] <= 0 and data.thresholds[-1] >= max(each.max() for each in scores["spo"].values())
    assert [label.get_text() for label in improvement.get_yticklabels()] == ["SPO", "SPU"]
    for bar, name in zip(improvement.patches, ("spo", "spu"), strict=True):
        better = statistics.interval(statistics.probability_of_improvement, scores[name], scores["ppo-clip"])
        assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx((better.low, better.high))
    assert improvement.get_title() == "P(better than PPO-Clip)"
    assert words_under(figure).startswith("bands and bars: 95 % intervals · reduced: 3 of 10 seeds")


def test_all_variants_are_compared_on_the_same_tasks(tmp_path):
    variants = ("ppo-clip", "spo", "spu")
    states = {Cell("Hopper-v4", "spo", seed): "running" for seed in (1, 2)}
    states |= {Cell(task, "spu", seed): "waiting" for task in TWO for seed in (1, 2)}
    results = write_sweep(tmp_path, "fig4", states, tasks=TWO, variants=variants, seeds=2)
    scores = compare_variants(results).scores()
    assert {name: list(tasks) for name, tasks in scores.items()} == {"ppo-clip": ["Ant-v4"], "spo": ["Ant-v4"]}
    data = score_bars.aggregates(results)
    told = "left out: SPU: no run has a return; Hopper-v4: not all variants have a return on it · 1 task, 2 seeds"
    assert told in data.note
    assert len(score_bars.draw_aggregates(data).axes[0].patches) == 2


def test_scores_need_the_variant_that_they_are_normalised_by(tmp_path):
    path = tmp_path / "one"
    write_sweep(path, "fig4", tasks=TWO, variants=("spo", "spu"), seeds=1)
    command = f"spo bench fig4 --seeds 1 --tasks Ant-v4 Hopper-v4 --variants ppo-clip --out {path} makes them"
    sentence = f"--sweep {path} has no finished run of PPO-Clip, by which scores are normalised; {command}"
    assert refused("fig4", "--sweep", str(path)) == sentence
    states = {Cell("Ant-v4", "ppo-3-4", 1): "failed"}
    write_sweep(tmp_path / "two", "layers-minibatches", states, tasks=("Ant-v4",), seeds=1)
    sentence = refused("appendix-c", "--sweep", str(tmp_path / "two"))
    assert "has no finished run of PPO, 3 layers, 4 minibatches, by which" in sentence


def test_tasks_that_no_two_variants_share(tmp_path):
    states = {Cell("Ant-v4", "ppo-clip", 1): "failed", Cell("Hopper-v4", "spo", 1): "failed"}
    write_sweep(tmp_path, "fig4", states, tasks=TWO, variants=("ppo-clip", "spo"), seeds=1)
    sentence = refused("fig4", "--sweep", str(tmp_path))
    assert "has no task on which all variants have scores (Ant-v4: no finished run of PPO-Clip ended" in sentence
    assert "; Hopper-v4: not all variants have a return on it); spo bench fig4" in sentence


def test_the_report_and_the_figure_leave_out_the_same(tmp_path):
    """With failed, silent and missing runs, and a task on which the variant that normalises stands still."""
    tasks, variants = ("Ant-v4", "HalfCheetah-v4", "Hopper-v4", "Walker2d-v4"), ("ppo-clip", "spo", "spu")
    states = {Cell("Ant-v4", "spo", 1): "failed", **{Cell(task, "spu", 1): "waiting" for task in tasks}}
    states |= {Cell("Hopper-v4", "spo", seed): "failed" for seed in (1, 2)}
    silent = [Cell(task, "spu", 2) for task in tasks]
    results = write_sweep(tmp_path, "fig4", states, silent, tasks=tasks, variants=variants, seeds=2)
    for seed in (1, 2):
        flatten(results.runs[Cell("Walker2d-v4", "ppo-clip", seed)].directory)
    results = Results(Sweep.open(tmp_path))
    comparison = compare_variants(results)
    assert comparison.tasks == ("Ant-v4", "HalfCheetah-v4") and list(comparison.returns) == ["ppo-clip", "spo"]
    assert sorted(comparison.seed_counts) == [1, 2, 2, 2]  # what failed is not there, and no 0
    assert [line.split(":")[0] for line in comparison.left_out] == ["Walker2d-v4", "SPU", "Hopper-v4"]
    figure, page = score_bars.aggregates(results), score_section(results)
    assert f"left out: {'; '.join(comparison.left_out)} · " in figure.note
    for sentence in comparison.left_out:
        assert f"Left out: {sentence}." in html.unescape(page)
    for variant, intervals in figure.intervals.items():
        by_hand = {task: scores_by_hand(results, variant)[task] for task in comparison.tasks}
        assert intervals["mean"].value == pytest.approx(float(statistics.mean(by_hand)))
        for metric in statistics.AGGREGATES:
            assert f">{intervals[metric].value:.2f}<".replace("-", "−") in page


def flatten(run: RunDirectory) -> None:
    """The run again with the same return in every episode."""
    rows = [row | {"return": 7.0} for row in run.read_episodes()]
    run.episodes.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_one_variant_alone_is_drawn(tmp_path):
    results = write_sweep(tmp_path, "fig4", tasks=("Ant-v4",), variants=("ppo-clip",), seeds=2)
    assert fig4.draw_profiles(fig4.profiles(results)).axes[2].patches[:] == []


# Appendix A


def test_gains_are_those_of_the_returns(games):
    random = {game: np.mean(random_scores.returns()[game]) for game in games.plan.tasks}
    spo, ppo = ({game: games.entry(game, name).mean for game in games.plan.tasks} for name in ("spo-cnn", "ppo-cnn"))
    expected = {game: 100 * (spo[game] - ppo[game]) / (max(spo[game], ppo[game]) - random[game]) for game in spo}
    figure = appendix_a.draw_gains(appendix_a.gains(games))
    (axis,) = figure.axes
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == sorted(expected, key=expected.get, reverse=True)
    assert [bar.get_width() for bar in axis.patches] == pytest.approx([expected[game] for game in labels])
    assert [text.get_text() for text in axis.texts] == [f"{expected[game]:+.0f} %".replace("-", "−") for game in labels]
    assert min(expected.values()) < 0 and axis.get_title() == "SPO ahead in 2 of 3 games"
    words = words_under(figure)
    assert words.startswith("reduced: 2 of 3 seeds, 3 of 35 tasks · means over 2 seeds · returns over the last 10 % of")
    ours = "the choice of games, the number of seeds and the formula are ours"
    assert f"random: the mean of 20 games with the same pre-processing · {ours}" in words


def test_a_game_that_neither_plays_better_than_chance(games):
    data = appendix_a.Gains({"Alien": 40.0, "Pong": -60.0, "Boxing": None}, "note")
    (axis,) = appendix_a.draw_gains(data).axes
    assert [bar.get_width() for bar in axis.patches] == [40.0, -60.0]
    assert [text.get_text() for text in axis.texts] == ["+40 %", "−60 %", "neither beats random play"]
    assert axis.get_title() == "SPO ahead in 1 of 3 games"
    assert appendix_a.relative_gain(-20.9, -21.0, -20.7) is None


@given(*[st.floats(-1e6, 1e6)] * 3)
def test_a_gain_turns_its_sign_with_the_objectives(spo, ppo, random):
    gain = appendix_a.relative_gain(spo, ppo, random)
    assert (gain is None) == (max(spo, ppo) <= random)
    if gain is not None:
        assert appendix_a.relative_gain(ppo, spo, random) == -gain
        assert min(spo, ppo) < random or abs(gain) <= 100 + 1e-9


def test_appendix_a_needs_both_objectives(tmp_path):
    path = tmp_path / "one"
    write_sweep(path, "atari35", tasks=("Alien",), variants=("spo-cnn",), seeds=1)
    command = f"spo bench atari35 --seeds 1 --tasks Alien --variants ppo-cnn --out {path} adds it"
    assert refused("appendix-a", "--sweep", str(path)) == f"--sweep {path} has no variant ppo-cnn; {command}"
    states = {Cell("Alien", "spo-cnn", 1): "failed", Cell("Boxing", "ppo-cnn", 1): "failed"}
    write_sweep(tmp_path / "two", "atari35", states, tasks=("Alien", "Boxing"), seeds=1)
    assert "has no game with finished runs of SPO and of PPO" in refused("appendix-a", "--sweep", str(tmp_path / "two"))
    results = write_sweep(
        tmp_path / "three", "atari35", {Cell("Alien", "spo-cnn", 1): "failed"}, tasks=("Alien", "Boxing"), seeds=1
    )
    data = appendix_a.gains(results)
    assert list(data.gains) == ["Boxing"] and "left out, because unfinished: Alien · means over 1 seed" in data.note


# Random play


def test_random_play_was_measured_in_every_game():
    returns = random_scores.returns()
    assert set(returns) == set(read_suite("atari35").tasks)
    assert {len(each) for each in returns.values()} == {random_scores.EPISODES}
    with pytest.raises(
        SpoError, match="not measured in Tetris; python -m spo.experiments.random_scores Tetris does it"
    ):
        random_scores.random_scores(["Alien", "Tetris"])


def test_random_play_is_as_it_was_measured():
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    assert random_scores.play("Breakout", 0) == random_scores.returns()["Breakout"][0]


def test_measured_games_are_written_down(tmp_path, monkeypatch, capsys):
    file = tmp_path / "random_play.json"
    file.write_text('{"Pong": [1.0], "Alien": [2.0]}')
    monkeypatch.setattr(random_scores, "_file", lambda: file)
    monkeypatch.setattr(random_scores, "play", lambda game, episode: float(episode))
    random_scores.main(["Alien"])
    assert random_scores.returns() == {"Alien": list(map(float, range(random_scores.EPISODES))), "Pong": [1.0]}
    assert capsys.readouterr().out == "Alien: 9.5\n"
