"""Libraries side by side on one job, round by round through all of them, the best of the rounds counting."""

import dataclasses
import itertools
from collections.abc import Iterable

from jobs.job import Job
from launch import Failed, run_alone
from tasks import describe
from venvs import OURS, PEERS, python_of

Limits = dict[tuple[str, int], float]
"""Steps per second of the environments alone, by backend and threads."""


def compare(name: str, job: Job, peers: list[str], threads: list[int], rounds: int) -> dict:
    """The best result of every library, its ratio to this project, and its share of the simulation limit."""
    print(f"\n{name}: {describe(job)}", flush=True)
    results = {peer: [] for peer in peers if takes_part(peer, job)}
    limits: Limits = {}
    for number in range(1, rounds + 1):
        for peer, count in itertools.product(results, threads):
            results[peer].append(measured(peer, dataclasses.replace(job, threads=count)))
            words = in_words(results[peer][-1])
            print(f"  round {number} of {rounds}: {peer}, {count} thread(s): {words}", flush=True)
        update_limits(limits, job, itertools.chain(*results.values()))
    ours = best(results[OURS]) if OURS in results else None
    rows = {peer: completed(found, ours, limits) for peer, found in results.items()}
    return {"job": dataclasses.asdict(job), "peers": rows, "limits": named(limits)}


def takes_part(peer: str, job: Job) -> bool:
    return python_of(peer) is not None and (PEERS[peer].plays_atari or not job.is_atari)


def measured(peer: str, job: Job) -> dict:
    """A failure is a result too: one library must not end the comparison of the others."""
    try:
        result = run_alone(python_of(peer), PEERS[peer].job, job)
    except Failed as failure:
        result = {"failed": str(failure)}
    return {"threads": job.threads} | result


def best(results: list[dict]) -> dict:
    return max(results, key=lambda result: result.get("steps_per_second", 0.0))


def update_limits(limits: Limits, job: Job, results: Iterable[dict]) -> None:
    """Steps the environments alone, in every way in which a library stepped them."""
    ways = {(result["backend"], result["stepping_threads"]) for result in results if "failed" not in result}
    for backend, count in sorted(ways):
        alone = dataclasses.replace(job, backend=backend, threads=count)
        speed = run_alone(python_of(OURS), "stepping", alone)["steps_per_second"]
        limits[backend, count] = max(speed, limits.get((backend, count), 0.0))


def completed(results: list[dict], ours: dict | None, limits: Limits) -> dict:
    """A row of the table: the best result, and the best with every number of threads."""
    row = best(results)
    if "failed" in row:
        return row
    has_ours = ours is not None and "failed" not in ours
    return with_share(row, limits) | {
        "spo_is_times_as_fast": ours["steps_per_second"] / row["steps_per_second"] if has_ours else None,
        "by_threads": {threads: with_share(best(found), limits) for threads, found in by_threads(results).items()},
        "measured": [{key: result.get(key) for key in ("threads", "steps_per_second")} for result in results],
    }


def with_share(result: dict, limits: Limits) -> dict:
    if "failed" in result:
        return result
    limit = limits[result["backend"], result["stepping_threads"]]
    return result | {"share_of_simulation_limit": result["steps_per_second"] / limit}


def by_threads(results: list[dict]) -> dict[int, list[dict]]:
    numbers = sorted({result["threads"] for result in results})
    return {number: [result for result in results if result["threads"] == number] for number in numbers}


def named(limits: Limits) -> dict[str, float]:
    return {f"{backend}, {count} thread(s)": speed for (backend, count), speed in limits.items()}


def in_words(result: dict) -> str:
    if "failed" in result:
        return f"failed: {result['failed']}"
    return f"{result['steps_per_second']:,.0f} steps/s"


def print_table(name: str, compared: dict) -> None:
    """Every library's best; where other numbers of threads bring it nearer to the simulation, that too."""
    asked = Job(**compared["job"]).gradient_steps
    print(f"\n{name}")
    for peer, row in compared["peers"].items():
        print(f"  {peer:18} {table_row(row)}")
        for other in row.get("by_threads", {}).values():
            if other.get("share_of_simulation_limit", 0.0) > row["share_of_simulation_limit"]:
                print(f"  {'':18} {speed_and_share(other)}")
        made = row.get("gradient_steps")
        if made and made != asked:
            print(f"  {'':18} (makes {made:g} gradient steps per iteration instead of {asked})")


def table_row(row: dict) -> str:
    if "failed" in row:
        return in_words(row)
    ratio = f"spo is {row['spo_is_times_as_fast']:5.2f} × as fast" if row["spo_is_times_as_fast"] else ""
    return f"{speed_and_share(row)}   {ratio}"


def speed_and_share(result: dict) -> str:
    speed = f"{result['version']:8} {result['steps_per_second']:8,.0f} steps/s with {result['threads']} thread(s)"
    return f"{speed}, {result['share_of_simulation_limit']:4.0%} of the simulation limit"
