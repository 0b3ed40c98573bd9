"""The study of widths: its verdict by rule, its figure, and what the report says of it."""

from dataclasses import replace

import numpy as np
import pytest

from spo.experiments.figures.style import pyplot
from spo.experiments.figures.width import draw_widths, widths
from spo.experiments.plan import Cell, read_suite
from spo.experiments.report.page import page
from spo.experiments.statistics import Interval, iqm, probability_of_improvement
from spo.experiments.verdict import MARGIN, Standing, Verdict, _verdict, conclusion, lead, rules_of, verdicts
from sweep_fixtures import write_sweep
from sweeps import scores_by_hand

PLAN = read_suite("width")
RULES = ["ppo-wide", "spo-wide", "spo-adaptive-0.07", "spo-adaptive-0.1", "spo-power"]
VARIANTS = tuple(f"{rule}-{depth}" for rule in ("ppo", "spo", "spo-adaptive-0.1") for depth in "37")


def made(rule: float, ppo: float = 0.5, spo: float = 0.4, seeds: int = 5, **changes: float) -> dict[str, dict]:
    """Scores of a rule, PPO and SPO at both depths: a level each, and seeds that spread by ±0.02 around it."""
    spread = np.linspace(-0.02, 0.02, seeds)
    levels = {f"{name}-{depth}": level for name, level in (("x", rule), ("ppo", ppo), ("spo", spo)) for depth in "37"}
    return {name: {task: level + spread for task in PLAN.tasks} for name, level in (levels | changes).items()}


def judged(scores: dict, plan=PLAN) -> Verdict:
    return _verdict(plan, "x", scores)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("width"), "width", variants=VARIANTS, steps="1M")


def test_every_variant_but_ppo_and_spo_is_a_rule():
    assert rules_of(PLAN) == RULES


@pytest.mark.parametrize(
    "scores, is_recommended",
    [
        (made(0.6), True),
        (made(0.51), True),  # a little better than PPO, and SPO
        (made(0.49), False),  # within the margin, but worse than PPO more often than not
        (made(0.4, ppo=0.5), False),
        (made(0.6, **{"ppo-7": 0.7}), False),  # at one depth only
        (made(0.6, **{"spo-3": 0.7}), False),
    ],
)
def test_a_rule_must_keep_up_with_both_at_both_depths(scores, is_recommended):
    verdict = judged(scores)
    assert verdict.is_recommended is is_recommended and not verdict.doubt
    assert verdict.words == ("recommended" if is_recommended else "not recommended")


def test_a_rule_that_is_sure_to_lose_little_passes_only_if_it_wins_as_often():
    """Both halves of the criterion, at their limits."""
    for low, chance, passes in ((-0.049, 0.5, True), (-MARGIN, 0.5, False), (-0.049, 0.49, False)):
        better = {"ppo": Interval(chance, 0, 1), "spo": Interval(0.9, 0, 1)}
        assert Standing(Interval(0.0, low, 0.1), better, 3, 5).passes is passes


def test_the_lead_is_over_the_better_of_the_two():
    standing = judged(made(0.6, ppo=0.5, spo=0.4)).standings["3"]
    assert standing.lead.value == pytest.approx(0.1) and 0.06 < standing.lead.low <= 0.1 <= standing.lead.high < 0.14
    assert judged(made(0.6, ppo=0.4, spo=0.5)).standings["7"].lead.value == pytest.approx(0.1)
    # Resampled together: with two equals the better of them is mostly above either.
    one, other = made(0.5, ppo=0.5, spo=0.5), made(0.5, ppo=0.5, spo=0.0)
    assert judged(one).standings["3"].lead.low <= judged(other).standings["3"].lead.low
    resamples = {"a": np.array([[0.0, 1.0], [1.0, 1.0]])}
    lower, higher = {"a": np.array([[0.2, 0.2], [0.2, 0.2]])}, {"a": np.array([[0.1, 0.1], [0.6, 0.6]])}
    assert lead(resamples, lower, higher) == pytest.approx([0.3, 0.4])


def test_without_all_runs_there_is_no_verdict():
    assert judged(made(0.6, seeds=3)).words == "undecided: 3 of 5 seeds"
    assert judged(made(0.6), replace(PLAN, steps=1000)).words == "undecided: 1,000 of 1,000,000 steps"
    scores = made(0.6)
    del scores["spo-7"]["Hopper-v4"]
    assert judged(scores).words == "undecided: runs are missing"
    assert judged({name: own for name, own in scores.items() if name != "x-3"}).words == "undecided: runs are missing"
    assert judged({}).is_recommended is None


def test_the_conclusion():
    good, better, bad, early = judged(made(0.6)), judged(made(0.7)), judged(made(0.3)), judged(made(0.6, seeds=2))
    assert conclusion({"a": better, "b": good, "c": bad}) == "recommended: a (also passed: b)"
    assert conclusion({"b": good, "c": early}) == "recommended: b"
    assert conclusion({"c": bad}) == "no rule is recommended"
    assert conclusion({"c": bad, "d": early, "e": early}) == "undecided: 2 of 5 seeds"


def test_the_verdict_is_of_the_results(study):
    (found,) = verdicts(study).items()
    rule, verdict = found
    assert rule == "spo-adaptive-0.1" and not verdict.doubt
    for depth, standing in verdict.standings.items():
        own, ppo, spo = (scores_by_hand(study, f"{name}-{depth}") for name in (rule, "ppo", "spo"))
        assert standing.lead.value == pytest.approx(iqm(own) - max(iqm(ppo), iqm(spo)))
        assert standing.better["spo"].value == pytest.approx(probability_of_improvement(own, spo))
        assert (standing.tasks, standing.seeds) == (3, 5)


def test_the_report_of_the_study(study, tmp_path):
    text = page(study)
    assert conclusion(verdicts(study)).capitalize() in text and 'id="verdict"' in text
    assert 'id="widths"' in text and "The width ε in force" in text
    assert 'class="paper"' not in text  # it gives no table of numbers to stand beside ours
    other = page(write_sweep(tmp_path, "table1", tasks=("Ant-v4",), seeds=1))
    assert 'id="verdict"' not in other and 'id="widths"' not in other


def test_the_width_of_adapting_runs(study):
    steps, runs = study.metric_curve("Hopper-v4", "spo-adaptive-0.1-3", "epsilon", 10)
    assert runs.shape == (5, 10) and np.all(np.diff(runs) > 0) and runs[0, -1] == pytest.approx(0.2 + 0.5 * 57.5 / 60)
    assert study.metric_curve("Hopper-v4", "spo-3", "epsilon", 10)[1].shape == (0, 10)
    adapting = study.runs[Cell("Hopper-v4", "spo-adaptive-0.1-3", 1)]
    assert adapting.epsilon is None and study.runs[Cell("Hopper-v4", "spo-3", 1)].epsilon == 0.2


def test_the_figure_shows_deviation_against_return(study):
    figure = draw_widths(widths(study))
    panels = {(row, axis.get_title()): axis for row in "37" for axis in figure.axes[3 * "37".index(row) :][:3]}
    assert len(figure.axes) == 6 and figure.axes[0].get_ylabel() == "3 layers: return"
    for (depth, task), axis in panels.items():
        drawn = {line.get_label(): line for line in axis.lines}
        for rule in ("ppo", "spo", "spo-adaptive-0.1"):
            runs = study.finished_runs(task, f"{rule}-{depth}")
            x = np.mean([np.median([row["ratio_deviation"] for row in run.directory.read_metrics()]) for run in runs])
            line = drawn[f"{rule}-{depth}"]
            assert line.get_xdata() == pytest.approx([x])
            assert line.get_ydata() == pytest.approx([study.entry(task, f"{rule}-{depth}").mean])
        assert sum(len(line.get_xdata()) for line in axis.lines) == 3 * (5 + 1)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["PPO", "SPO", "SPO adaptive, target 0.1"]
    words = " ".join(figure.texts[-1].get_text().split())
    assert conclusion(verdicts(study)) in words and "reduced: 6 of 14 variants" in words
    pyplot().close("all")
