"""How this project's speed changes with the number of environments, the width of the networks, and the threads."""

import dataclasses

from jobs.job import Job
from launch import run_alone
from venvs import OURS, PEERS, python_of

ENVS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
WIDTHS = (64, 128, 256, 512, 1024)
THREADS = (1, 2)
BATCH = 2048


def scaling(job: Job, rounds: int) -> dict[str, list[dict]]:
    """Steps per second, the best of the rounds: one table over environments, one over widths."""
    jobs = {
        "envs": [with_envs(job, count, threads) for count in ENVS for threads in THREADS],
        "width": [with_width(job, size, threads) for size in WIDTHS for threads in THREADS],
    }
    best: dict[Job, float] = {}
    for number in range(1, rounds + 1):
        for one in dict.fromkeys(one for row in jobs.values() for one in row):
            speed = run_alone(python_of(OURS), PEERS[OURS].job, one)["steps_per_second"]
            best[one] = max(speed, best.get(one, 0.0))
            print(f"  round {number} of {rounds}: {in_words(one)}: {speed:,.0f} steps/s", flush=True)
    return {axis: [row_of(one, best[one]) for one in row] for axis, row in jobs.items()}


def with_envs(job: Job, count: int, threads: int) -> Job:
    """The same batch from more environments: the gradient's work stays equal."""
    return dataclasses.replace(job, envs=count, horizon=BATCH // count, threads=threads)


def with_width(job: Job, size: int, threads: int) -> Job:
    return dataclasses.replace(job, hidden=(size, size), critic_hidden=(size, size), threads=threads)


def row_of(job: Job, speed: float) -> dict[str, float]:
    return {"envs": job.envs, "width": job.hidden[0], "threads": job.threads, "steps_per_second": speed}


def in_words(job: Job) -> str:
    return f"{job.envs} environment(s), width {job.hidden[0]}, {job.threads} thread(s)"
