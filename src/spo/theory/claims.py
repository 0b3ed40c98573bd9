"""Every claim of the paper, over random instances: where it is made, what is measured, and the limit of that."""

import numpy as np

from spo.theory import regions
from spo.theory.alignment import POWERS, Misalignment, Slopes, Values, alignments, family_faults
from spo.theory.bounds import kl
from spo.theory.findings import CLOSE, ROUNDING, Finding, at_least, at_most
from spo.theory.improvement import Case, deviation_error, difference_error, lead, lower_bound, random_case, tightness

GAUSSIANS = f"one ratio within 1 ± ε leaves KL unbounded (Gaussians, 1 to {regions.MOST_DIMENSIONS} dimensions)"
LEFT, EXCESS = "least share of δ_TV left on the edge of Ω_KL", "least excess over δ_KL on the edge of Ω_TV"


def all_findings(
    mdps: int, states: int, actions: int, seed: int, objectives: dict[str, Values], power_slope: Slopes
) -> list[Finding]:
    """In the paper's order; `objectives`: "spo", "ppo-clip", "simple", "drpo"; `power_slope`: that of "spo-power"."""
    random = np.random.default_rng(seed)
    cases = [random_case(random, states, actions, random.uniform(0.1, 0.99)) for _ in range(mdps)]
    return [
        *check_bounds(cases),
        *check_divergences(cases, random),
        *check_regions(cases, random),
        *check_alignment(cases, random, objectives, power_slope),
    ]


def check_bounds(cases: list[Case]) -> list[Finding]:
    """Section 3: the difference of two policies' performance, and its lower bounds."""
    difference, errors = "η(π̃) − η(π) = E_{s~ρ_π̃, a~π̃}[A_π]/(1 − γ)", map(difference_error, cases)
    return [
        at_most(ROUNDING, "Thm 3.1", difference, "largest error", errors),
        lower_bound("Thm 3.2", "TV", cases),
        tightness("TV", cases),
        lower_bound("eq. 4", "KL", cases),
        tightness("KL", cases),
    ]


def check_divergences(cases: list[Case], random: np.random.Generator) -> list[Finding]:
    """What a bound on ratios or on TV leaves of the KL."""
    rows = [(row, case.epsilon) for case in cases for row in case.old.policy]
    policies = [(case.old.policy, case.epsilon) for case in cases]
    actions = (regions.action_growth_error(*row, random) for row in rows)
    gaussians = (regions.gaussian_growth_error(*regions.random_squeeze(epsilon, random)) for _, epsilon in policies)
    without = (kl(policy, regions.drop_rarest(policy)) for policy, _ in policies)
    shares = (regions.kl_share_left(*policy, random) for policy in policies)
    growth, words = "largest error of its growth", "one ratio within 1 ± ε leaves KL unbounded (actions)"
    return [
        at_most(ROUNDING, "Thm 4.1", words, growth, actions),
        at_most(CLOSE, "Thm 4.1", GAUSSIANS, growth, gaussians),
        at_least(np.inf, "ours", "TV ≤ δ leaves KL unbounded if some π(b|s) ≤ δ", "least KL without action b", without),
        at_least(
            -ROUNDING, "ours", "all ratios within 1 ± ε: KL ≤ −½·log(1 − ε²)", "least share left to the limit", shares
        ),
    ]


def check_regions(cases: list[Case], random: np.random.Generator) -> list[Finding]:
    """Ratios as an estimate of TV, Ω_KL ⊂ Ω_TV, and in which of the two the bound can be raised higher."""
    deviation, errors = "E_{s~ρ_π}[TV] = ½·E_{s~ρ_π, a~π}|r − 1|", map(deviation_error, cases)
    inside = (regions.inclusion_margin(case.old.policy, case.delta_kl, random) for case in cases)
    outside = (regions.strictness_margin(case.old.policy, case.delta_kl, random) for case in cases)
    highest = "highest TV bound in Ω_TV ≥ highest KL bound in Ω_KL"
    return [
        at_most(ROUNDING, "eq. 9", deviation, "largest error", errors),
        lower_bound("eq. 10", "ratio", cases),
        tightness("ratio", cases),
        at_least(-ROUNDING, "Prop. 4.2", "Ω_KL ⊂ Ω_TV for δ_TV = √(δ_KL/2)", LEFT, inside),
        at_least(ROUNDING, "Prop. 4.2", "Ω_KL ≠ Ω_TV", EXCESS, outside),
        at_least(-ROUNDING, "Thm 4.3", highest, "least lead", map(lead, cases)),
    ]


def check_alignment(
    cases: list[Case], random: np.random.Generator, objectives: dict[str, Values], power_slope: Slopes
) -> list[Finding]:
    """Section 5: which objectives are ε-aligned, and why others are not."""

    def found(name: str) -> list[Misalignment]:
        return alignments(objectives[name], cases, random)

    fault, powers = "largest fault", f"for powers p from {POWERS[0]:g} to {POWERS[1]:g}"
    drpo = "f_drpo with δ = ε and π(a|s) = ½ is not ε-aligned: it is highest elsewhere"
    jumps, shortfalls = "least jump in |A|", "least shortfall at 1 ± ε in |A|"
    ppo, power = "f_ppo is not ε-aligned: its slope jumps", f"f_power is ε-aligned, {powers}"
    return [
        at_most(ROUNDING, "Thm 5.2", "f_spo is ε-aligned", fault, [one.largest for one in found("spo")]),
        at_most(ROUNDING, "§5.1", "f_simple is ε-aligned", fault, [one.largest for one in found("simple")]),
        at_least(1 - ROUNDING, "§5.1", ppo, jumps, [one.jump for one in found("ppo-clip")]),
        at_most(ROUNDING, "ours", power, fault, family_faults(power_slope, cases, random)),
        at_least(CLOSE, "ours", drpo, shortfalls, [one.shortfall for one in found("drpo")]),
    ]
