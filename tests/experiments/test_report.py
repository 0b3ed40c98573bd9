"""The report of a sweep: its numbers, its words where something is missing, and that nothing on it runs or loads."""

import base64
import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from spo import cli
from spo.cli.training import parse_train
from spo.errors import SpoError
from spo.experiments import statistics
from spo.experiments.agreement import comparisons, pairs
from spo.experiments.answer import answer
from spo.experiments.command_lines import sweep_command
from spo.experiments.figures.style import make_distinct, styles_for
from spo.experiments.plan import Cell, read_suite, restrict
from spo.experiments.report.markup import element, join
from spo.experiments.report.page import POLICY, make_report, page
from spo.experiments.results import Results
from spo.experiments.scores import compare_variants
from spo.experiments.sweep import Sweep
from spo.runtime.formatting import short, with_sign
from sweeps import VARIANTS, VERSIONS, deviation, level, make_plan, make_sweep, scores_by_hand, write_run
from waiting import PATIENCE

VOID = {"meta", "img", "br"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "</title></style><svg onload=alert(1)>",
    "evil\u202etxt.exe\u2066",
    "half \ud800 a pair, nul \x00, $\\frac$, &lt;b&gt;, {x}, %s",
]


class Page(HTMLParser):
    """What a page consists of; an element that is left open or closed out of turn fails at once."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.rows: dict[str, list[list[tuple[str, str]]]] = {}
        self.section, self.data, self.cells = "", [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.section = dict(attrs)["id"] if tag == "section" else self.section
        if tag == "tr":
            self.cells = []
        elif tag in ("td", "th"):
            self.cells.append(("", []))
        elif tag == "data":
            self.cells[-1][1].append(float(dict(attrs)["value"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag == "tr":
            self.rows.setdefault(self.section, []).append(self.cells)

    def handle_data(self, data):
        if {"td", "th"} & set(self.open):
            self.cells[-1] = (self.cells[-1][0] + data, self.cells[-1][1])

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    def cell(self, section: str, row: str, column: int) -> tuple[str, list[float]]:
        """The text and the numbers of a cell in the first row with this heading."""
        return next(cells[column] for cells in self.rows[section] if cells[0][0] == row)


def report_of(sweep: Sweep) -> str:
    """The page of a sweep but for its curves, which take the longest to draw."""
    with patch("spo.experiments.report.outcomes.draw_panel", return_value="<svg/>"):
        return page(Results(sweep))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """A whole sweep that several tests look at."""
    return make_sweep(tmp_path_factory.mktemp("sweeps") / "whole")


@pytest.fixture(scope="module")
def whole(sweep):
    """Its page, curves and all."""
    return page(Results(sweep))


# Numbers


def test_the_table_has_the_numbers_of_the_results(sweep, whole):
    parsed, results, plan = Page(whole), Results(sweep), sweep.plan
    for task in plan.tasks:
        for column, variant in enumerate(plan.variants, 1):
            entry, (text, numbers) = results.entry(task, variant), parsed.cell("results", task, column)
            assert numbers == [entry.mean, entry.std, entry.deviation]
            runs = [Cell(task, variant, seed) for seed in (1, 2, 3)]
            assert entry.mean == pytest.approx(np.mean([level(plan, cell) for cell in runs]))
            assert entry.std == pytest.approx(np.std([level(plan, cell) for cell in runs], ddof=1))
            assert entry.deviation == pytest.approx(max(deviation(plan, cell) for cell in runs))
            assert text == f"{short(entry.mean)} ± {short(entry.std, entry.mean)}deviation {short(entry.deviation)}"


def test_the_best_return_of_each_task_is_bold(tmp_path):
    best = [Cell("Dale-v0", "ppo", seed) for seed in (1, 2, 3)]
    sweep = make_sweep(tmp_path / "sweep", without=tuple(best))
    for cell in best:
        write_run(sweep, cell, returns=lambda share: 900.0 * share)
    bold = re.findall(r'<strong><data value="([^"]+)">', report_of(sweep))
    results = Results(sweep)
    assert [float(value) for value in bold] == [results.entry("Hill-v0", "spo").mean, 900.0]


def test_numbers_are_rounded_for_reading():
    assert [short(value) for value in (176928.94, 99.999, 12.345, 0.1904, -3.5, 0.0, 4e-5)] == [
        "176,928.9",
        "100.00",
        "12.35",
        "0.190",
        "−3.500",
        "0.000",
        "4e−05",
    ]
    assert short(6.1061, like=1860.2) == "6.1" and with_sign(2.0) == "+2.000" and with_sign(-2.0) == "−2.000"


def test_results_as_csv_beside_the_page(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", without=(Cell("Hill-v0", "spo", 3),))
    paths = make_report(sweep.path)
    assert [path.name for path in paths] == ["report.html", "results.csv", "curves.csv"]
    rows = list(csv.DictReader(paths[1].read_text().splitlines()))
    assert len(rows) == 12 and rows == sorted(rows, key=lambda row: (row["task"], row["variant"], int(row["seed"])))
    for row in rows:
        cell = Cell(row["task"], row["variant"], int(row["seed"]))
        if cell == Cell("Hill-v0", "spo", 3):
            assert (row["state"], row["return"]) == ("waiting", "")
        else:
            assert float(row["return"]) == pytest.approx(level(sweep.plan, cell))
            assert float(row["ratio_deviation_max"]) == pytest.approx(deviation(sweep.plan, cell))


def test_pictures_say_what_they_show(sweep, whole):
    images = [attributes for tag, attributes in Page(whole).elements if tag == "img"]
    panels = [image for image in images if image["alt"]]
    assert len(panels) == 2 * len(sweep.plan.tasks)
    mean = Results(sweep).curve("Hill-v0", "spo")[1].mean(0)[-1]
    assert (
        f"Hill-v0: return over 10,000 environment steps. At the end: PPO 104.7; SPO {short(mean)}." in panels[0]["alt"]
    )
    for image in images:
        kind, _, content = image["src"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        drawing = xml.etree.ElementTree.fromstring(base64.b64decode(content))
        assert not [
            part for part in drawing.iter() if part.tag.endswith(("script", "foreignObject", "image", "metadata"))
        ]


def test_variants_look_different():
    for suite in ("table1", "fig4", "fig6", "layers-minibatches", "width"):
        styles = make_distinct(styles_for(read_suite(suite).variants))
        assert len({(style.colour, style.line, style.marker) for style in styles.values()}) == len(styles)
    own = styles_for({"a": {"objective": "mine:a"}, "b": {"objective": "mine:b"}})
    assert own["a"].colour != own["b"].colour


# Scores over all tasks


def test_scores_are_those_of_the_statistics(sweep, whole):
    results, parsed = Results(sweep), Page(whole)
    pooled, per_seed = ([row for row in parsed.rows["scores"] if row[0][0] == "SPO"][i] for i in (0, 1))
    for row, seeds in ((pooled, "pooled"), (per_seed, "per-seed")):
        found = statistics.aggregates(scores_by_hand(results, "spo", seeds))
        numbers = [numbers[0] for _, numbers in row[1:5]]
        assert numbers == [found[name].value for name in ("median", "iqm", "mean", "optimality_gap")]
        assert f"[{found['iqm'].low:.2f}, {found['iqm'].high:.2f}]" in row[2][0]
    assert pooled[1:5] != per_seed[1:5] and len(per_seed) == 5
    better = statistics.probability_of_improvement(results.scores("spo"), results.scores("ppo"))
    assert pooled[5][1] == [better] and better == 1


def test_a_task_that_a_variant_has_no_return_on_is_left_out_and_told(tmp_path):
    missing = tuple(Cell("Hill-v0", "spo", seed) for seed in (1, 2, 3))
    sweep = make_sweep(tmp_path / "sweep", without=missing)
    assert compare_variants(Results(sweep)).tasks == ("Dale-v0",)
    assert "Left out: Hill-v0: not all variants have a return on it." in report_of(sweep)


def test_a_task_on_which_the_normalising_variant_stands_still_is_left_out(tmp_path):
    plan = make_plan()
    flat = [Cell("Hill-v0", "ppo", seed) for seed in (1, 2, 3)]
    sweep = make_sweep(tmp_path / "sweep", plan, without=tuple(flat))
    for cell in flat:
        write_run(sweep, cell, returns=lambda share: 7.0)
    found = compare_variants(Results(sweep))
    assert found.tasks == ("Dale-v0",) and "returns range from 7.0 to 7.0" in found.left_out[0]


def test_few_seeds_are_cautioned_about(tmp_path, whole):
    assert "There are tasks with 3 seeds only: intervals from so few are too narrow." in whole
    ten = make_sweep(tmp_path / "ten", make_plan(seeds=10))
    assert "too narrow" not in report_of(ten)


def test_without_a_variant_to_normalise_by_there_are_no_scores(tmp_path):
    text = report_of(make_sweep(tmp_path / "sweep", make_plan(baseline=None, seeds=1)))
    assert 'id="scores"' not in text and "#scores" not in text and "one seed" in text


# Agreement with the paper

PAPER = {
    "Hill-v0": {"ppo": (1000.0, 5.0), "spo": (2000.0, 0.2)},  # as here
    "Dale-v0": {"ppo": (2000.0, 0.1), "spo": (1000.0, 0.2)},  # both the other way round
}


def test_signs_are_compared_and_nothing_else(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", make_plan(paper=PAPER, reductions=("5 of 9 steps",)))
    hill, dale = comparisons(Results(sweep))
    assert (hill.gain.agrees, hill.deviation.agrees) == (True, True)
    assert (dale.gain.agrees, dale.deviation.agrees) == (False, False)
    assert hill.gain.ours == pytest.approx(30) and hill.gain.paper == 1000 and hill.gain.doubt == ""
    assert hill.gain.interval.low < 30 < hill.gain.interval.high
    text = report_of(sweep)
    assert "<b>Return</b>: 1 of 2 differences with the paper’s sign at this length; 1 with the other." in text
    parsed = Page(text)
    assert [parsed.cell("paper", "Hill-v0", column)[0] for column in (3, 4, 6, 7)] == [
        "+1,000.0",
        "agrees",
        "−4.800",
        "agrees",
    ]
    assert parsed.cell("paper", "Dale-v0", 4)[0] == "differs"
    assert parsed.cell("results", "Hill-v0", 2)[0].endswith("paper 2,000.0 · 0.200")
    assert "at this length" not in report_of(make_sweep(tmp_path / "full", make_plan(paper=PAPER)))


def test_a_sign_that_our_own_seeds_leave_open_is_not_sure(tmp_path):
    cells = [Cell("Hill-v0", "spo", seed) for seed in (1, 2, 3)]
    sweep = make_sweep(tmp_path / "sweep", make_plan(paper=PAPER), without=tuple(cells))
    for cell in cells:
        write_run(sweep, cell, returns=lambda share, seed=cell.seed: (60.0 * seed) * share)
    hill = comparisons(Results(sweep))[0]
    assert hill.gain.doubt == "not sure" and hill.gain.interval.low < 0 < hill.gain.interval.high
    assert Page(report_of(sweep)).cell("paper", "Hill-v0", 4)[0] == "agrees, not sure"


def test_one_seed_or_none_settles_nothing(tmp_path):
    single = make_sweep(tmp_path / "single", make_plan(paper=PAPER, seeds=1), without=(Cell("Dale-v0", "ppo", 1),))
    hill, dale = comparisons(Results(single))
    assert hill.gain.doubt == "one seed" and hill.gain.interval is None
    assert dale.gain.agrees is None and dale.deviation.agrees is None
    assert Page(report_of(single)).cell("paper", "Dale-v0", 4)[0] == "runs are missing"


def test_pairs_differ_in_the_objective_alone():
    assert pairs(read_suite("table1")) == [("spo-3", "ppo-3"), ("spo-7", "ppo-7")]
    assert pairs(read_suite("fig6")) == [("spo-resnet", "ppo-resnet"), ("spo-cnn", "ppo-cnn")]
    assert pairs(read_suite("fig4")) == [("spo", "ppo-clip")]


# What is missing, reduced or mixed


def test_a_whole_sweep_says_so_and_a_reduced_one_in_what(tmp_path, whole):
    assert "Complete: all 12 runs are finished." in whole and "reduced" not in whole
    note = "reduced: 10,000 of 10,000,000 steps, 1 of 5 seeds"
    reduced = make_plan(seeds=1, paper=PAPER, reductions=("10,000 of 10,000,000 steps", "1 of 5 seeds"))
    text = report_of(make_sweep(tmp_path / "sweep", reduced))
    assert f'<p class="label">{note}</p>' in text
    assert text.count(f'<b class="label">{note}</b>') == 6  # each table of results and each group of figures


def test_runs_without_a_return_are_visible_with_their_reason(tmp_path):
    gone = [Cell("Hill-v0", "spo", seed) for seed in (1, 2, 3)] + [Cell("Dale-v0", "ppo", 2)]
    sweep = make_sweep(tmp_path / "sweep", without=tuple(gone))
    write_run(sweep, gone[0], "failed", "environment 3 raised OSError: no screen")
    write_run(sweep, gone[3], episodes=0)
    text = report_of(sweep)
    parsed = Page(text)
    assert "Not complete: 9 of 12 runs are finished; 1 failed, 2 waiting." in text
    cell = parsed.cell("results", "Hill-v0", 2)
    assert cell == ("seed 1 failed: environment 3 raised OSError: no screenseeds 2, 3 waiting", [])
    assert parsed.cell("results", "Dale-v0", 1)[0].endswith("2 of 3 seedsseed 2 finished: no episode ended")
    assert not [words for words in parsed.attributes("alt") if "nan" in words]
    failures = {row[0][0]: [text for text, _ in row[1:]] for row in parsed.rows["failures"]}
    assert failures["Hill-v0 · spo · seed 1"] == ["failed", "5,000", "environment 3 raised OSError: no screen"]
    assert failures["Dale-v0 · ppo · seed 2"] == ["finished", "10,000", "no episode ended"]
    assert failures["Hill-v0 · spo · seed 2"] == ["waiting", "–", "–"]


def test_a_return_from_too_few_episodes_is_marked(tmp_path, whole):
    sweep = make_sweep(tmp_path / "sweep", without=(Cell("Hill-v0", "ppo", 1),))
    write_run(sweep, Cell("Hill-v0", "ppo", 1), episodes=3)
    parsed, text = Page(report_of(sweep)), report_of(sweep)
    assert "†deviation" in parsed.cell("results", "Hill-v0", 1)[0] and "its last 8 were taken" in text
    assert "†" not in parsed.cell("results", "Hill-v0", 2)[0] and "†" not in whole


def test_a_mixture_of_versions_and_departures_are_prominent(tmp_path, whole):
    odd = (Cell("Hill-v0", "spo", 2), Cell("Dale-v0", "spo", 1))
    sweep = make_sweep(tmp_path / "sweep", without=odd)
    write_run(sweep, odd[0], versions=VERSIONS | {"torch": "2.8.0"})
    write_run(sweep, odd[1], departures=("iteration 4: environment 2 began anew",))
    text = report_of(sweep)
    top = text[: text.index("<nav")]
    assert "The runs are a mixture. Not the same in all of them: torch." in top and "1 run departed" in top
    parsed = Page(text)
    assert parsed.cell("versions", "torch", 1)[0].startswith("mixed2.7.0: 11 runs")
    assert "2.8.0: 1 run (Hill-v0 · spo · seed 2)" in parsed.cell("versions", "torch", 1)[0]
    assert parsed.cell("departures", "Dale-v0 · spo · seed 1", 1)[0] == "iteration 4: environment 2 began anew"
    assert "mixture" not in whole and 'id="departures"' not in whole


def test_settings_are_common_or_a_variants_own(tmp_path):
    variants = {"ppo": {"objective": "ppo-clip"}, "deep": {"label": "SPO", "objective": "spo", "hidden": [9, 9, 9]}}
    sweep = make_sweep(tmp_path / "sweep", make_plan(variants=variants, settings={"paper": True}, baseline=None))
    text = report_of(sweep)
    rows = {row[0][0]: [text for text, _ in row[1:]] for row in Page(text).rows["settings"]}
    assert rows == {"variant": ["hidden", "objective"], "ppo": ["64 64", "ppo-clip"], "SPO": ["9 9 9", "spo"]}
    assert "<dt>paper</dt><dd>yes</dd>" in text and "<dt>epsilon</dt><dd>0.2</dd>" in text
    assert "<dt>seed</dt>" not in text and "<dt>env</dt>" not in text


def test_a_sweep_in_which_nothing_has_begun(tmp_path):
    sweep = Sweep.begin(tmp_path / "sweep", make_plan(paper=PAPER))
    text = report_of(sweep)
    assert "Not complete: 0 of 12 runs are finished; 12 waiting." in text
    assert text.count("No finished run has a curve here.") == 4 and "No task has returns of all variants." in text
    assert "2 not known, because runs are missing" in text


# Damage


def damaged(name: str, change):
    def damage(run):
        path = run.path / name
        path.write_text(change(path.read_text()))

    return damage


def altered(**changes):
    def change(text):
        values = json.loads(text)
        for path, value in changes.items():
            table, _, key = path.rpartition("__")
            (values[table] if table else values)[key] = value
        return json.dumps(values)

    return change


def first_return(value: str):
    return damaged("episodes.jsonl", lambda text: text.replace('"return": ', f'"return": {value}, "x": ', 1))


DAMAGES = {
    "config cut": (damaged("config.json", lambda text: text[:40]), "config.json cannot be read"),
    "config of another kind": (damaged("config.json", lambda text: "[1]"), "holds a list; accepted is a table"),
    "config nested deeply": (damaged("config.json", lambda text: "[" * 100_000), "config.json cannot be read"),
    "config without settings": (damaged("config.json", altered(settings=3)), "config.json has no table 'settings'"),
    "config gone": (lambda run: run.config.unlink(), "config.json has no table 'settings'"),
    "another seed": (damaged("config.json", altered(settings__seed=9)), "config.json says seed 9; this run's is 2"),
    "another objective": (damaged("config.json", altered(settings__objective="spu")), "says objective spu; this run's"),
    "resumed to another length": (damaged("config.json", altered(settings__steps=5)), "says steps 5; this run's is 10"),
    "no length": (damaged("config.json", altered(resolved__total_steps="long")), "config.json says total_steps long"),
    "status cut": (damaged("status.json", lambda text: text[:9]), "status.json cannot be read"),
    "status of another kind": (damaged("status.json", lambda text: "[]"), "holds a list; accepted is a table"),
    "metrics cut": (damaged("metrics.jsonl", lambda text: text[:-3]), "metrics.jsonl has 9 whole rows; 10 were made"),
    "metrics gone": (lambda run: run.metrics.unlink(), "metrics.jsonl has 0 whole rows; 10 were made"),
    "metrics garbled": (damaged("metrics.jsonl", lambda text: text.replace("{", "<", 1)), "jsonl cannot be read"),
    "metrics without a key": (damaged("metrics.jsonl", lambda text: text.replace("_max", "", 1)), "KeyError"),
    "not a number": (first_return("NaN"), "return is nan in a row; only finite numbers are written"),
    "beyond numbers": (first_return("9e307"), "return is 9e+307 in a row"),
    "text for a number": (first_return('"<b>"'), "ValueError"),
    "bytes": (lambda run: run.episodes.write_bytes(b"\xff\xfe\n"), "episodes.jsonl cannot be read"),
    "a directory": (lambda run: (run.episodes.unlink(), run.episodes.mkdir()), "episodes.jsonl is not a plain file"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_run_is_a_visible_cell_and_hides_no_other(kind, sweep, tmp_path):
    damage, words = DAMAGES[kind]
    copy = Sweep.open(shutil.copytree(sweep.path, tmp_path / "copy"))
    damage(copy.run(Cell("Hill-v0", "ppo", 2)))
    results = Results(copy)
    entry = results.entry("Hill-v0", "ppo")
    assert len(entry.returns) == 2 and len(entry.unfinished) == 1
    assert entry.unfinished[0].startswith("seed 2 damaged: ") and words in entry.unfinished[0]
    assert str(tmp_path) not in entry.unfinished[0] and str(tmp_path) not in results.csv()
    assert [len(results.entry(task, "spo").returns) for task in copy.plan.tasks] == [3, 3]


def test_the_report_of_a_sweep_with_damage_of_every_kind(tmp_path):
    kinds = [kind for kind in DAMAGES if kind != "another seed"]
    sweep = make_sweep(tmp_path / "sweep", make_plan(seeds=len(kinds) + 1, tasks=("Hill-v0",)))
    for seed, kind in enumerate(kinds, 2):
        DAMAGES[kind][0](sweep.run(Cell("Hill-v0", "ppo", seed)))
    make_report(sweep.path)
    text = (sweep.path / "report.html").read_text()
    assert f"{len(kinds)} damaged" in text and Page(text).cell("results", "Hill-v0", 1)[1][0] == 101.0
    assert len((sweep.path / "results.csv").read_text().splitlines()) == 1 + 2 * (len(kinds) + 1)


# Hostile names


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The page of a sweep in which whatever can hold text holds text that would like to be more."""
    everything = " ".join(HOSTILE)
    plan = make_plan(
        title=everything,
        source=everything,
        seeds=2,
        tasks=tuple(HOSTILE[:2]),
        variants={name: {"label": name, "objective": name} for name in HOSTILE[:6]},
        settings={everything.replace("\x00", ""): everything},
        baseline=HOSTILE[0],
        reductions=(everything,),
        paper={HOSTILE[0]: {HOSTILE[0]: (1.0, 2.0)}},
    )
    path = tmp_path_factory.mktemp("sweeps") / "<b>hostile"
    failed = [Cell(HOSTILE[0], name, 1) for name in HOSTILE[:6]]
    sweep = make_sweep(path, plan, without=tuple(failed))
    for cell in failed:
        write_run(sweep, cell, "failed", everything, versions={everything: everything}, departures=(everything,))
    return page(Results(Sweep.open(path)))


def inert(text: str) -> Page:
    """The page, after it is seen that nothing on it runs or loads."""
    parsed = Page(text)
    assert {tag for tag, _ in parsed.elements} <= set(
        """html head meta title style body header h1 h2 p a b nav main section table thead tbody tr th td div strong
        data br img ul li figure figcaption small svg line circle details summary dl dt dd pre""".split()
    )
    names = {name for _, attributes in parsed.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("style", "srcset", "action", "xlink:href")]
    assert all(href.startswith("#") for href in parsed.attributes("href"))
    assert all(source.startswith("data:image/svg+xml;base64,") for source in parsed.attributes("src"))
    assert [a["content"] for t, a in parsed.elements if a.get("http-equiv")] == [POLICY]
    return parsed


def test_hostile_names_are_text_and_nothing_else(hostile):
    parsed = inert(hostile)
    headings = [cell[0] for cell in parsed.rows["results"][0]]
    assert headings[1:] == [*HOSTILE[:5], "evil\\u202etxt.exe\\u2066"]  # what turns text around is spelt out
    assert parsed.cell("failures", f"{HOSTILE[0]} · {HOSTILE[0]} · seed 1", 1)[0] == "failed"
    for character in "\u202e\u2066\ud800\x00":
        assert character not in hostile
    assert "half \\ud800 a pair, nul \\u0000, $\\frac$, &amp;lt;b&amp;gt;, {x}, %s" in hostile


def test_an_ordinary_page_is_inert_and_its_links_lead_somewhere(whole):
    parsed = inert(whole)
    ids = parsed.attributes("id")
    assert len(ids) == len(set(ids)) and {href[1:] for href in parsed.attributes("href")} == set(ids)
    assert all("alt" in attributes for tag, attributes in parsed.elements if tag == "img")


def test_elements_escape_their_children_and_attributes():
    assert element("b", "<i>", element("i", "&"), title='"<') == '<b title="&quot;&lt;">&lt;i&gt;<i>&amp;</i></b>'
    assert element("img", alt="", class_=None) == '<img alt="">' and join(["<", 3]) == "&lt;3"


# Bytes


def test_the_same_directory_gives_the_same_bytes(tmp_path):
    """Wherever it lies, however it is called, and in whatever order a process keeps its sets."""
    sweep = make_sweep(tmp_path / "far/away", make_plan(tasks=("Hill-v0",), paper=PAPER))
    copy = shutil.copytree(sweep.path, tmp_path / "away")
    make_report(sweep.path, tmp_path / "here" / "first.html")
    assert "--out away" in (tmp_path / "here/first.html").read_text()
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "spo", "report", copy.name, "-o", "second.html"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=PATIENCE)
    assert (tmp_path / "here/first.html").read_bytes() == (tmp_path / "second.html").read_bytes()
    assert (tmp_path / "here/results.csv").read_bytes() == (tmp_path / "results.csv").read_bytes()


def test_sections_that_would_say_nothing_are_left_out(tmp_path, whole):
    """And a single task, whose aggregates are all the same, has no scores but the width of the page."""
    assert not {"failures", "paper", "departures"} & set(Page(whole).attributes("id"))
    one = report_of(make_sweep(tmp_path / "sweep", make_plan(tasks=("Hill-v0",))))
    assert 'id="scores"' in whole and 'id="scores"' not in one
    assert one.count('class="wide"') == one.count('class="narrow"') == 2 and 'class="wide"' not in whole


def test_the_first_words_answer_who_is_ahead_and_who_left_the_bound(tmp_path, whole):
    returns = (
        "SPO has the highest return on 2 of 2 tasks (Hill-v0 134.7 against 104.7, Dale-v0 234.7 against 204.7),"
        " 2 of them by more than chance between the seeds."
    )
    deviations = (
        "The ratio deviation left ε = 0.2 with PPO (in 6 of 6 runs, up to 0.530) and SPO (in 6 of 6 runs, up to 0.280)."
    )
    assert f'<p class="answer">{returns}</p><p class="answer">{deviations}</p>' in whole
    assert "Ratio deviation says how far an update moved" in whole
    single = make_sweep(tmp_path / "single", make_plan(tasks=("Hill-v0",), seeds=1))
    assert "SPO is ahead on Hill-v0 with a return of 131.0 against 101.0 of PPO, from single seeds" in report_of(single)
    one = {"tasks": ("Hill-v0",), "variants": {"spo": {"label": "SPO", "objective": "spo"}}}
    alone = make_plan(**one, baseline=None, seeds=1)
    assert "The return reached is 101.0 on Hill-v0 (SPO)." in report_of(make_sweep(tmp_path / "alone", alone))
    empty = make_sweep(tmp_path / "empty", make_plan(seeds=1), without=tuple(make_plan(seeds=1).cells()))
    assert "No run has a return yet." in report_of(empty)


def test_many_tasks_are_counted_without_the_returns_of_each(tmp_path):
    tasks = tuple(f"Hill{number}-v0" for number in range(7))
    text = report_of(make_sweep(tmp_path / "sweep", make_plan(tasks=tasks, seeds=1)))
    assert '<p class="answer">SPO has the highest return on 7 of 7 tasks, from single seeds, so it may be' in text


def test_a_lead_that_the_seeds_leave_open_may_be_chance(tmp_path):
    cells = [Cell("Hill-v0", "spo", seed) for seed in (1, 2, 3)]
    sweep = make_sweep(tmp_path / "sweep", make_plan(tasks=("Hill-v0",)), without=tuple(cells))
    for cell in cells:
        write_run(
            sweep, cell, returns=lambda share, seed=cell.seed: 60.0 * seed * share, deviations=lambda share: 0.1 * share
        )
    text = report_of(sweep)
    assert "SPO is ahead on Hill-v0" in text and "so it may be chance)." in text
    assert "The ratio deviation stayed within ε = 0.2 with SPO (at most 0.100). It left ε = 0.2 with PPO" in text


def test_the_best_of_three_is_compared_with_each(tmp_path):
    cells = {Cell("Hill-v0", "spo", seed): 90.0 + 30 * seed for seed in (1, 2, 3)}
    plan = make_plan(tasks=("Hill-v0",), variants=VARIANTS | {"wide": {"label": "SPO wide", "objective": "spo"}})
    sweep = make_sweep(tmp_path / "sweep", plan, without=tuple(cells))
    for cell, end in cells.items():
        write_run(sweep, cell, returns=lambda share, end=end: end * share)
    words, _ = answer(Results(sweep))
    against_spo, against_ppo = words.split(" against ")[1].split(" and ")
    assert words.startswith("SPO wide is ahead on Hill-v0 with a return of")
    assert " of SPO (+" in against_spo and against_spo.endswith("so it may be chance)")
    assert " of PPO (+" in against_ppo and against_ppo.endswith("which is more than chance between these seeds).")


def sweep_that_ends(path, ends):
    """One task, and what each variant's runs return in the end, by seed."""
    variants = {name: {"label": name, "objective": "spo"} for name in ends}
    plan = make_plan(tasks=("Hill-v0",), variants=variants, baseline=None, seeds=3)
    sweep = make_sweep(path, plan, without=tuple(plan.cells()))
    for name, own in ends.items():
        for seed, end in enumerate(own, 1):
            write_run(sweep, Cell("Hill-v0", name, seed), returns=lambda share, end=end: end)
    return answer(Results(sweep))[0]


@pytest.mark.parametrize(
    "ends, words",
    [
        ({"a": [15, 15], "b": [15, 15]}, "a and b are level on Hill-v0 with a return of 15.00."),
        (
            {"a": [15], "b": [15], "c": [9]},
            "a and b are level on Hill-v0 with a return of 15.00 against 9.000 of c, from single seeds, so it may be",
        ),
        (
            {"a": [11, 10, 12], "b": [10.5], "c": [1, 2, 3]},
            "a is ahead on Hill-v0 with a return of 11.00 against 10.50 of b (+0.500, from single seeds, so it may be"
            " chance) and 2.000 of c (+9.000, 95\u00a0% interval +6.733 to +11.267, which is more than chance between",
        ),
        (
            {"a": [11, 10, 12], "b": [8, 8.2, 7.8], "c": []},
            "+0.638 to +5.362, which is more than chance between these seeds). Of 3 variants there are returns of 2 on"
            " Hill-v0.",
        ),
        (
            {"a": [11, 10, 12], "b": [8, 8.2, 7.8], "c": [7, 8, 9]},
            "8.000 of b (+3.000, 95\u00a0% interval +0.638 to +5.362, which among so many variants may be chance)",
        ),
    ],
    ids=["level", "level and behind", "unequal seeds", "runs missing", "many variants"],
)
def test_the_answer_claims_no_more_than_the_seeds_tell(ends, words, tmp_path):
    assert words in sweep_that_ends(tmp_path / "sweep", ends)


def test_one_run_has_a_report_of_its_own(tmp_path):
    sweep = make_sweep(tmp_path / "sweep", make_plan(tasks=("Hill-v0",)))
    run = sweep.run(Cell("Hill-v0", "spo", 3)).path
    paths = make_report(run)
    text, rows = paths[0].read_text(), list(csv.DictReader(paths[2].read_text().splitlines()))
    assert "Hill-v0: spo" in text and "Complete: the run is finished." in text and "spo compare" not in text
    assert len(rows) == 100 and {row["seed"] for row in rows} == {"3"}
    curve = Results(sweep).curve("Hill-v0", "spo")[1][2]
    assert [float(row["return"]) for row in rows] == pytest.approx(curve.tolist(), rel=1e-5)
    (run / "config.json").write_text('{"settings": {"env": 3}}')
    with pytest.raises(SpoError, match="config.json is not a run's: KeyError"):
        make_report(run)


def test_reading_and_reporting_needs_no_torch():
    code = "import sys, spo.experiments.report.page; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


# Commands


def test_the_commands_make_the_runs_again(sweep, whole, monkeypatch):
    commands = re.findall("<pre>([^<]+)", whole)[-1].splitlines()
    assert len(commands) == 12
    monkeypatch.chdir(sweep.path)
    config = parse_train(shlex.split(next(line for line in commands if "Dale-v0/spo/3" in line))[2:])
    assert (config.env, config.objective, config.seed) == ("Dale-v0", "spo", 3)
    assert (config.steps, config.horizon, config.out) == (sweep.plan.steps, 250, None)


def test_the_command_of_a_suite_says_what_is_less():
    suite = read_suite("table1")
    assert sweep_command(suite, "here") == "spo bench table1 --out here"
    less = restrict(suite, steps="1M", seeds=2, tasks=("Ant-v4",), variants=("spo-7", "ppo-7"))
    assert (
        sweep_command(less, "my runs")
        == "spo bench table1 --steps 1000000 --seeds 2 --tasks Ant-v4 --variants ppo-7 spo-7 --out 'my runs'"
    )


def test_the_command_of_a_comparison():
    settings = {"paper": True, "hidden": [8, 8], "gamma": 0.9, "tensorboard": False, "env_arg": {"limit": 3}}
    plan = make_plan(tasks=("Hill-v0",), settings=settings)
    assert sweep_command(plan, "x") == (
        "spo compare Hill-v0 --objectives ppo-clip spo --seeds 3 --steps 10000 --preset mujoco --paper --hidden 8 8"
        " --gamma 0.9 --no-tensorboard --env-arg limit=3 --out x"
    )
    assert sweep_command(replace(plan, variants={"a": {"objective": "spo", "epsilon": 0.1}}), "x") == ""


def test_the_command_prints_the_table_the_answer_and_its_files(sweep, tmp_path, capsys):
    cli.dispatch(["report", str(sweep.path), "--out", str(tmp_path / "page.html")])
    *table, words, page, results, curves = capsys.readouterr().out.splitlines()
    entry = Results(sweep).entry("Hill-v0", "spo")
    assert any("Hill-v0" in line and f"{entry.mean:.1f} ± {entry.std:.1f}" in line for line in table)
    assert words == " ".join(answer(Results(sweep)))
    assert [page, results, curves] == [str(tmp_path / name) for name in ("page.html", "results.csv", "curves.csv")]


# Input


def refusal(*arguments: str) -> str:
    with pytest.raises(SpoError) as refused:
        cli.dispatch(["report", *arguments])
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_directory_without_a_plan(tmp_path):
    assert "holds no sweep: there is no plan.json in it" in refusal(str(tmp_path))
    assert "holds no sweep" in refusal(str(tmp_path / "nowhere")) and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"steps": "many"}, "'many' stands where a whole number is needed"),
        ({"variants": ["spo"]}, "is not a plan"),
        ({"variants": {"spo": 3}}, "3 stands where a table is needed"),
        ({"tasks": [3]}, "3 stands where text is needed"),
        ({"tasks": 3}, "is not a plan"),
        ({"paper": {"Hill-v0": {"spo": [1]}}}, "is not a plan"),
        ({"paper": {"Hill-v0": {"spo": ["a", 2]}}}, "'a' stands where a number is needed"),
        ({"baseline": "trpo"}, "baseline 'trpo' is none of its variants"),
        ({"wings": 2}, "is not a plan"),
    ],
)
def test_a_plan_that_is_none(tmp_path, changes, words):
    Sweep.begin(tmp_path / "sweep", make_plan())
    file = tmp_path / "sweep/plan.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    assert words in refusal(str(tmp_path / "sweep"))


def test_a_page_that_cannot_be_written(sweep, tmp_path):
    assert "must be a file that ends in .html" in refusal(str(sweep.path), "-o", str(tmp_path / "plan.json"))
    (tmp_path / "file").write_text("")
    assert "cannot be written to" in refusal(str(sweep.path), "--out", str(tmp_path / "file/page.html"))
    (tmp_path / "page.html").mkdir()
    assert "cannot be written to" in refusal(str(sweep.path), "--out", str(tmp_path / "page.html"))


def test_a_missing_package_is_told_before_anything_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "pip install 'simple-policy-optimization[report]'" in refusal("nowhere")


# In a browser

CHROMIUM = shutil.which("chromium")
OFFLINE = """--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync
    --disable-component-update --enable-logging=stderr --v=0 --dump-dom""".split()
in_a_browser = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here")


def opened(path: Path, folder: Path) -> tuple[list[str], list[str], str]:
    """What a browser without a network writes to its console, what the page asks for, and the page it makes of it."""
    log = folder / "requests.json"
    options = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--log-net-log={log}", f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [CHROMIUM, *OFFLINE, *options, path.as_uri()], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    logged = json.loads(log.read_text())
    start = logged["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    events = [event["params"] for event in logged["events"] if event["type"] == start and "url" in event["params"]]
    # What the browser wants for itself has no origin.
    return console, [event["url"] for event in events if event["initiator"] != "not an origin"], done.stdout


@in_a_browser
def test_a_browser_sees_what_a_bad_page_does(tmp_path):
    """The test below can fail: a page that asks and runs is found out."""
    bad = tmp_path / "bad.html"
    bad.write_text("<img src='http://example.test/a.png'><script>console.log('ran')</script>")
    console, requests, _ = opened(bad, tmp_path)
    assert requests == ["http://example.test/a.png"] and "ran" in console[0]


@in_a_browser
@pytest.mark.parametrize("which", ["whole", "hostile"])
def test_a_browser_has_nothing_to_say_and_asks_for_nothing(which, request, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(request.getfixturevalue(which))
    console, requests, made = opened(path, tmp_path)
    assert console == [] and requests == []
    assert "</html>" in made and "<script" not in made
