"""What spo watch costs: seconds until a row is on its page, many runs, a long time, and what keeping ratios takes."""

import argparse
import os
import re
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from lib.watched import watched

RUN_PAGE, KEPT = "run?run=0/run", 140
PAGES = ("", RUN_PAGE, "trust-region?run=0/run", "compare?run=0/run")
SETTLING = 10
"""Iterations that are not timed."""
SHOWN = "model('kl').renderers[0].data_source.data.iteration.at(-1)"


def resident(pid: int, name: str = "VmRSS") -> float:
    """Megabytes."""
    return int(re.search(rf"{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def write_iteration(run: Path, iteration: int) -> None:
    from made_runs import append_rows, write_cloud, write_status

    append_rows(run, iteration, iteration)
    write_cloud(run, iteration, "spo")
    (run / f"ratio_samples/{iteration - KEPT}.safetensors").unlink(missing_ok=True)
    write_status(run, "running", iteration)


def start_run(runs: Path, made: int) -> Path:
    from made_runs import append_rows, write_cloud, write_config, write_status

    run = runs / "run"
    write_config(run, iterations=10**6)
    append_rows(run, 1, made)
    write_cloud(run, made, "spo")
    write_status(run, "running", made)
    return run


def measure_latency(folder: Path, repeats: int) -> None:
    """Seconds from a row that is written to the page that has it."""
    run = start_run(folder / "runs", 100)
    with watched(folder / "runs") as (_, url, browser):
        page, found = browser.open(url + RUN_PAGE), []
        page.wait(f"{SHOWN} == 100")
        for iteration in range(101, 101 + repeats):
            time.sleep(0.37)  # no multiple of the server's own rhythm
            write_iteration(run, iteration)
            written = time.monotonic()
            page.wait(f"{SHOWN} == {iteration}")
            found.append(time.monotonic() - written)
    print(f"latency: median {statistics.median(found):.2f} s, largest {max(found):.2f} s of {repeats}", end="")
    print(f"; load {os.getloadavg()[0]:.1f}")


def measure_load(folder: Path, count: int, rows: int) -> None:
    """Seconds until many runs are on a page, and the server's memory."""
    from made_runs import write_config, write_run, write_status

    first = write_run(folder / "runs/run-0", made=rows, iterations=rows, episodes=1)
    for number in range(1, count):
        run = folder / f"runs/run-{number}"
        write_config(run, seed=number + 1, iterations=rows)
        for log in ("metrics.jsonl", "episodes.jsonl"):
            os.link(first / log, run / log)
        write_status(run, "finished", rows)
    with watched(folder / "runs") as (server, url, browser):
        started = time.monotonic()
        browser.open(url).wait(f"texts('.runs tbody tr').length == {count}")
        print(f"load: {count} runs of {rows} rows are on the page after {time.monotonic() - started:.2f} s", end="")
        print(f", {resident(server.pid):.0f} MB; load {os.getloadavg()[0]:.1f}", flush=True)
        started = time.monotonic()
        query = "&".join(f"run=0/run-{number}" for number in range(count))
        page = browser.open(f"{url}compare?{query}")
        page.wait(f"texts('.facts').join().includes('{count} runs') && !model('notes').visible")
        print(f"all compared after {time.monotonic() - started:.1f} s", end="")
        for number in range(0, count, max(1, count // 10)):
            browser.open(f"{url}run?run=0/run-{number}").wait(f"{SHOWN} == {rows}")
        print(f"; with ten of their pages open {resident(server.pid):.0f} MB, ", end="")
        print(f"at most {resident(server.pid, 'VmHWM'):.0f} MB")


def soak(folder: Path, minutes: float) -> None:
    """Open every page on a run that grows every second, and print the server's memory every minute."""
    iteration = 2000
    run = start_run(folder / "runs", iteration)
    with watched(folder / "runs") as (server, url, browser):
        pages = [browser.open(url + path) for path in PAGES]
        found, started = [], time.monotonic()
        while time.monotonic() - started < 60 * minutes:
            iteration += 1
            write_iteration(run, iteration)
            time.sleep(1.0)
            if time.monotonic() - started > 60 * len(found):
                found.append(resident(server.pid))
                shown = pages[1].evaluate(SHOWN)
                print(f"{len(found) - 1} min: {found[-1]:.1f} MB, iteration {iteration}, shown {shown}", flush=True)
        assert all(page.console == [] for page in pages), [page.console[:3] for page in pages]
    print(f"soak: from {found[len(found) // 3]:.1f} to {found[-1]:.1f} MB in the last two thirds")


def count_time() -> list[float]:
    """Count the processor time that goes into keeping ratios, call by call."""
    from spo.algorithms.ratio_samples import RatioSampler
    from spo.runs import recorder

    spent: list[float] = []

    def counted(function):
        def call(*arguments):
            started = time.thread_time()
            result = function(*arguments)
            spent.append(time.thread_time() - started)
            return result

        return call

    for name in ("__init__", "__call__", "arrays"):
        setattr(RatioSampler, name, counted(getattr(RatioSampler, name)))
    recorder.keep_sample = counted(recorder.keep_sample)
    return spent


def measure_cost(folder: Path, env: str, iterations: int, options: dict) -> None:
    """What keeping ratios takes of a run: every other iteration keeps some, and neighbours are compared."""
    import spo
    from spo.config.sources import make_config

    clocks: list[tuple[float, float]] = []
    counted: list[float] = []
    spent = count_time()

    def note(training: object, row: dict) -> bool:
        clocks.append((time.perf_counter(), time.process_time()))
        counted.append(sum(spent))
        spent.clear()
        return len(clocks) < iterations

    options = {"watch_ratios": 2, "threads": 1, "compile": "on", "quiet": True, **options}
    spo.train(env, steps="100M", out=str(folder / "run"), callback=note, **options)
    every = make_config(env, **options | {"watch_ratios": None}).watch_every
    took = np.diff(clocks, axis=0)[SETTLING:]  # from the callback before, so the first is of an even iteration
    for name, times in zip(("wall", "processor"), took.T):
        ratio, low, high = ratio_of_neighbours(times)
        print(f"cost in {name} time, {env}, {len(times) // 2 - 1} pairs: an iteration that keeps ratios takes", end="")
        print(f" {ratio:.4f} of one that keeps none, 95 % interval {low:.4f} to {high:.4f}", end="")
        print(f", so {100 * (ratio - 1) / every:+.2f} % of a run ({100 * (low - 1) / every:+.2f} to", end="")
        print(f" {100 * (high - 1) / every:+.2f}), where every {every}. keeps some", end="")
        print(f"; {1000 * np.median(times):.1f} ms; load {os.getloadavg()[0]:.1f}", flush=True)
    kept = 1000 * np.array(counted[1 + SETTLING :: 2])
    print(
        f"counted call by call: median {np.median(kept):.2f} ms, mean {kept.mean():.2f} ms of an iteration that keeps",
        end="",
    )
    print(f" some, {100 * np.median(kept) / np.median(1000 * took[:, 1]):.2f} % of its processor time")


def ratio_of_neighbours(times: np.ndarray, resamples: int = 4000) -> tuple[float, float, float]:
    """Set each iteration that keeps some (the even ones) against the two beside it: the median, and its interval."""
    kept, before, after = times[2:-1:2], times[1:-2:2], times[3::2]
    size = min(map(len, (kept, before, after)))
    ratios = kept[:size] / ((before[:size] + after[:size]) / 2)
    drawn = np.random.default_rng(0).choice(ratios, (resamples, size))
    return float(np.median(ratios)), *map(float, np.quantile(np.median(drawn, 1), (0.025, 0.975)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("latency", "load", "soak", "cost"))
    parser.add_argument("--minutes", type=float, default=30, help="of the soak")
    parser.add_argument("--env", default="HalfCheetah-v4", help="that the cost is measured on")
    parser.add_argument("--iterations", type=int, default=600)
    parser.add_argument("--horizon", type=int, help="of the cost's runs, for iterations of another length")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.what == "latency":
            measure_latency(folder, repeats=30)
        elif given.what == "load":
            measure_load(folder, count=200, rows=5000)
        elif given.what == "soak":
            soak(folder, given.minutes)
        else:
            measure_cost(folder, given.env, given.iterations, {"horizon": given.horizon} if given.horizon else {})


if __name__ == "__main__":
    main()
