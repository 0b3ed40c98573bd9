"""Running what is left of a plan."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from spo.errors import CorruptRunError, SpoError
from spo.experiments.console import Display, print_missing, print_plan, print_results
from spo.experiments.executors import Executor, execute
from spo.experiments.executors.local import run_here
from spo.experiments.history import was_packed
from spo.experiments.plan import Cell, Plan, check_length
from spo.experiments.results import Results, curves_csv
from spo.experiments.run_time import sort_longest_first
from spo.experiments.sweep import Sweep
from spo.runtime import signals
from spo.runtime.files import replace_file, translate_os_errors
from spo.runtime.formatting import fold

CHANGE_NO_RESULT = {"out", "quiet", "config", "threads", "watch_ratios"}
"""Settings in which a run may differ from its plan: what is kept for `spo watch` changes no bit of a policy or row."""


def bench(
    plan: Plan,
    out: Path,
    jobs: int | None = None,
    executor: str = "local",
    ray_address: str | None = None,
    retry_failed: bool = False,
    dry_run: bool = False,
) -> None:
    """Run what is left of a plan, whatever else the directory was asked for, and print its table."""
    slots = (os.cpu_count() or 1) if jobs is None else jobs
    if slots < 1:
        raise SpoError(f"--jobs {jobs} is not accepted: it must be a whole number of at least 1")
    for cell in plan.cells():
        if cell.seed == 1:
            check_length(plan.config(cell))  # a wrong setting is told before anything is started
    sweep = Sweep.foresee(out, plan) if dry_run else Sweep.begin(out, plan)
    check_settings(sweep)
    cells = find_remaining(sweep, retry_failed)
    if dry_run:
        return print_plan(sweep, cells, slots)
    with signals.install_handlers():
        chosen = _executor(executor, sweep, slots, ray_address)
        run_cells(sweep, cells, chosen)
    kept = write_tables(Results(Sweep.open(out)), out)
    results = Results(sweep)
    print_results(results)
    kept += draw_picture(results, out)
    print(fold(f"{', '.join(kept)} and runs/ are in {out}; spo report {out} makes a page of them", sys.stdout))
    print_missing(results)


def write_tables(results: Results, out: Path) -> list[str]:
    """Write the runs and their curves as data, and name the files."""
    tables = {"results.csv": results.csv(), "curves.csv": curves_csv(results)}
    for name, text in tables.items():
        with translate_os_errors(str(out / name)):
            replace_file(out / name, text.encode("utf-8", "backslashreplace"), durable=False)
    return list(tables)


def draw_picture(results: Results, out: Path) -> list[str]:
    """Draw the curves beside the runs, and name the file; without matplotlib or a finished run there is none."""
    if not find_spec("matplotlib") or not any(run.state == "finished" for run in results.runs.values()):
        return []
    from spo.experiments.figures.learning_curves import draw_sweep
    from spo.experiments.figures.style import save

    return [path.name for path in save(draw_sweep(results), "curves", out, formats=("png",))]


def find_remaining(sweep: Sweep, retry_failed: bool) -> list[Cell]:
    """List the cells that are neither finished nor, unless they are to be tried again, failed."""
    results = Results(sweep)
    for run in results.runs.values():
        if run.state == "damaged" and was_packed(run.directory):
            raise SpoError(f"{run.directory.path} was packed and is damaged: {run.reason}; delete it to run it again")
    done = ("finished",) if retry_failed else ("finished", "failed")
    cells = [cell for cell, run in results.runs.items() if run.state not in done]
    return sort_longest_first(sweep.plan, cells, results)


def check_settings(sweep: Sweep) -> None:
    """Refuse a directory with a run that is not the one that the plan asks for."""
    for cell in sweep.plan.cells():
        run = sweep.run(cell)
        if run.config.exists():
            _check_run(run.path, run.read_config().get("settings"), vars(sweep.plan.config(cell)))


def _check_run(path: Path, found: object, planned: dict) -> None:
    if not isinstance(found, dict):
        raise CorruptRunError(f"{path / 'config.json'} has no table 'settings'; delete {path} to run it again")
    for name in set(found) & set(planned) - CHANGE_NO_RESULT:
        wanted = list(planned[name]) if isinstance(planned[name], tuple) else planned[name]
        if found[name] != wanted:
            raise SpoError(f"{path} was made with {name} {found[name]}, the plan says {wanted}; name another directory")


def _executor(name: str, sweep: Sweep, slots: int, ray_address: str | None) -> Executor:
    if name == "local":
        return run_here(sweep, slots)
    from spo.experiments.executors.ray import run_there

    return run_there(sweep, slots, ray_address)


def run_cells(sweep: Sweep, cells: list[Cell], executor: Executor) -> None:
    with Display(sweep, cells, executor.slots) as display:
        try:
            execute(cells, executor, display.update)
        except KeyboardInterrupt:
            print(f"stopped; what ran has saved, and the same command goes on in {sweep.path}", file=sys.stderr)
            raise
