"""A directory of runs that follow one plan."""

import os
from pathlib import Path

from spo.errors import CorruptRunError, SpoError
from spo.experiments.plan import Cell, Plan, SingleRun, check_plan, make_title, merge, path_component, plan_from
from spo.runs.directory import RunDirectory
from spo.runtime.files import (
    canonical_json,
    check_writable,
    is_empty,
    lock_directory,
    read_json,
    replace_file,
    translate_os_errors,
)


class Sweep:
    """A directory of runs that follow one plan."""

    def __init__(self, path: Path, plan: Plan):
        self.path, self.plan = path, plan

    @classmethod
    def begin(cls, path: Path, plan: Plan) -> "Sweep":
        """The part of a directory that the plan names; the directory, new or not, remembers all that was ever named."""
        with translate_os_errors(f"--out {path}"), lock_directory(path):
            replace_file(path / "plan.json", canonical_json(_unite(path, plan).as_json()))
        return cls(path, plan)

    @classmethod
    def foresee(cls, path: Path, plan: Plan) -> "Sweep":
        """The same part of a directory, refused as `begin` would refuse it; nothing is written."""
        with translate_os_errors(f"--out {path}"):
            check_writable(path)
            if path.exists():
                _unite(path, plan)
        return cls(path, plan)

    @classmethod
    def open(cls, path: Path) -> "Sweep":
        if not os.path.isfile(path / "plan.json"):
            raise SpoError(f"{path} holds no sweep: there is no plan.json in it (spo bench and spo compare make one)")
        try:
            values = read_json(path / "plan.json")
            plan = plan_from(values, values["suite"])
            check_plan(plan)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SpoError(f"{path / 'plan.json'} is not a plan: {error}")
        return cls(path, plan)

    def run(self, cell: Cell) -> RunDirectory:
        parts = path_component(cell.task), path_component(cell.variant), str(cell.seed)
        return RunDirectory(self.path.joinpath("runs", *parts))


def _unite(path: Path, plan: Plan) -> Plan:
    """A plan with all that a directory, which may be new, was asked for before."""
    return merge(Sweep.open(path).plan, plan, f"--out {path}") if _is_sweep(path) else plan


def _is_sweep(path: Path) -> bool:
    """Whether a directory holds a sweep, where a new one may begin otherwise."""
    if os.path.isfile(path / "plan.json"):
        return True
    if not is_empty(path):
        raise SpoError(f"--out {path} is not empty and holds no plan.json; name a new directory")
    return False


class LoneRun(Sweep):
    """A run directory that is read like a sweep of one run."""

    def run(self, cell: Cell) -> RunDirectory:
        """The directory itself."""
        return RunDirectory(self.path)


def open_sweep_or_run(path: Path) -> Sweep:
    """A sweep, or a single run as a sweep of one."""
    if os.path.isfile(path / "plan.json") or not os.path.isfile(path / "config.json"):
        return Sweep.open(path)
    try:
        settings = RunDirectory.open(path).read_config()["settings"]
        env, objective, preset, steps, seed = (
            settings[name] for name in ("env", "objective", "preset", "steps", "seed")
        )
        variants = {objective: {"label": objective, "objective": objective}}
        words = {"suite": "run", "title": make_title([env], [objective]), "source": "one run"}
        plan = SingleRun(**words, preset=preset, steps=steps, seeds=1, tasks=(env,), variants=variants, seed=seed)
        check_plan(plan)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptRunError(f"{path / 'config.json'} is not a run's: {type(error).__name__}: {error}")
    return LoneRun(path, plan)
