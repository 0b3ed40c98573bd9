"""Sweeps made of files alone, with numbers that follow from a formula: for whatever reads a sweep."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from spo.experiments.plan import Cell, Plan
from spo.experiments.results import Results
from spo.experiments.sweep import Sweep
from spo.runtime.files import append_row, write_json

ITERATIONS, ENVS, HORIZON = 10, 4, 250
STEPS = ITERATIONS * ENVS * HORIZON
EPISODES = 10
"""In each iteration, so that the last tenth of the steps has ten: more than the eight that a return needs."""
SETTINGS = {"preset": "mujoco", "envs": ENVS, "horizon": HORIZON, "learning_rate": 3e-4, "hidden": [64, 64], "out": "x"}
VERSIONS = {"python": "3.12.1", "torch": "2.7.0", "numpy": "2.2.0"}
MACHINE = {"processor": "Abacus 3000", "instructions": "AVX2"}
VARIANTS = {
    "ppo": {"label": "PPO", "objective": "ppo-clip"},
    "spo": {"label": "SPO", "objective": "spo"},
}


def make_plan(**changes) -> Plan:
    """Two variants on two tasks with three seeds, at the fixture's length."""
    values = {
        "suite": "fixture",
        "title": "A fixture",
        "source": "no part of the paper",
        "preset": "mujoco",
        "steps": STEPS,
        "seeds": 3,
        "tasks": ("Hill-v0", "Dale-v0"),
        "variants": VARIANTS,
        "baseline": "ppo",
    }
    return Plan(**values | changes)


def make_sweep(path: Path, plan: Plan | None = None, without: tuple[Cell, ...] = ()) -> Sweep:
    """A sweep whose runs are all finished, but for those that are left out."""
    sweep = Sweep.begin(path, plan or make_plan())
    for cell in sweep.plan.cells():
        if cell not in without:
            write_run(sweep, cell)
    return sweep


def level(plan: Plan, cell: Cell) -> float:
    """What a run's return ends at: another number for each run, each variant's higher by 30 than the one before."""
    return 100.0 * (plan.tasks.index(cell.task) + 1) + 30.0 * list(plan.variants).index(cell.variant) + cell.seed**2


def deviation(plan: Plan, cell: Cell) -> float:
    """What a run's ratio deviation ends at, its largest: the first variant's is the highest."""
    return 0.5 / (1 + list(plan.variants).index(cell.variant)) + 0.01 * cell.seed


def write_run(
    sweep: Sweep,
    cell: Cell,
    state: str = "finished",
    reason: str | None = None,
    returns: Callable[[float], float] | None = None,
    deviations: Callable[[float], float] | None = None,
    episodes: int = EPISODES,
    departures: tuple[str, ...] = (),
    versions: dict[str, str] = VERSIONS,
    settings: dict[str, object] | None = None,
) -> None:
    """The files of one run; returns and deviations are functions of the share of the run that is over."""
    run = sweep.run(cell)
    run.path.mkdir(parents=True, exist_ok=True)
    returns = returns or (lambda share: level(sweep.plan, cell) * share)
    deviations = deviations or (lambda share: deviation(sweep.plan, cell) * share)
    write_json(run.config, config_of(sweep.plan, cell, settings or {}) | {"versions": versions})
    made = ITERATIONS if state == "finished" else ITERATIONS // 2
    for iteration in range(1, made + 1):
        _write_iteration(run, iteration, returns(iteration / ITERATIONS), deviations(iteration / ITERATIONS), episodes)
    status = {"state": state, "reason": reason, "iteration": made, "env_steps": made * ENVS * HORIZON}
    run.write_status(status | {"checkpoint": made, "exact": not departures, "departures": list(departures)})


def config_of(plan: Plan, cell: Cell, settings: dict[str, object]) -> dict[str, object]:
    own = {name: value for name, value in plan.variants[cell.variant].items() if name != "label"}
    place = {"env": cell.task, "seed": cell.seed, "steps": plan.steps}
    resolved = {"total_steps": STEPS, "iterations": ITERATIONS, "objective_settings": {"epsilon": 0.2}}
    resolved |= {"backend": "gymnasium", "update": "eager", "threads": 1}
    return {
        "settings": SETTINGS | dict(plan.settings) | own | place | settings,
        "resolved": resolved,
        "machine": MACHINE,
    }


def _write_iteration(run, iteration: int, value: float, largest: float, episodes: int) -> None:
    steps = iteration * ENVS * HORIZON
    row = {"iteration": iteration, "env_steps": steps, "wall_time": 0.5 * iteration, "ratio_deviation_max": largest}
    append_row(run.metrics, row)
    with run.episodes.open("a") as file:
        for number in range(episodes):
            ended = steps - (episodes - 1 - number) * (ENVS * HORIZON // max(episodes, 1))
            file.write(json.dumps({"env": 0, "return": value, "length": 20, "env_steps": ended}) + "\n")


def scores_by_hand(results: Results, variant: str, seeds: str = "pooled") -> dict[str, np.ndarray]:
    """Each run's score on the tasks that have a range, straight from the definition."""
    lowest, highest = (np.mean, np.mean) if seeds == "per-seed" else (np.min, np.max)
    scores = {}
    for task, returns in results.scores(variant).items():
        runs = [run.history.iteration_means for run in results.finished_runs(task, results.plan.baseline)]
        low, high = lowest([min(run) for run in runs]), highest([max(run) for run in runs])
        if high > low:
            scores[task] = (returns - low) / (high - low)
    return scores
