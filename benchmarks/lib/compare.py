"""Libraries side by side on one job: all stay alive, and short rounds go through all of them in turn.

A machine that others share is fast in one minute and slow in the next, which a round hits alike. Hence two ratios: of
the best rounds, and the median of those within a round.
"""

import dataclasses
import itertools
import statistics
from collections.abc import Callable
from contextlib import ExitStack

from jobs.job import ONE_BY_ONE, Job
from lib.launch import Failed, Running
from lib.tasks import describe
from lib.venvs import OURS, PEERS, python_of

Way = tuple[str, int]
"""How environments are stepped: the way or the backend, and threads."""
GYMNASIUM: Way = (ONE_BY_ONE, 1)


class Entrant:
    """A library with a number of threads, and what it reached in every round."""

    def __init__(self, peer: str, job: Job, stack: ExitStack):
        self.peer, self.job, self.results = peer, job, []
        self.running = stack.enter_context(Running(python_of(peer), PEERS[peer].job, job))
        self.failure: str | None = None
        self._try(self.running.await_ready)

    def measure(self) -> dict:
        result = None if self.failure else self._try(self.running.measure)
        self.results.append({"threads": self.job.threads} | (result or {"failed": self.failure}))
        return self.results[-1]

    def _try(self, deed: Callable) -> object:
        """A failure is a result too: one library must not end the comparison of the others."""
        try:
            return deed()
        except (Failed, OSError) as failure:  # the second: it was gone before it was asked
            self.failure = str(failure)


class Limits:
    """The environments alone, stepped in every way in which a library steps them, in every round."""

    def __init__(self, job: Job, stack: ExitStack):
        self.job, self.stack, self.running, self.speeds = job, stack, {}, {}

    def measure(self, ways: set[Way]) -> None:
        for backend, threads in sorted(ways):
            way = (backend, threads)
            if way not in self.running:
                alone = dataclasses.replace(self.job, backend=backend, threads=threads)
                started = self.stack.enter_context(Running(python_of(OURS), "stepping", alone))
                self.running[way] = started.await_ready()
            self.speeds.setdefault(way, []).append(self.running[way].measure()["steps_per_second"])


def compare(name: str, job: Job, peers: list[str], threads: list[int], rounds: int) -> dict:
    """Every library's speed, its ratio to this project's, and its share of the simulation limit."""
    print(f"\n{name}: {describe(job)}", flush=True)
    with ExitStack() as stack:
        entrants = []
        for peer, count in itertools.product([peer for peer in peers if takes_part(peer, job)], threads):
            print(f"  starting {peer} with {count} thread(s)", flush=True)
            entrants.append(Entrant(peer, dataclasses.replace(job, threads=count), stack))
        limits = Limits(job, stack)
        for number in range(1, rounds + 1):
            run_round(f"round {number} of {rounds}", entrants, limits)
    rows = {peer: completed(peer, entrants, limits.speeds) for peer in dict.fromkeys(one.peer for one in entrants)}
    named = {f"{backend}, {count} thread(s)": speeds for (backend, count), speeds in limits.speeds.items()}
    return {"job": dataclasses.asdict(job), "peers": rows, "limits": named}


def takes_part(peer: str, job: Job) -> bool:
    return python_of(peer) is not None and (PEERS[peer].plays_atari or not job.is_atari)


def run_round(name: str, entrants: list[Entrant], limits: Limits) -> None:
    for entrant in entrants:
        words = in_words(entrant.measure())
        print(f"  {name}: {entrant.peer}, {entrant.job.threads} thread(s): {words}", flush=True)
    limits.measure({GYMNASIUM} | {way_of(one.results[-1]) for one in entrants if "failed" not in one.results[-1]})


def way_of(result: dict) -> Way:
    return result["backend"], result["stepping_threads"]


def completed(peer: str, entrants: list[Entrant], limits: dict[Way, list[float]]) -> dict:
    """A row of the table: the best round with the best number of threads, and all that was measured."""
    own = [one for one in entrants if one.peer == peer]
    row = max((result for one in own for result in one.results), key=speed)
    if "failed" in row:
        return row
    ours, theirs = (bests_of_rounds(entrants, name) for name in (OURS, peer))
    ratios = [mine / other for mine, other in zip(ours, theirs) if other]
    return row | {
        "spo_is_times_as_fast": max(ours) / max(theirs) if ratios else None,
        "spo_is_times_as_fast_by_round": ratios,
        "by_threads": {one.job.threads: with_shares(one.results, limits) for one in own},
    }


def speed(result: dict) -> float:
    return result.get("steps_per_second", 0.0)


def bests_of_rounds(entrants: list[Entrant], peer: str) -> list[float]:
    """The best speed of a library in each round, whatever its threads."""
    return [max(map(speed, results)) for results in zip(*(one.results for one in entrants if one.peer == peer))]


def with_shares(results: list[dict], limits: dict[Way, list[float]]) -> dict:
    """What a library reached with one number of threads, and how much that is of the environments' speed alone."""
    if any("failed" in result for result in results):
        return next(result for result in results if "failed" in result)
    speeds, row = list(map(speed, results)), {}
    for name, way in {"simulation_limit": way_of(results[0]), "gymnasium_alone": GYMNASIUM}.items():
        row[f"share_of_{name}"] = max(speeds) / max(limits[way])
        row[f"share_of_{name}_by_round"] = [one / limit for one, limit in zip(speeds, limits[way])]
    return {"steps_per_second": speeds} | row


def in_words(result: dict) -> str:
    return f"failed: {result['failed']}" if "failed" in result else f"{speed(result):,.0f} steps/s"


def print_table(name: str, compared: dict) -> None:
    asked = Job(**compared["job"]).gradient_steps
    print(f"\n{name}: the best round (the median round)")
    for peer, row in compared["peers"].items():
        if "failed" in row:
            print(f"  {peer:18} {in_words(row)}")
            continue
        for threads, one in row["by_threads"].items():
            print(f"  {peer:18} {row['version']:8} {threads} thread(s) {speed_and_share(one)}")
        if peer != OURS and row["spo_is_times_as_fast"]:
            print(f"  {'':18} spo is {both(row, 'spo_is_times_as_fast', '.2f')} × as fast")
        made = row.get("gradient_steps")
        if made and made != asked:
            print(f"  {'':18} (makes {made:g} gradient steps per iteration instead of {asked})")


def speed_and_share(one: dict) -> str:
    if "failed" in one:
        return in_words(one)
    speeds = one["steps_per_second"]
    limit, gymnasium = (both(one, f"share_of_{name}", ".0%") for name in ("simulation_limit", "gymnasium_alone"))
    shares = f"{limit} of the simulation limit, {gymnasium} of Gymnasium alone"
    return f"{max(speeds):8,.0f} ({statistics.median(speeds):,.0f}) steps/s, {shares}"


def both(row: dict, name: str, form: str) -> str:
    return f"{row[name]:{form}} ({statistics.median(row[f'{name}_by_round']):{form}})"
