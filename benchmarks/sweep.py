"""Several single-threaded runs at once, as in a sweep over seeds: their steps per second in total."""

import dataclasses

from compare import takes_part
from jobs.job import Job
from launch import run_at_once
from venvs import OURS, PEERS, python_of

AT_ONCE = 2
RIVAL = "stable-baselines3"


def sweep(name: str, job: Job, rounds: int) -> dict[str, float]:
    """The best of the rounds for this project and for Stable-Baselines3, and their ratio."""
    print(f"\n{name}: {AT_ONCE} single-threaded runs at once", flush=True)
    totals: dict[str, float] = {}
    for number in range(1, rounds + 1):
        for peer in [peer for peer in (OURS, RIVAL) if takes_part(peer, job)]:
            speed = total(peer, dataclasses.replace(job, threads=1))
            print(f"  round {number} of {rounds}: {peer} {speed:,.0f} steps/s in total", flush=True)
            totals[peer] = max(speed, totals.get(peer, 0.0))
    if RIVAL in totals:
        totals["ratio"] = totals[OURS] / totals[RIVAL]
        print(f"  {name}: spo is {totals['ratio']:.2f} × as fast in total")
    return totals


def total(peer: str, job: Job) -> float:
    """All make the same number of steps from the same start, so the slowest says how long all took."""
    results = run_at_once(python_of(peer), PEERS[peer].job, [job] * AT_ONCE)
    return AT_ONCE * min(result["steps_per_second"] for result in results)
