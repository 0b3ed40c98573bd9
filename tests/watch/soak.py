"""Watches a run that is being written for a while, and prints the server's memory: python soak.py MINUTES."""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))

from browser import Browser
from made_runs import append_rows, write_cloud, write_config, write_status

KEPT = 140


def resident(pid: int) -> float:
    """Megabytes."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def write_iteration(run: Path, iteration: int) -> None:
    append_rows(run, iteration, iteration)
    write_cloud(run, iteration, "spo")
    (run / f"ratio_samples/{iteration - KEPT}.safetensors").unlink(missing_ok=True)
    write_status(run, "running", iteration)


def soak(minutes: float, folder: Path) -> list[float]:
    """Open every page on a run that grows twice a second; the server's memory, minute by minute."""
    run = folder / "runs/run"
    write_config(run, iterations=10**6)
    append_rows(run, 1, 2000)
    write_cloud(run, 2000, "spo")
    write_status(run, "running", 2000)
    command = [sys.executable, "-m", "spo", "watch", str(folder / "runs"), "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    browser = None
    try:
        url = re.search(r"http://\S+/", server.stdout.readline())[0]
        browser = Browser(folder)
        pages = [
            browser.open(url + path) for path in ("", "run?run=0/run", "trust-region?run=0/run", "compare?run=0/run")
        ]
        found, iteration, started = [], 2000, time.monotonic()
        while time.monotonic() - started < 60 * minutes:
            iteration += 1
            write_iteration(run, iteration)
            time.sleep(0.5)
            if time.monotonic() - started > 60 * len(found):
                found.append(resident(server.pid))
                shown = pages[1].evaluate("model('kl').renderers[0].data_source.data.iteration.at(-1)")
                print(
                    f"{time.strftime('%H:%M:%S')} {found[-1]:.1f} MB, iteration {iteration}, shown {shown}", flush=True
                )
        assert all(page.console == [] for page in pages), [page.console[:3] for page in pages]
        return found
    finally:
        server.terminate()
        server.wait()
        if browser:
            browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        memory = soak(float(sys.argv[1]), Path(folder))
    print(f"from {memory[len(memory) // 3]:.1f} to {memory[-1]:.1f} MB", os.getpid())
