"""The policy objectives, each a pure per-sample function to maximise.

Positional parameters are data, one value per sample; keyword-only parameters are settings. The signature is the
contract: the trainer computes only what a function asks for. Notation: `ratio` r = π_new(a|s) / π_old(a|s),
`advantage` A after the trainer's normalisation, `kl` = KL(old‖new) and `kl_reverse` = KL(new‖old) of the sample's
state, `epsilon` ε the width of the ratio bound, `next_` what belongs to the sample that follows in the same episode,
`old_log_prob` = log π_old(a|s). Objectives of ratio and advantage alone take arrays of PyTorch, JAX and NumPy alike.
"""

from __future__ import annotations  # so that Tensor is a word: torch takes seconds, and reading settings needs none

import importlib
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

INPUTS = tuple("ratio log_ratio advantage kl kl_reverse next_ratio next_advantage has_next old_log_prob".split())
"""What an objective may ask for."""
SMALLEST_DEVIATION = 1e-6
"""What a mean |r − 1| counts as at least, where a width is adapted: of a policy that did not move."""
LARGEST_LOG_RATIO = 15.0
"""Where the value of a log-ratio is capped before it is exponentiated."""


def clamp_log_ratio(log_ratio: Tensor) -> Tensor:
    """The log-ratio with its value capped and its gradient kept; below the cap it keeps its bits."""
    capped = LARGEST_LOG_RATIO + (log_ratio - log_ratio.detach())
    return capped.where(log_ratio > LARGEST_LOG_RATIO, log_ratio)


def ratio_of(log_ratio: Tensor) -> Tensor:
    """exp(log r) with its value and slope capped at e¹⁵: no overflow, and a way back.

    A guard on the ratio itself would come too late: the gradient of an exponential that has overflowed is 0·∞.
    """
    return clamp_log_ratio(log_ratio).exp()


def namespace(array: Any) -> ModuleType:
    """The functions of an array's library: torch, or what the Python array API standard says."""
    import torch

    return torch if isinstance(array, torch.Tensor) else array.__array_namespace__()


def spo(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """r·A − |A|·(r − 1)² / 2ε: concave in r, highest at r = 1 + sign(A)·ε (eq. 16 of the SPO paper)."""
    return ratio * advantage - abs(advantage) * (ratio - 1) ** 2 / (2 * epsilon)


def ppo_clip(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """min(r·A, clip(r, 1 ± ε)·A): flat, so without gradient, beyond the bound."""
    xp = namespace(ratio)
    return xp.minimum(ratio * advantage, xp.clip(ratio, 1 - epsilon, 1 + epsilon) * advantage)


def simple(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """−(r − 1 − sign(A)·ε)²: the same maximum as SPO, blind to the size of A."""
    return -((ratio - 1 - namespace(advantage).sign(advantage) * epsilon) ** 2)


def ppo_penalty(ratio: Tensor, advantage: Tensor, kl: Tensor, *, beta: float = 1.0) -> Tensor:
    """r·A − β·KL(old‖new), with β adapted after every iteration towards a KL target."""
    return ratio * advantage - beta * kl


SMALLEST_BETA, LARGEST_BETA = 2.0**-10, 2.0**10
"""Where adaptation ends. Standardised advantages gain about √(2·KL) at most, so a weight β lets the KL grow to about
1/(2β²): these two suit targets from 5e-7 to 5e5, and ten iterations lead back from either to 1. Without a floor, a
learning rate that falls to 0 takes the KL along, and β is halved until a 32-bit float has only 0 for it."""


def adapt_beta(beta: float, kl: float, *, kl_target: float = 0.01) -> float:
    """β/2 if the mean KL came out below target/1.5, β·2 if above 1.5·target, else β; within [2⁻¹⁰, 2¹⁰]."""
    adapted = beta / 2 if kl < kl_target / 1.5 else beta * 2 if kl > kl_target * 1.5 else beta
    return min(max(adapted, SMALLEST_BETA), LARGEST_BETA)


def spu(
    ratio: Tensor, advantage: Tensor, kl_reverse: Tensor, *, temperature: float = 1.2, state_delta: float = 0.05
) -> Tensor:
    """r·A/λ − KL(new‖old) where that KL is below the state's bound, else 0; the choice has no gradient."""
    return (ratio * advantage / temperature - kl_reverse).where(kl_reverse < state_delta, 0.0)


def exceeds_kl_reverse(kl_reverse: float, *, delta: float = 0.05 / 1.3) -> bool:
    """Ends an iteration's epochs once the mean KL(new‖old) over the batch exceeds δ."""
    return kl_reverse > delta


def ppo_rb(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2, alpha: float = 0.3) -> Tensor:
    """min(r·A, ((1 + α)·clip(r, 1 ± ε) − α·r)·A): PPO-Clip whose flat part slopes back."""
    xp = namespace(ratio)
    rollback = (1 + alpha) * xp.clip(ratio, 1 - epsilon, 1 + epsilon) - alpha * ratio
    return xp.minimum(ratio * advantage, rollback * advantage)


def tr_ppo(ratio: Tensor, advantage: Tensor, kl: Tensor, *, delta: float = 0.025) -> Tensor:
    """r·A, without gradient where KL(old‖new) ≥ δ and the sample has already improved (r·A > A)."""
    surrogate = ratio * advantage
    return surrogate.detach().where((kl >= delta) & (surrogate > advantage), surrogate)


def tr_ppo_rb(ratio: Tensor, advantage: Tensor, kl: Tensor, *, delta: float = 0.03, alpha: float = 0.05) -> Tensor:
    """r·A, with its slope turned to −α·A where KL(old‖new) ≥ δ and the sample has already improved."""
    surrogate = ratio * advantage
    rollback = (1 + alpha) * surrogate.detach() - alpha * surrogate
    return rollback.where((kl >= delta) & (surrogate > advantage), surrogate)


def rpo_reflective(
    ratio: Tensor,
    advantage: Tensor,
    next_ratio: Tensor,
    next_advantage: Tensor,
    has_next: Tensor,
    *,
    epsilon: float = 0.2,
    epsilon_next: float = 0.1,
    reflection: float = 0.3,
) -> Tensor:
    """PPO-Clip + β·min(r·r′·A′, clip(r, 1 ± ε)·clip(r′, 1 ± ε₁)·A′) with the sample that follows (Reflective)."""
    clipped = ratio.clamp(1 - epsilon, 1 + epsilon) * next_ratio.clamp(1 - epsilon_next, 1 + epsilon_next)
    reflected = (ratio * next_ratio * next_advantage).minimum(clipped * next_advantage)
    return ppo_clip(ratio, advantage, epsilon=epsilon) + reflection * has_next * reflected


def surrogate(ratio: Tensor, advantage: Tensor) -> Tensor:
    """r·A, and nothing that bounds it."""
    return ratio * advantage


def ppo_dual_clip(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2, dual_clip: float = 3.0) -> Tensor:
    """PPO-Clip, and no lower than c·A where A < 0, so that a large ratio cannot dominate."""
    xp = namespace(ratio)
    clipped = ppo_clip(ratio, advantage, epsilon=epsilon)
    return xp.where(advantage < 0, xp.maximum(clipped, dual_clip * advantage), clipped)


def aspo(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2) -> Tensor:
    """PPO-Clip where A > 0, SPO where A ≤ 0: the asymmetric objective of FPO++."""
    clipped, quadratic = ppo_clip(ratio, advantage, epsilon=epsilon), spo(ratio, advantage, epsilon=epsilon)
    return namespace(ratio).where(advantage > 0, clipped, quadratic)


def clip_higher(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2, epsilon_high: float = 0.28) -> Tensor:
    """min(r·A, clip(r, 1 − ε, 1 + ε_high)·A): more room upwards."""
    xp = namespace(ratio)
    return xp.minimum(ratio * advantage, xp.clip(ratio, 1 - epsilon, 1 + epsilon_high) * advantage)


def exceeds_deviation(ratio_deviation: Tensor, *, deviation_limit: float = 0.25) -> Tensor:
    """Ends an iteration's updates at a minibatch whose mean |r − 1| exceeds the limit, without stepping on it."""
    return ratio_deviation > deviation_limit


def adapt_epsilon(
    epsilon: float,
    ratio_deviation: float,
    *,
    deviation_target: float = 0.1,
    epsilon_min: float = 0.02,
    epsilon_max: float = 0.99,
    epsilon_gain: float = 0.2,
) -> float:
    """ε·(target/mean |r − 1|)^gain within [min, max]; a mean that is not finite leaves ε alone."""
    if not math.isfinite(ratio_deviation):
        return epsilon
    factor = (deviation_target / max(ratio_deviation, SMALLEST_DEVIATION)) ** epsilon_gain
    return min(max(epsilon * factor, epsilon_min), epsilon_max)


def spo_power(ratio: Tensor, advantage: Tensor, *, epsilon: float = 0.2, power: float = 8.0) -> Tensor:
    """r·A − |A|·ε·(min(x, 1)^p/p + (max(x, 1)² − 1)/2), x = |r − 1|/ε: SPO with a steeper wall (p = 2 is SPO)."""
    xp = namespace(ratio)
    x = abs(ratio - 1) / epsilon
    one = xp.ones_like(x)
    # At x = 1 each of the two gets half of the gradient, where clamps would both get the whole.
    wall = xp.minimum(x, one) ** power / power + (xp.maximum(x, one) ** 2 - 1) / 2
    return ratio * advantage - abs(advantage) * epsilon * wall


def drpo(ratio: Tensor, advantage: Tensor, old_log_prob: Tensor, *, delta: float = 12.5) -> Tensor:
    """r·A − |A|·π_old(a|s)·(r − 1)² / 2δ: SPO on the change of the action's probability, highest where that is ±δ."""
    return ratio * advantage - advantage.abs() * old_log_prob.exp() * (ratio - 1).square() / (2 * delta)


def truly_ppo(ratio: Tensor, advantage: Tensor, kl: Tensor, *, delta: float = 0.03, alpha: float = 5.0) -> Tensor:
    """r·A, minus α·KL(old‖new) where that KL ≥ δ and the sample has already improved (r·A > A)."""
    surrogate = ratio * advantage
    return (surrogate - alpha * kl).where((kl >= delta) & (surrogate > advantage), surrogate)


def settings_of(function: Callable[..., Any] | None) -> dict[str, float]:
    """The keyword-only parameters of a function, with their defaults."""
    parameters = inspect.signature(function).parameters.values() if function else ()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def inputs_of(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """The positional parameters of a function."""
    parameters = inspect.signature(function).parameters.values() if function else ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


@dataclass(frozen=True)
class Objective:
    """A named objective, and what the trainer does around it.

    `adapt` gives a setting its next value: its first parameter names the setting, the others what it depends on.
    `stop_epochs` and `stop_minibatches` say when an iteration has had enough. Their keyword-only parameters are
    settings of the objective too. `is_quadratic` says that beyond a bound that stays f falls as a parabola in r, for
    either sign of A: every sample is led back, which keeps the KL so low that a rate that follows it climbs to its cap.
    """

    name: str
    function: Callable[..., Tensor]
    source: str = "user"
    adapt: Callable[..., float] | None = None
    stop_epochs: Callable[..., bool] | None = None
    stop_minibatches: Callable[..., Tensor] | None = None
    trust_region: dict[str, float] = field(default_factory=dict)  # settings of TRPO's own improvement rule
    is_quadratic: bool = False
    formula: str = ""
    is_of_the_paper: bool = True
    needs_probabilities: bool = False  # of actions: a density, which has no scale, will not do

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """The per-sample data that the function asks for, in its order."""
        return inputs_of(self.function)

    @cached_property
    def settings(self) -> dict[str, float]:
        """All settings with their defaults."""
        functions = (self.function, self.adapt, self.stop_epochs, self.stop_minibatches)
        return {k: v for function in functions for k, v in settings_of(function).items()} | self.trust_region

    @property
    def adaptive_setting(self) -> str | None:
        """The setting that the trainer adapts."""
        return inputs_of(self.adapt)[0] if self.adapt else None

    @property
    def description(self) -> str:
        return self.formula or (inspect.getdoc(self.function) or "no description").split("\n")[0]


QUADRATIC_KL = 0.05
"""Of ε²: where an objective is quadratic, a rate that follows a larger KL climbs to its cap (docs/objectives.md)."""
PPO_PAPER = "Schulman et al., 2017"
TRULY_PPO = "Wang et al., 2020"

OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("spo", spo, "Xie et al., 2025", is_quadratic=True),
        Objective("ppo-clip", ppo_clip, PPO_PAPER),
        Objective("ppo-penalty", ppo_penalty, PPO_PAPER, adapt=adapt_beta),
        Objective("spu", spu, "Vuong et al., 2019", stop_epochs=exceeds_kl_reverse),
        Objective("ppo-rb", ppo_rb, TRULY_PPO),
        Objective("tr-ppo", tr_ppo, TRULY_PPO),
        Objective("tr-ppo-rb", tr_ppo_rb, TRULY_PPO),
        Objective("rpo-reflective", rpo_reflective, "Gan et al., 2024"),
        Objective(
            "trpo",
            surrogate,
            "Schulman et al., 2015",
            trust_region={"delta": 0.01, "damping": 0.1, "cg_steps": 10, "backtrack": 0.8, "backtrack_steps": 10},
            formula="max mean(r·A) subject to mean KL(old‖new) ≤ δ: one natural-gradient step with line search.",
        ),
        Objective("simple", simple, "Xie et al., 2025, §5.1", is_quadratic=True),
        Objective("ppo-dual-clip", ppo_dual_clip, "Ye et al., 2020", is_of_the_paper=False),
        Objective("aspo", aspo, "Yi et al., 2026 (FPO++)", is_of_the_paper=False),
        Objective("clip-higher", clip_higher, "Yu et al., 2025 (DAPO)", is_of_the_paper=False),
        Objective(
            "espo",
            surrogate,
            "Sun et al., 2022",
            stop_minibatches=exceeds_deviation,
            formula="r·A; an iteration's updates end at the first minibatch whose mean |r − 1| exceeds the limit.",
            is_of_the_paper=False,
        ),
        Objective(
            "spo-adaptive",
            spo,
            "ours",
            adapt=adapt_epsilon,
            formula="SPO; after each iteration ε ← ε·(target/mean |r − 1|)^gain, within its bounds.",
            is_of_the_paper=False,
        ),
        Objective("spo-power", spo_power, "ours", is_quadratic=True, is_of_the_paper=False),
        Objective("drpo", drpo, "Yao et al., 2026", is_of_the_paper=False, needs_probabilities=True),
        Objective("truly-ppo", truly_ppo, TRULY_PPO, is_of_the_paper=False),
    )
}

SETTINGS = {
    "epsilon": ("Width of the ratio bound (spo-adaptive: at the start).", "(0, 1)"),
    "epsilon_high": ("Upper width of the ratio bound (clip-higher).", "(0, ∞)"),
    "epsilon_next": ("Width of the successor's ratio bound (rpo-reflective).", "(0, 1)"),
    "reflection": ("Weight of the successor's term (rpo-reflective).", "[0, ∞)"),
    "alpha": ("Slope of the rollback (ppo-rb, tr-ppo-rb), or weight of the KL in it (truly-ppo).", "[0, ∞)"),
    "beta": ("Weight of the KL penalty at the start (ppo-penalty).", "(0, ∞)"),
    "kl_target": ("Mean KL towards which beta is adapted, or off (ppo-penalty).", "(0, ∞) or off"),
    "temperature": ("Lambda of spu: how much the advantage counts against the KL.", "(0, ∞)"),
    "state_delta": ("KL beyond which a state is left out (spu).", "(0, ∞)"),
    "delta": ("Bound on the KL (trpo, tr-ppo, tr-ppo-rb, truly-ppo, spu) or change of probability (drpo).", "(0, ∞)"),
    "dual_clip": ("Lower bound of the objective in multiples of an advantage below 0 (ppo-dual-clip).", "(1, ∞)"),
    "deviation_limit": ("Mean ratio deviation that ends an iteration's updates (espo).", "(0, ∞)"),
    "deviation_target": ("Mean ratio deviation towards which epsilon is adapted (spo-adaptive).", "(0, ∞)"),
    "epsilon_min": ("The least that epsilon is adapted to (spo-adaptive).", "(0, 1)"),
    "epsilon_max": ("The most that epsilon is adapted to (spo-adaptive).", "(0, 1)"),
    "epsilon_gain": ("How strongly epsilon follows the deviation, from not at all (spo-adaptive).", "[0, 1]"),
    "power": ("How steep the wall at the ratio bound is; 2 is SPO (spo-power).", "(1, ∞)"),
    "damping": ("Damping of the Fisher matrix (trpo).", "[0, ∞)"),
    "cg_steps": ("Steps of the conjugate gradient (trpo).", "[1, ∞)"),
    "backtrack": ("Factor of the line search (trpo).", "(0, 1)"),
    "backtrack_steps": ("Most trials of the line search (trpo).", "[1, ∞)"),
}
"""The help and the interval of each setting: flags, keys of configuration files and their checks are made of this."""


def find_objective(name: str) -> Objective:
    """A registered objective, or a user's function by its import path, `package.module:function`."""
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise LookupError(f"is unknown; accepted: {', '.join(OBJECTIVES)}, or package.module:function")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever a user's module raises while it is imported
        raise LookupError(f"cannot be imported: {type(error).__name__}: {error}")
    return Objective(name, check_function(function))


def check_function(function: Any) -> Callable[..., Tensor]:
    """The function, if its signature keeps the contract."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise LookupError(f"is a {type(function).__name__}; accepted is a function")
    unknown = [name for name in inputs_of(function) if name not in INPUTS]
    if unknown or not inputs_of(function):
        asked = f"asks for {', '.join(unknown) or 'nothing'}; it can ask for {', '.join(INPUTS)}"
        data = [name for name in inputs_of(function) if name in INPUTS]
        others = {p.name: p.default for p in parameters if p.name not in data}
        meant = ", ".join([*data, "*", *(f"{name}={default}" for name, default in others.items())])
        is_meant = data and all(isinstance(default, int | float) for default in others.values())
        raise LookupError(f"{asked}; settings stand behind a *: ({meant})" if is_meant else asked)
    for p in parameters:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            raise LookupError(f"takes {p}; accepted are named data and keyword-only settings")
        if p.kind is p.KEYWORD_ONLY and not isinstance(p.default, int | float):
            raise LookupError(f"has a setting {p.name!r} without a number as default")
    return function


def evaluate(name: str, log_ratio: Tensor, advantage: Tensor, **given: Any) -> Tensor:
    """The named objective per sample, to maximise, as safe as in the trainer.

    The ratio is `ratio_of(log_ratio)`. `given` holds the objective's settings, and what else it asks for (`kl`,
    `old_log_prob`, …); all data must have one shape, because (B,) against (B, 1) would broadcast silently. A mistake
    is a ValueError in one sentence.
    """
    try:
        objective = find_objective(name)
    except LookupError as error:
        raise ValueError(f"objective {name!r} {error}")
    data = {"log_ratio": log_ratio, "advantage": advantage} | {k: v for k, v in given.items() if k in INPUTS}
    settings = {k: v for k, v in given.items() if k not in INPUTS}
    own = settings_of(objective.function)
    for name in settings:
        if name not in own:
            raise ValueError(f"objective {objective.name!r} has no setting {name!r}; it has {', '.join(own) or 'none'}")
    _check_data(objective, data)
    data |= {"ratio": ratio_of(log_ratio)}
    return objective.function(*[data[name] for name in objective.inputs], **settings)


def _check_data(objective: Objective, data: dict[str, Any]) -> None:
    import torch

    missing = [name for name in objective.inputs if name not in data and name != "ratio"]
    if missing:
        raise ValueError(f"objective {objective.name!r} asks for {', '.join(missing)}; give it by that name")
    for name, value in data.items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{name} is a {type(value).__name__}; accepted is a torch.Tensor")
        if value.shape != data["log_ratio"].shape:
            shapes = tuple(value.shape), tuple(data["log_ratio"].shape)
            raise ValueError(f"{name} has the shape {shapes[0]} and log_ratio {shapes[1]}; accepted is one shape")
