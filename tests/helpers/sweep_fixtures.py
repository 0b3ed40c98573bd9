"""Sweeps made by formula: every number in them follows from task, variant and seed, and nothing was trained."""

import json
import math
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from spo.experiments.plan import Cell, Plan, read_suite, restrict
from spo.experiments.results import Results
from spo.experiments.sweep import Sweep
from sweeps import VERSIONS, config_of

ITERATIONS, ENVS = 60, 8


def write_sweep(
    path: Path, suite: str, states: Mapping[Cell, str] | None = None, silent: Iterable[Cell] = (), **reduced
) -> Results:
    """A sweep of the suite, reduced as told. Runs are finished unless `states` says otherwise (waiting: there is none),
    and end episodes unless they are `silent`."""
    sweep = Sweep.begin(path, restrict(read_suite(suite), **reduced) if reduced else read_suite(suite))
    for cell in sweep.plan.cells():
        state = (states or {}).get(cell, "finished")
        if state != "waiting":
            write_run(sweep, cell, state, cell not in silent)
    return Results(sweep)


def write_run(sweep: Sweep, cell: Cell, state: str = "finished", has_episodes: bool = True) -> None:
    run, plan = sweep.run(cell), sweep.plan
    run.path.mkdir(parents=True, exist_ok=True)
    horizon = plan.steps // (ITERATIONS * ENVS)
    batch = horizon * ENVS
    epsilon = plan.variants[cell.variant].get("epsilon", 0.2)
    config = config_of(plan, cell, {"envs": ENVS, "horizon": horizon}) | {"versions": VERSIONS}
    config["resolved"] |= {"total_steps": batch * ITERATIONS, "iterations": ITERATIONS}
    adapts = {"epsilon_gain": 0.2} if is_adaptive(plan, cell) else {}
    config["resolved"] |= {"objective_settings": {"epsilon": epsilon} | adapts}
    run.config.write_text(json.dumps(config))
    run.write_status({"state": state, "reason": "the environment gave NaN" if state == "failed" else None})
    rows = range(1, (ITERATIONS if state == "finished" else ITERATIONS // 2) + 1)
    _write_lines(run.metrics, [metrics_row(plan, cell, row, batch) for row in rows])
    numbers = (1, 2) if has_episodes else ()
    _write_lines(run.episodes, [episode(plan, cell, row, batch, number) for row in rows for number in numbers])


def metrics_row(plan: Plan, cell: Cell, iteration: int, batch: int) -> dict:
    deviation = {"ratio_deviation": 0.5 * ratio_deviation(plan, cell, iteration)}
    deviation["ratio_deviation_max"] = ratio_deviation(plan, cell, iteration)
    width = {"epsilon": 0.2 + 0.5 * iteration / ITERATIONS} if is_adaptive(plan, cell) else {}
    return {"iteration": iteration, "env_steps": iteration * batch, "wall_time": 1.5 * iteration, **deviation, **width}


def episode(plan: Plan, cell: Cell, iteration: int, batch: int, number: int) -> dict:
    """Two in each iteration, one of them at its last step."""
    step = (iteration - 1) * batch + number * batch // 2
    value = height(plan, cell) * (1 - math.exp(-4 * iteration / ITERATIONS)) + wobble(cell, 2 * iteration + number)
    return {"env": 0, "return": value, "length": 100, "env_steps": step}


def height(plan: Plan, cell: Cell) -> float:
    """What a run ends at: by task, in most of them more for SPO than for PPO, and with a large network more so."""
    base = 100 + zlib.crc32(cell.task.encode()) % 4000
    gain = (0.25 if is_spo(plan, cell) else -0.3) * (1 + is_large(plan, cell)) * (1 if base % 4 else -0.6)
    other = zlib.crc32(cell.variant.encode()) % 97 / 240
    return base * (1 + gain + other + 0.1 * math.sin(7 * cell.seed + base))


def ratio_deviation(plan: Plan, cell: Cell, iteration: int) -> float:
    share, shake = iteration / ITERATIONS, 1 + 0.2 * math.sin(iteration + cell.seed)
    if is_spo(plan, cell):
        return 0.12 * (1 + 0.5 * is_large(plan, cell)) * shake * (1 - math.exp(-9 * share))
    return 0.15 * shake * math.exp((7 + cell.seed % 3) * share * is_large(plan, cell))


def is_spo(plan: Plan, cell: Cell) -> bool:
    return plan.variants[cell.variant]["objective"].startswith("spo")


def is_adaptive(plan: Plan, cell: Cell) -> bool:
    return plan.variants[cell.variant]["objective"] == "spo-adaptive"


def is_large(plan: Plan, cell: Cell) -> bool:
    return "7" in cell.variant or "resnet" in cell.variant


def wobble(cell: Cell, number: int) -> float:
    return 40 * math.sin(number * (1 + cell.seed)) + 25 * math.cos(3.3 * number)


def _write_lines(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
