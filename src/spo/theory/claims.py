"""Every claim of the paper, over random instances."""

import numpy as np

from spo.theory import improvement, regions
from spo.theory.alignment import Slopes, Values, aligned, family_aligned, misplaced, not_aligned
from spo.theory.findings import Finding


def all_findings(
    mdps: int, states: int, actions: int, seed: int, objectives: dict[str, Values], power_slope: Slopes
) -> list[Finding]:
    """In the paper's order; `objectives`: "spo", "ppo-clip", "simple", "drpo"; `power_slope`: that of "spo-power"."""
    random = np.random.default_rng(seed)
    cases = [improvement.random_case(random, states, actions, random.uniform(0.1, 0.99)) for _ in range(mdps)]
    return [
        improvement.performance_difference(cases),
        improvement.lower_bound("Thm 3.2", "TV", cases),
        improvement.tightness("TV", cases),
        improvement.lower_bound("eq. 4", "KL", cases),
        improvement.tightness("KL", cases),
        regions.unbounded_kl_of_actions(cases, random),
        regions.unbounded_kl_of_gaussians(cases, random),
        regions.unbounded_kl_within_tv(cases),
        regions.bounded_kl(cases, random),
        improvement.tv_as_ratio_deviation(cases),
        improvement.lower_bound("eq. 10", "ratio", cases),
        improvement.tightness("ratio", cases),
        regions.inclusion(cases, random),
        regions.strictness(cases, random),
        improvement.best_bounds(cases),
        aligned("Thm 5.2", "f_spo", objectives["spo"], cases, random),
        aligned("§5.1", "f_simple", objectives["simple"], cases, random),
        not_aligned("§5.1", "f_ppo", objectives["ppo-clip"], cases, random),
        family_aligned("ours", "f_power", power_slope, cases, random),
        misplaced("ours", "f_drpo with δ = ε and π(a|s) = ½", objectives["drpo"], cases, random),
    ]
