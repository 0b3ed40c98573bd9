"""How this project's speed changes with the number of environments, the width of the networks, and the threads."""

import dataclasses
from contextlib import ExitStack

from jobs.job import Job
from lib.launch import Running
from lib.venvs import OURS, PEERS, python_of

ENVS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WIDTHS = (64, 128, 256, 512, 1024)
THREADS = (1, 2)
BATCH = 2048


def scaling(job: Job, rounds: int) -> dict[str, list[dict]]:
    """Steps per second: one table over environments, one over widths."""
    jobs = {
        "envs": [with_envs(job, count, threads) for count in ENVS for threads in THREADS],
        "width": [with_width(job, size, threads) for size in WIDTHS for threads in THREADS],
    }
    return {axis: measured(along, rounds) for axis, along in jobs.items()}


def measured(jobs: list[Job], rounds: int) -> list[dict]:
    """All stay alive, and rounds go through them, so that a slow minute hits all alike."""
    speeds: dict[Job, list[float]] = {job: [] for job in jobs}
    with ExitStack() as stack:
        running = {job: started(job, stack) for job in jobs}
        for number in range(1, rounds + 1):
            for job in jobs:
                speeds[job].append(running[job].measure()["steps_per_second"])
                words = f"{in_words(job)}: {speeds[job][-1]:,.0f} steps/s"
                print(f"  round {number} of {rounds}: {words}", flush=True)
    return [row_of(job, speeds[job]) for job in jobs]


def started(job: Job, stack: ExitStack) -> Running:
    print(f"  starting {in_words(job)}", flush=True)
    return stack.enter_context(Running(python_of(OURS), PEERS[OURS].job, job)).await_ready()


def with_envs(job: Job, count: int, threads: int) -> Job:
    """The same batch from more environments: the gradient's work stays equal."""
    return dataclasses.replace(job, envs=count, horizon=BATCH // count, threads=threads)


def with_width(job: Job, size: int, threads: int) -> Job:
    return dataclasses.replace(job, hidden=(size, size), critic_hidden=(size, size), threads=threads)


def row_of(job: Job, speeds: list[float]) -> dict[str, object]:
    point = {"envs": job.envs, "width": job.hidden[0], "threads": job.threads}
    return point | {"steps_per_second": max(speeds), "by_round": speeds}


def in_words(job: Job) -> str:
    return f"{job.envs} environment(s), width {job.hidden[0]}, {job.threads} thread(s)"
