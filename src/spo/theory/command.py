"""The theory's claims as a table and a figure, with the project's own objectives."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from spo.errors import SpoError
from spo.experiments.figures.style import save
from spo.objectives import OBJECTIVES
from spo.theory.alignment import Values
from spo.theory.claims import all_findings
from spo.theory.examples import figure_data
from spo.theory.figure import draw_theory
from spo.theory.findings import Finding

RANGES = {"mdps": (1, 10_000), "states": (1, 50), "actions": (3, 50), "seed": (0, 2**31 - 1)}
"""Three actions at least, because Theorem 4.1 is about them."""


def report(mdps: int, states: int, actions: int, seed: int, out: Path) -> bool:
    """Check every claim, print the table, write the figure; return whether all claims hold."""
    check_ranges(mdps=mdps, states=states, actions=actions, seed=seed)
    objectives = objective_values()
    findings = all_findings(mdps, states, actions, seed, objectives, power_slope)
    title = f"{mdps} random MDPs, {states} states, {actions} actions, solved exactly"
    Console().print(findings_table(findings, title))
    for path in save(draw_theory(figure_data(states, actions, seed, objectives)), "theory", out):
        print(path)
    return all(finding.holds for finding in findings)


def check_ranges(**given: int) -> None:
    for name, value in given.items():
        low, high = RANGES[name]
        if not low <= value <= high:
            raise SpoError(f"--{name} {value} is not accepted: it must be a whole number from {low} to {high}")


def objective_values() -> dict[str, Values]:
    """The objectives of section 5.1 and DRPO, as the trainer uses them, over arrays."""
    of_the_paper = {name: _over_arrays(OBJECTIVES[name].function) for name in ("spo", "simple", "ppo-clip")}
    return of_the_paper | {"drpo": _over_arrays(_drpo_of_an_even_choice)}


def _drpo_of_an_even_choice(ratio: torch.Tensor, advantage: torch.Tensor, *, epsilon: float) -> torch.Tensor:
    """DRPO with δ = ε for an action of probability ½."""
    return OBJECTIVES["drpo"].function(ratio, advantage, torch.full_like(ratio, 0.5).log(), delta=epsilon)


def _over_arrays(function: Callable[..., torch.Tensor]) -> Values:
    def values(ratio: np.ndarray, advantage: float, epsilon: float) -> np.ndarray:
        ratio = torch.from_numpy(ratio)
        return function(ratio, torch.full_like(ratio, advantage), epsilon=epsilon).numpy()

    return values


def power_slope(ratio: np.ndarray, advantage: float, epsilon: float, power: float) -> np.ndarray:
    """df/dr of `spo-power` as training has it, in double precision."""
    variable = torch.from_numpy(ratio).requires_grad_()
    f = OBJECTIVES["spo-power"].function(variable, torch.full_like(variable, advantage), epsilon=epsilon, power=power)
    return torch.autograd.grad(f.sum(), variable)[0].numpy()


def findings_table(findings: list[Finding], title: str) -> Table:
    table = Table("paper", "claim", "instances", "worst of them", "holds", title=title)
    for finding in findings:
        worst = f"{finding.measure}: {finding.worst:.2g}"
        table.add_row(finding.source, finding.claim, f"{finding.instances:,}", worst, "yes" if finding.holds else "NO")
    return table
