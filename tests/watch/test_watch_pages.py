"""The pages in a real browser: what they show of runs of every kind, live, and that nothing on them runs or leaves."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from browser import CHROMIUM, Browser
from made_runs import append_rows, write_cloud, write_run, write_status, write_sweep
from spo.experiments.pack import pack
from sweeps import make_plan, make_sweep

pytest.importorskip("bokeh")
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium here")
long = pytest.mark.long

HOSTILE = [
    "<script>window.hacked=1</script>",
    '"><img src=x onerror=window.hacked=1>',
    "</title></style><svg onload=window.hacked=1>",
    "$$\\frac{1}{2}$$ {{ 7 * 7 }} @name %s",
    "evil\u202etxt.exe",
]
FUTURE = time.time() + 1e6
READY = "window.Bokeh && Bokeh.documents.length == 1 && !!model('notes') && Bokeh.documents[0].roots().length > 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of every kind: running, finished, failed, packed, damaged, and one that would like to be more than text."""
    root = tmp_path_factory.mktemp("watched")
    for objective in ("spo", "ppo-clip"):
        run = write_run(root / f"runs/{objective}", "running", made=40, env="Hill-v0", objective=objective)
        for iteration in range(1, 41):
            write_cloud(run, iteration, objective)
        os.utime(run / "status.json", (FUTURE, FUTURE))  # or it falls silent on a slow machine
    write_run(root / "runs/done", made=100, env="Dale-v0")
    write_run(root / "runs/broken", "failed", made=5, reason="training diverged: the policy loss became nan")
    sweep = make_sweep(root / "whole", make_plan(tasks=("Hill-v0",), seeds=2))
    pack(sweep.path, root / "runs/packed")
    write_sweep(root / "runs/sweep", made=20)
    odd = write_run(root / "runs" / "odd <b>$$x$$", "failed", made=3, reason=" ".join(HOSTILE), env=HOSTILE[1],
                    objective=HOSTILE[0], seed=HOSTILE[2], optimizer=HOSTILE[3], name=HOSTILE[4])  # fmt: skip
    (odd / "metrics.jsonl").open("ab").write(b"\xff\xfe not a row\n")
    (odd / "evaluation.mp4").write_bytes(b"no video")
    plan = {
        "suite": "x",
        "title": HOSTILE[1],
        "tasks": [HOSTILE[0]],
        "variants": {"v": {"label": HOSTILE[2]}},
        "seeds": 1,
    }
    write_run(root / "runs/odd-sweep/runs/t/v/1", made=3, env=HOSTILE[0])
    (root / "runs/odd-sweep/plan.json").write_text(json.dumps(plan))
    (root / "runs/cut").mkdir()
    (root / "runs/cut/config.json").write_text('{"settings": ')
    return root


@pytest.fixture(scope="module")
def url(folder):
    command = [sys.executable, "-m", "spo", "watch", str(folder / "runs"), "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield re.search(r"http://127.0.0.1:\d+/", server.stdout.readline())[0]
    server.terminate()
    server.wait()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def opened(browser, url):
    """Opens pages, and looks afterwards that nothing was said, hacked or asked for elsewhere."""
    pages = []

    def open_page(path: str, **options):
        page = browser.open(url + path, **options)
        pages.append(page)
        page.wait(READY)
        return page

    yield open_page
    for page in pages:
        assert page.evaluate("typeof window.hacked") == "undefined"
        assert page.console == [] and "could not be drawn" not in page.evaluate("model('notes').text")
        host = re.escape(url.removeprefix("http:"))
        assert [own for own in page.requests if not re.match(rf"(http|ws):{host}|data:|blob:", own)] == []
        page.close()


def key_of(name: str) -> str:
    from urllib.parse import quote

    return quote(quote(name), safe="") if "<" in name else quote(name)


def test_the_table_has_every_run_with_its_state_and_reason(opened):
    page = opened("")
    page.wait("texts('.runs tbody tr').length >= 12")
    text = page.evaluate("texts('.runs').join()")
    for words in (
        "running",
        "finished",
        "failed",
        "damaged",
        "packed",
        "training diverged: the policy loss became nan",
    ):
        assert words in text
    assert page.evaluate("deep('.runs .spark').length") > 5
    for literal in (HOSTILE[0], HOSTILE[1]):
        assert literal in text
    assert "evil\u202e" not in text and page.evaluate("deep('.runs script, .runs img').length") == 0


def test_the_table_is_sorted_filtered_and_chosen_from(opened):
    page = opened("")
    page.click("deep('.runs thead button').find(b => b.innerText.startsWith('ratio'))")
    page.wait("texts('.runs thead').join().includes('ratio deviation ↓')")
    values = page.evaluate("texts('.runs tbody td:last-child b').filter(t => t != '–').map(Number)")
    assert values == sorted(values, reverse=True) and len(values) > 5
    page.evaluate("deep('input[placeholder^=filter]')[0].focus()")
    page.type("ppo hill")
    page.wait("model('search').value_input == 'ppo hill'")
    page.wait("texts('.runs tbody tr').length < 8 && texts('.runs tbody tr').every(t => /hill/i.test(t))")
    page.click("deep('.runs input[type=checkbox]')[0]")
    page.wait("texts('.action').join() == 'Compare 1 chosen run'")


@pytest.mark.parametrize("run", [
    "0/packed/runs/Hill-v0/spo/1", *(pytest.param(run, marks=long) for run in ("0/spo", "0/done", "0/broken"))
])  # fmt: skip
def test_the_page_of_a_run(opened, run):
    page = opened(f"run?run={run}")
    page.wait("model('deviation').renderers[0].data_source.data.x.length > 0")
    page.wait("deep('canvas').length > 5 && texts('h1').length == 1")
    last = page.evaluate("model('deviation').renderers[0].data_source.data.env_steps.at(-1)")
    assert last == {"0/spo": 40_000, "0/done": 100_000, "0/broken": 5_000}.get(run, 10_000)
    assert page.evaluate("model('return').renderers[1].data_source.data.mean.length") > 0
    note = page.evaluate("model('notes').text")
    assert ("packed" in note) == ("packed" in run)


def test_the_curve_grows_while_the_run_is_written(opened, folder):
    run = write_run(folder / "runs/live", "running", made=10)
    page = opened("run?run=0/live")
    count = "model('kl').renderers[0].data_source.data.iteration.length"
    page.wait(f"{count} == 10")
    append_rows(run, 11, 13)
    write_status(run, "running", 13)
    page.wait(f"{count} == 13")
    page.wait("texts('.facts').join().includes('13k of 100k')")
    page.click("deep('.bk-btn').find(b => b.innerText == '5')")
    page.wait("Math.abs(model('kl').renderers[1].data_source.data.steps_per_second.at(-1) - 2004) < 1e-6")
    page.click("deep('.bk-btn').find(b => b.innerText == 'log')")
    page.wait("model('kl').y_scale.type == 'LogScale' && model('return').y_scale.type == 'LinearScale'")
    append_rows(run, 14, 14)
    page.wait(f"{count} == 14")
    shutil.rmtree(run)
    page.wait("model('notes').text.includes('deleted')")


def test_the_slider_moves_the_cloud(opened):
    page = opened("trust-region?run=0/spo")
    side = {
        name: f"model('{name}-cloud').renderers.find(r => r.glyph.type == 'Scatter').data_source.data"
        for name in ("left", "right")
    }
    page.wait(f"{side['left']}.ratio.length == 200 && {side['right']}.ratio.length == 200")
    page.wait("model('iteration').value == 40 && texts('.shares').join().includes('iteration 40, epoch 4 of 4')")
    far = page.evaluate(f"Math.max(...{side['right']}.ratio)")
    assert page.evaluate(f"Math.max(...{side['left']}.ratio)") < 1.2 < far
    page.evaluate("deep('.noUi-handle')[0].focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Home", code="Home", windowsVirtualKeyCode=36)
    page.wait("model('iteration').value < 40 && !model('live').active")
    page.wait(f"Math.max(...{side['right']}.ratio) < {far}")
    page.evaluate("model('iteration').value = 1; 1")
    page.wait("texts('.shares').join().includes('iteration 1, epoch')")
    page.click("deep('.bk-btn').find(b => b.innerText.includes('play'))")
    page.wait("model('iteration').value > 3")
    assert page.evaluate("model('left-cloud').y_range.id == model('right-cloud').y_range.id")


@long
def test_the_cloud_is_live(opened, folder):
    page = opened("trust-region?run=0/spo")
    page.wait("model('iteration').value == 40")
    write_cloud(folder / "runs/spo", 41, "spo")
    page.wait("model('iteration').value == 41 && texts('.shares').join().includes('iteration 41')")
    (folder / "runs/spo/ratio_samples/41.safetensors").unlink()


@pytest.mark.parametrize("path, runs", [
    ("compare?sweep=0/sweep", 4), pytest.param("compare?run=0/spo&run=0/ppo-clip", 2, marks=long),
    pytest.param("compare?sweep=0/packed", 4, marks=long)])  # fmt: skip
def test_runs_are_compared(opened, path, runs):
    page = opened(path)
    page.wait(f"texts('.facts').join().includes('{runs} runs') && !model('notes').visible")
    lines = "model('task-0-0').renderers.filter(r => r.data_source.data.mean).map(r => r.data_source.data.x)"
    page.wait(f"{lines}.length == 4 && {lines}.every(x => x.length > 1)")
    assert page.evaluate("model('task-0-1').renderers[0].data_source.data.y") == [0.2, 0.2]  # the bound
    steps = page.evaluate(f"Math.max(...{lines}[0])")
    page.click("deep('.bk-btn').find(b => b.innerText == 'wall time')")
    page.wait(f"Math.max(...{lines}[0]) < {steps / 10}")
    assert page.evaluate("texts('table').join().includes('95 % interval')")


ODD = "run=0/odd%2520%253Cb%253E%2524%2524x%2524%2524"


def test_hostile_names_are_text(opened):
    page = opened(f"run?{ODD}")
    page.wait("texts('h1').length && model('notes').text.includes('lines that are no rows')")
    assert page.evaluate("texts('h1')[0]") == HOSTILE[1]
    assert page.evaluate("deep('main script, main img[src=x]').length") == 0


@long
@pytest.mark.parametrize("path", [f"trust-region?{ODD}", f"video?{ODD}", f"compare?{ODD}", "compare?sweep=0/odd-sweep"])
def test_hostile_names_are_text_on_every_other_page(opened, path):
    page = opened(path)
    page.wait("texts('h1, .above').join().length > 3")
    assert page.evaluate("deep('main script, main img[src=x]').length") == 0


@long
def test_a_run_that_is_not_there_and_one_that_is_damaged(opened):
    page = opened("run?run=0/%3Cscript%3Ewindow.hacked=1%3C/script%3E/../../etc")
    assert "There is no run 0/<script>" in page.evaluate("texts('.note').join()")
    page = opened("run?run=0/cut")
    page.wait("texts('.note').join().includes('config.json cannot be read')")


@long
def test_pages_that_were_opened_too_early_find_their_runs(opened, folder):
    pages = [opened("run?run=0/early"), opened("trust-region?run=0/early")]
    assert "There is no run 0/early here" in pages[0].evaluate("texts('.note').join()")
    for name, objective in (("early", "spo"), ("early-ppo", "ppo-clip")):
        write_cloud(
            write_run(folder / "runs" / name, "running", made=2, env="Early-v0", objective=objective), 2, objective
        )
    pages[0].wait("model('kl').renderers[0].data_source.data.iteration.length == 2")
    pages[1].wait("texts('.shares').filter(t => t.includes('iteration 2, epoch 4 of 4')).length == 2")
    for name in ("early", "early-ppo"):
        shutil.rmtree(folder / "runs" / name)


@long
def test_two_pages_of_one_run_take_nothing_from_each_other(opened, folder):
    run = write_run(folder / "runs/shared", "running", made=5)
    pages = [opened(f"{path}?run=0/shared") for path in ("run", "run", "compare")]
    for last in (6, 7, 8, 9):
        append_rows(run, last, last)
        for page in pages[:2]:
            page.wait(f"model('kl').renderers[0].data_source.data.iteration.at(-1) == {last}")
    shutil.rmtree(run)


PAGES = {"": "counts", "run?run=0/done": "facts h1", "video?run=0/done": "facts h1",
         "trust-region?run=0/spo": "above", "compare?sweep=0/sweep": "facts h1"}  # fmt: skip


@pytest.mark.parametrize("width, dark, paths", [
    (390, True, ["", "trust-region?run=0/spo"]), pytest.param(1280, False, list(PAGES), marks=long),
    pytest.param(390, True, list(PAGES), marks=long)])  # fmt: skip
def test_pages_fit_their_window_and_take_its_colours(opened, width, dark, paths):
    ink = "rgb(228, 233, 239)" if dark else "rgb(27, 31, 36)"
    for path in paths:
        page = opened(path, width=width, dark=dark)
        page.wait(f"texts('.{PAGES[path]}').join().length > 0")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.evaluate("getComputedStyle(document.body).color") == ink


def test_nothing_is_written_into_a_run(opened, folder):
    before = list_files(folder)
    for path in ("run?run=0/spo", "trust-region?run=0/spo"):
        opened(path).wait("texts('.above').length > 0")
    assert list_files(folder) == before


def list_files(folder: Path) -> dict[str, tuple]:
    """Every file and directory, with what would tell that it was written to."""
    found = {str(path): path.lstat() for path in folder.rglob("*")}
    return {path: (own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns) for path, own in found.items()}
