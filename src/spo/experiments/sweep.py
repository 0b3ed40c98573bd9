"""A directory of runs that follow one plan."""

import os
from collections.abc import Mapping
from pathlib import Path

from spo.errors import SpoError
from spo.experiments.plan import Cell, Plan, merge, path_component, plan_from
from spo.runs.directory import RunDirectory
from spo.runtime.files import canonical, read_json, replace_file, writing


class Sweep:
    """A directory of runs that follow one plan."""

    def __init__(self, path: Path, plan: Plan):
        self.path, self.plan = path, plan

    @classmethod
    def begin(cls, path: Path, plan: Plan) -> "Sweep":
        """The part of a directory that the plan names; the directory, new or not, remembers all that was ever named."""
        file, remembered = path / "plan.json", plan
        if os.path.isfile(file):
            remembered = merge(cls.open(path).plan, plan, f"--out {path}")
        elif os.path.isdir(path) and any(path.iterdir()):
            raise SpoError(f"--out {path} is not empty and holds no plan.json; name a new directory")
        with writing(f"--out {path}"):
            path.mkdir(parents=True, exist_ok=True)
            replace_file(file, canonical(remembered.as_json()))
        return cls(path, plan)

    @classmethod
    def open(cls, path: Path) -> "Sweep":
        if not os.path.isfile(path / "plan.json"):
            raise SpoError(f"{path} holds no sweep: there is no plan.json in it (spo bench and spo compare make one)")
        try:
            values = read_json(path / "plan.json")
            plan = plan_from(values, values["suite"])
            _check_types(plan)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SpoError(f"{path / 'plan.json'} is not a plan: {error}")
        return cls(path, plan)

    def run(self, cell: Cell) -> RunDirectory:
        parts = path_component(cell.task), path_component(cell.variant), str(cell.seed)
        return RunDirectory(self.path.joinpath("runs", *parts))


def _check_types(plan: Plan) -> None:
    """A plan that is read may hold anything; what uses it should not have to ask."""
    numbers = [number for row in plan.paper.values() for first, second in row.values() for number in (first, second)]
    texts = [plan.suite, plan.title, plan.source, *plan.tasks, *plan.variants, *plan.reductions]
    kinds = [
        ("text", str, texts),
        ("a whole number", int, [plan.steps, plan.seeds]),
        ("a number", int | float, [plan.final_fraction, *numbers]),
        ("a table", Mapping, [plan.settings, *plan.variants.values()]),
    ]
    for words, kind, values in kinds:
        for value in values:
            if not isinstance(value, kind):
                raise TypeError(f"{value!r} stands where {words} is needed")
    if plan.baseline not in (None, *plan.variants):
        raise ValueError(f"baseline {plan.baseline!r} is none of its variants")
