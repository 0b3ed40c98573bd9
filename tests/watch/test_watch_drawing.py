"""What pages draw, as Bokeh's server hands it to browsers; test_watch_pages.py looks at it in one."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("bokeh")

from bokeh.document import Document
from bokeh.models import LinearScale, LogScale

from made_runs import append_rows, cloud, write_cloud, write_config, write_run, write_status, write_sweep
from spo.watch.catalogue import Catalogue
from spo.watch.page import Page
from spo.watch.pages.compare import ComparePage
from spo.watch.pages.run import PANELS, RunPage
from spo.watch.pages.runs import RunsPage
from spo.watch.pages.trust_region import TrustRegionPage
from spo.watch.words import show_number
from waiting import PATIENCE


def open_page(kind: type[Page], root: Path, catalogue: Catalogue | None = None) -> Page:
    catalogue = catalogue or Catalogue([root])
    catalogue.poll(PATIENCE)
    page = kind(Document(), catalogue, "nonce")
    assert page.failure == ""
    return page


def look_again(page: Page) -> None:
    page.catalogue._next_walk = page.catalogue._next_look = 0.0
    page.catalogue.poll(PATIENCE)
    page._tick()
    assert page.failure == ""


def shown(page: RunPage) -> set[str]:
    return {name for name, plot in page.figures.items() if plot.css_classes == []}


def test_figures_without_anything_to_show_are_not_shown(tmp_path):
    write_config(tmp_path / "run")
    page = open_page(RunPage, tmp_path)
    assert shown(page) == set() and "No iteration is over yet" in page.notes.text
    append_rows(tmp_path / "run", 1, 3)
    look_again(page)
    assert shown(page) == {panel.name for panel in PANELS} - {"width"} and not page.notes.visible
    lent = [plot.renderers[-1].data_source.data for plot in page.figures.values()]
    assert [len(data["x"]) for data in lent].count(1) == 1  # the figure of the width has one still


@pytest.mark.parametrize("every, is_told", [(0, False), (5, True)])
def test_the_legend_names_evaluations_where_the_run_makes_them(tmp_path, every, is_told):
    write_run(tmp_path / "run", made=3, eval_every=every)
    page = open_page(RunPage, tmp_path)
    (legend,) = [own["lines"] for own in page.describe()["figures"] if own["parts"] == ["return"]]
    assert ("evaluations" in [line["label"] for line in legend]) == is_told


def test_axes_go_by_powers_where_something_is_above_zero(tmp_path):
    write_run(tmp_path / "run", made=3)
    page = open_page(RunPage, tmp_path)
    page.scale.active = 1
    kinds = {name: type(plot.y_scale) for name, plot in page.figures.items()}
    assert page.failure == "" and kinds["kl"] is LogScale and kinds["entropy"] is kinds["width"] is LinearScale
    page.scale.active = 0
    assert {type(plot.y_scale) for plot in page.figures.values()} == {LinearScale}


def test_two_pages_of_one_run_take_nothing_from_each_other(tmp_path):
    write_run(tmp_path / "run", "running", made=3)
    catalogue = Catalogue([tmp_path])
    pages = [open_page(kind, tmp_path, catalogue) for kind in (RunPage, RunPage, ComparePage)]
    for last in (4, 5):
        append_rows(tmp_path / "run", last, last)
        for page in reversed(pages):
            look_again(page)
        for page in pages[:2]:
            assert list(page.rows.data["iteration"]) == list(range(1, last + 1))


def test_the_curves_of_a_run_that_is_deleted_stay(tmp_path):
    run = write_run(tmp_path / "run", "running", made=3)
    page = open_page(RunPage, tmp_path)
    for log in ("metrics.jsonl", "episodes.jsonl"):
        (run / log).unlink()
        look_again(page)
    shutil.rmtree(run)
    look_again(page)
    assert "may have been deleted" in page.notes.text or "There is no run yet" in page.notes.text
    assert len(page.rows.data["iteration"]) == 3 and len(page.band.data["x"]) > 0 and "kl" in shown(page)
    write_run(tmp_path / "run", "running", made=1)
    look_again(page)
    assert len(page.rows.data["iteration"]) == 1


def test_what_failed_stays_on_the_page(tmp_path):
    write_run(tmp_path / "run", made=3)
    page = open_page(RunPage, tmp_path)
    page.attempt(lambda: 1 / 0)
    page._tick()
    assert "could not be drawn as a whole. ZeroDivisionError" in page.notes.text and page.notes.visible


def test_the_trust_region_fills_its_sides_as_runs_come(tmp_path):
    page = open_page(TrustRegionPage, tmp_path)
    assert [side.run for side in page.sides] == [None, None]
    for variant, objective in (("spo", "spo"), ("ppo", "ppo-clip")):
        run = write_sweep(tmp_path / "sweep", made=2, seeds=1) if variant == "spo" else tmp_path / "sweep"
        write_cloud(run / "runs/Hill-v0" / variant / "1", 2, objective)
    look_again(page)
    assert [side.run.objective for side in page.sides] == ["spo", "ppo-clip"]
    assert [len(side.cloud_source.data["ratio"]) for side in page.sides] == [200, 200]
    page.choices[1].value = ""
    look_again(page)
    assert page.sides[1].run is None and page.sides[0].run is not None  # as it was chosen by hand
    write_run(tmp_path / "other", made=2)
    page.choices[1].value = "0/sweep/runs/Hill-v0/ppo/1"
    assert page.sides[1].run.objective == "ppo-clip"


def test_the_trust_region_says_what_it_shows_and_hides_what_has_nothing(tmp_path):
    run = write_run(tmp_path / "run", made=2)
    page = open_page(TrustRegionPage, tmp_path)
    fans = [side.fan_plot for side in page.sides]
    assert [plot.css_classes for plot in fans] == [["empty"], ["empty"]] and "No ratios are kept" in page.notes.text
    assert [side.cloud.css_classes for side in page.sides] == [[], []]  # another run is chosen above it
    assert "A ring has no gradient" in page.facts.text
    write_cloud(run, 2, "spo")
    look_again(page)
    assert [plot.css_classes for plot in fans] == [[], ["empty"]] and not page.notes.visible
    expected = np.abs(cloud(2, "spo")["ratio"][-1] - 1).mean()
    assert f"mean |r − 1| <b>{show_number(expected)}</b>" in page.sides[0].words.text


def test_ratios_around_1_are_marked_until_the_axis_has_no_room_for_them(tmp_path, monkeypatch):
    page = open_page(TrustRegionPage, tmp_path)
    plots = [side.cloud for side in page.sides]
    page._set_scale()
    assert all({0.8, 1, 1.2} <= set(plot.yaxis[0].ticker.ticks) for plot in plots)
    monkeypatch.setattr(page.sides[0], "fan", SimpleNamespace(reach=lambda: (0.01, 20.0, 3.0)))
    page._set_scale()
    assert all({0.01, 1, 10} <= set(plot.yaxis[0].ticker.ticks) for plot in plots)
    assert not any({0.8, 1.2} & set(plot.yaxis[0].ticker.ticks) for plot in plots)


def test_a_comparison_of_nothing_has_no_empty_cards(tmp_path):
    page = open_page(ComparePage, tmp_path)
    assert page.grid.css_classes == page.table.css_classes == ["empty"]
    write_run(tmp_path / "run", made=9)
    look_again(page)
    assert page.grid.css_classes == page.table.css_classes == []


def test_the_best_of_a_task_is_marked(tmp_path):
    for name, made, env in (("a", 20, "Hill-v0"), ("b", 9, "Hill-v0"), ("c", 5, "Dale-v0")):
        write_run(tmp_path / name, made=made, env=env, objective="spo" if name == "a" else "ppo-clip")
    write_config(tmp_path / "d", env="Moor-v0")
    text = open_page(ComparePage, tmp_path).table.text
    assert text.count('class="best"') == 2 and text.count("<tr>") == 5
    assert '<b class="best">' in text.partition("Hill-v0")[0]  # Dale's only one
    assert "–" in text.partition("Moor-v0")[2]


def test_the_table_says_how_far_a_sweep_is_and_when_a_deviation_was(tmp_path):
    sweep = write_sweep(tmp_path / "sweep", made=50, seeds=1)
    run = sweep / "runs/Hill-v0/spo/1"
    write_status(run, "running", 50)
    page = open_page(RunsPage, tmp_path)
    assert "50 % done" in page.summary.text and "1 running" in page.summary.text
    assert "now 0.0500" in page.table.text and "last 0.250" in page.table.text


@pytest.mark.parametrize("widths, bound", [((0.2, 0.2), [0.2, 0.2]), ((0.2, 0.3), [])])
def test_a_width_that_all_runs_share_is_drawn_beside_their_deviation(tmp_path, widths, bound):
    for number, width in enumerate(widths):
        run = write_run(tmp_path / str(number), made=9)
        config = (run / "config.json").read_text()
        (run / "config.json").write_text(config.replace('"epsilon": 0.2', f'"epsilon": {width}'))
    page = open_page(ComparePage, tmp_path)
    plots = page.plots["Hill-v0"]
    assert [list(source.data["y"]) for source in plots.bounds] == [[], bound]
    page.metrics[0].value = "ratio_deviation"
    assert list(plots.bounds[0].data["y"]) == bound
