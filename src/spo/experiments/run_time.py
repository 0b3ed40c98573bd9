"""How long runs take: as long as those like them took here, and until there are any, what was measured once."""

from spo.experiments.plan import Cell, Plan
from spo.experiments.results import Results

SECONDS_PER_MILLION = {
    "Ant": 320,
    "HalfCheetah": 250,
    "Hopper": 200,
    "HumanoidStandup": 500,
    "Humanoid": 450,
    "Walker2d": 230,
    "CartPole": 120,
    "Pendulum": 120,
}
"""Of one single-threaded run with two layers of 64, on one core of an ordinary server."""
UNKNOWN, DEEP, CNN, RESNET = 300, 300, 2700, 40_000
"""The same for other tasks, what a deep policy adds, and games with a CNN and with ResNet-18."""


def seconds_of(plan: Plan, cell: Cell, results: Results | None = None) -> float:
    """How long the run will take, in seconds."""
    config = plan.config(cell)
    finished = results.finished_runs(cell.task, cell.variant) if results else []
    if finished:
        return config.total_steps / finished[0].summary["steps_per_second"]
    return config.total_steps / 1e6 * _guess(config)


def _guess(config) -> float:
    if config.encoder == "resnet18":
        return RESNET
    if config.preset.startswith("atari"):
        return CNN
    known = next((seconds for name, seconds in SECONDS_PER_MILLION.items() if config.env.startswith(name)), UNKNOWN)
    return known + (DEEP if len(config.hidden) > 3 else 0)


def sort_longest_first(plan: Plan, cells: list[Cell], results: Results) -> list[Cell]:
    """Sort by the longest processing time first, to shorten the makespan; equals stay in the plan's order."""
    return sorted(cells, key=lambda cell: -seconds_of(plan, cell, results))


def seconds_of_all(plan: Plan, cells: list[Cell], results: Results, slots: int) -> float:
    """Seconds until all of the runs are done, on so many cores."""
    ends = [0.0] * max(1, slots)
    for cell in sort_longest_first(plan, cells, results):
        ends[ends.index(min(ends))] += seconds_of(plan, cell, results)
    return max(ends)
