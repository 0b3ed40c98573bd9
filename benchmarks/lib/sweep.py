"""Several single-threaded runs at once, as in a sweep over seeds: their steps per second in total."""

import dataclasses
import statistics
from contextlib import ExitStack

from jobs.job import Job
from lib.compare import takes_part
from lib.launch import Running
from lib.venvs import OURS, PEERS, python_of

AT_ONCE = 2
RIVAL = "stable-baselines3"


def sweep(name: str, job: Job, rounds: int) -> dict[str, object]:
    """The totals of this project and of Stable-Baselines3 in every round, and their ratio."""
    print(f"\n{name}: {AT_ONCE} single-threaded runs at once", flush=True)
    with ExitStack() as stack:
        teams = {peer: team(peer, job, stack) for peer in (OURS, RIVAL) if takes_part(peer, job)}
        totals = {peer: [] for peer in teams}
        for number in range(1, rounds + 1):
            for peer, running in teams.items():
                totals[peer].append(total(running))
                print(f"  round {number} of {rounds}: {peer} {totals[peer][-1]:,.0f} steps/s in total", flush=True)
    return {"totals": totals} | (ratios(name, totals) if RIVAL in totals else {})


def team(peer: str, job: Job, stack: ExitStack) -> list[Running]:
    alone = dataclasses.replace(job, threads=1)
    running = [stack.enter_context(Running(python_of(peer), PEERS[peer].job, alone)) for _ in range(AT_ONCE)]
    return [one.await_ready() for one in running]


def total(running: list[Running]) -> float:
    """All make the same number of steps from the same start, so the slowest says how long all took."""
    for one in running:
        one.begin()
    return len(running) * min(one.end()["steps_per_second"] for one in running)


def ratios(name: str, totals: dict[str, list[float]]) -> dict[str, object]:
    by_round = [ours / theirs for ours, theirs in zip(totals[OURS], totals[RIVAL])]
    ratio = max(totals[OURS]) / max(totals[RIVAL])
    print(f"  {name}: spo is {ratio:.2f} × as fast in total ({statistics.median(by_round):.2f} in the median round)")
    return {"ratio": ratio, "ratio_by_round": by_round}
