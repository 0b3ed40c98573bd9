"""The pictures of spo watch in README.md and docs/watch.md, taken while the command of `make demo` trains."""

import argparse
import json
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lib.watched import watched

ROOT = Path(__file__).parent.parent
READY = "window.Bokeh && Bokeh.documents.length == 1 && !!model('notes')"
SHOWN = {
    "watch-trust-region": ("trust-region", "model('live').active && texts('.running').length == 2"),
    "watch-runs": ("", "texts('.runs .running').length == 2"),
    "watch-run": ("run?run=0/{ppo}", "model('deviation').renderers[0].data_source.data.x.length > 1"),
}
"""By picture: the page, and what must be true on it."""
SIZES = {"watch-trust-region": (1180, 790), "watch-runs": (1440, 420), "watch-run": (1280, 820)}


def demo_command(folder: Path) -> list[str]:
    """The command of `make demo`, with the runs in a folder."""
    line = re.search(r"^demo:.*\n\t.*/bin/spo (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[1]
    return [sys.executable, "-m", "spo", *shlex.split(line), "--out", str(folder)]


@contextmanager
def training(folder: Path) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(demo_command(folder))
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def read_progress(run: Path) -> float:
    """The share of a run that is done; 0 before it has said so."""
    try:
        status, config = (json.loads((run / f"{name}.json").read_text()) for name in ("status", "config"))
        return status["env_steps"] / config["resolved"]["total_steps"] if status["state"] == "running" else 0.0
    except (OSError, ValueError, KeyError):
        return 0.0


def wait_for_both(folder: Path, process: subprocess.Popen, share: float) -> Path:
    """Wait until PPO-Clip and SPO are so far; PPO-Clip's run."""
    while process.poll() is None:
        found = {run.parent.name: run for run in folder.glob("runs/*/*/1")}
        pair = [found[name] for name in ("ppo-clip", "spo") if name in found]
        if len(pair) == 2 and min(map(read_progress, pair)) >= share:
            return pair[0]
        time.sleep(0.5)
    raise SystemExit("the demo ended before both runs were there at once")


def take_pictures(url: str, browser, ppo: str, out: Path) -> None:
    for name, (path, is_there) in SHOWN.items():
        page = browser.open(url + path.format(ppo=ppo), *SIZES[name])
        page.wait(f"{READY} && {is_there}")
        time.sleep(2)  # until it has been drawn, and once again
        page.wait(is_there)
        assert page.console == [], page.console
        print(page.screenshot(out / f"{name}.png"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs/pictures")
    parser.add_argument("--share", type=float, default=0.4, help="of the runs that is done when the pictures are taken")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "demo"
        with training(folder) as process, watched(folder) as (_, url, browser):
            ppo = wait_for_both(folder, process, given.share)
            take_pictures(url, browser, ppo.relative_to(folder).as_posix(), given.out)


if __name__ == "__main__":
    main()
