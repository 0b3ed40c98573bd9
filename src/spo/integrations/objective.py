"""An objective of the registry as a host calls it: with the host's ratio, advantage and ε."""

from typing import Any

import torch
from torch import Tensor

from spo.errors import SpoError
from spo.integrations.hosts import Host
from spo.objectives import OBJECTIVES, Objective, find_objective, inputs_of, namespace, settings_of

GIVEN = ("ratio", "log_ratio", "advantage")
"""What every host gives an objective."""
KEPT = ("ratio_deviation", "ratio_deviation_max", "ratio_deviation_sample_max")
"""What is kept of the ratios: mean |r − 1| over the minibatches, the largest of their means, the largest of all."""
NARROWEST = 1e-3
"""Hosts schedule ε down to 0 and, by a step too many, below it: a parabola of no width is NaN, or opens upwards."""


class HostedObjective:
    """An objective that a host calls as f(ratio, advantage, ε), or with two widths of the ratio bound.

    Keeps how far the ratios left 1, which hosts do not log, and the setting that the objective adapts, if it has one.
    """

    def __init__(self, objective: Objective, settings: dict[str, float]):
        self.objective = objective
        own = objective.settings | settings
        self.settings = {name: own[name] for name in settings_of(objective.function) if name != "epsilon"}
        self.asked = frozenset(settings)
        self.rule = {name: own[name] for name in settings_of(objective.adapt)}
        self.adaptive_value: float | None = None  # the setting that is adapted, once an iteration has ended
        self.started_from: float | None = None
        self.forget()

    def __call__(self, ratio: Any, advantage: Any, low: Any, high: Any = None, **inputs: Any) -> Any:
        """f per sample. `low` and `high` are the widths below and above 1, one value where the host has one.

        `inputs` are what else the host gives, and the `mask` of samples that count, which statistics follow.
        """
        self.keep(ratio, inputs.pop("mask", None))
        inputs |= {"ratio": ratio, "advantage": advantage}
        if "log_ratio" in self.objective.inputs:
            xp = namespace(ratio)
            inputs["log_ratio"] = xp.log(xp.clip(ratio, 1e-38, None))
        settings = self.settings | self.widths(advantage, low, high)
        return self.objective.function(*[inputs[name] for name in self.objective.inputs], **settings)

    def widths(self, advantage: Any, low: Any, high: Any) -> dict[str, Any]:
        """The host's ε under the objective's names; of two, each sample gets the one that it moves towards."""
        names = settings_of(self.objective.function)
        low, high = _widen(low), None if high is None else _widen(high)
        if self.objective.adaptive_setting:
            self.started_from = low
            return {self.objective.adaptive_setting: low if self.adaptive_value is None else self.adaptive_value}
        if high is None or "epsilon" not in names:
            return {"epsilon": low} if "epsilon" in names else {}
        if "epsilon_high" in names:
            return {"epsilon": low} | ({} if "epsilon_high" in self.asked else {"epsilon_high": high})
        if isinstance(low, float) and low == high:
            return {"epsilon": low}
        xp = namespace(advantage)
        zero = xp.zeros_like(advantage)  # so that ε has the precision of the samples
        return {"epsilon": xp.where(advantage > 0, zero + high, zero + low)}

    @property
    def outruns_kl_target(self) -> bool:
        """Whether a learning rate that follows the KL would climb to its cap, or fight with the width for it."""
        return self.objective.is_quadratic or self.objective.adaptive_setting is not None

    def keep(self, ratio: Any, mask: Tensor | None) -> None:
        """Adds a minibatch's |r − 1|, without a wait for the device; arrays that are traced keep nothing."""
        if not isinstance(ratio, Tensor):
            return
        deviation = (ratio.detach().float() - 1).abs()
        if mask is None:
            mean, largest = deviation.mean(), deviation.max()
        else:
            deviation = deviation * mask
            mean, largest = deviation.sum() / mask.expand_as(deviation).sum().clamp(min=1), deviation.max()
        if self.minibatches:
            self.largest_mean, self.largest = self.largest_mean.maximum(mean), self.largest.maximum(largest)
            self.total = self.total + mean
        else:
            self.total, self.largest_mean, self.largest = mean, mean, largest
        self.minibatches += 1

    def forget(self) -> None:
        self.minibatches = 0
        self.total = self.largest_mean = self.largest = torch.zeros(())

    def statistics(self) -> dict[str, float]:
        """What was kept since the last iteration, and nothing if nothing was."""
        values = (self.total / max(self.minibatches, 1), self.largest_mean, self.largest)
        return dict(zip(KEPT, map(float, values))) if self.minibatches else {}

    def state_dict(self) -> dict[str, float | None]:
        """What a checkpoint of the host has to hold: the setting that is adapted."""
        return {"fed_back": self.adaptive_value}

    def load_state_dict(self, state: dict[str, float | None]) -> None:
        self.adaptive_value = state["fed_back"]

    def end_iteration(self) -> dict[str, float]:
        """The statistics of the iteration, and the setting that was in force where one is adapted; adapts it."""
        statistics = self.statistics()
        self.forget()
        name = self.objective.adaptive_setting
        if name and statistics:
            in_force = float(self.started_from) if self.adaptive_value is None else self.adaptive_value
            known = [statistics[what] for what in inputs_of(self.objective.adapt)[1:]]
            self.adaptive_value = self.objective.adapt(in_force, *known, **self.rule)
            statistics[name] = in_force
        return statistics


def _widen(epsilon: Any) -> Any:
    """The host's ε, and no less than the narrowest."""
    if isinstance(epsilon, float | int):
        return max(epsilon, NARROWEST)
    return namespace(epsilon).clip(epsilon, NARROWEST, None)


def make_hosted(
    name: str,
    host: Host,
    settings: dict[str, float] | None = None,
    *,
    given: tuple[str, ...] = GIVEN,
    keeps_state: bool = False,
) -> HostedObjective:
    """The objective, if it needs nothing that the host does not have; a host that keeps state ends iterations."""
    try:
        objective = find_objective(name)
    except LookupError as error:
        raise SpoError(f"objective {name!r} {error}")
    reason = why_not(objective, given, keeps_state)
    if reason:
        fitting = ", ".join(fitting_objectives(given, keeps_state))
        raise SpoError(f"objective {name!r} does not fit into {host.title}: it {reason}; these fit: {fitting}")
    _check_settings(objective, host, settings or {})
    return HostedObjective(objective, settings or {})


def why_not(objective: Objective, given: tuple[str, ...] = GIVEN, keeps_state: bool = False) -> str | None:
    """Why an objective cannot be hosted; None if it can."""
    missing = [name for name in objective.inputs if name not in given]
    if missing:
        return f"asks for {', '.join(missing)}"
    if objective.trust_region:
        return "is an improvement rule of its own"
    if objective.stop_epochs or objective.stop_minibatches:
        return "decides when an iteration's updates end"
    if objective.adapt and not keeps_state:
        return f"adapts {objective.adaptive_setting}, for which the host has no place"
    unknown = [name for name in inputs_of(objective.adapt)[1:] if name not in KEPT]
    return f"adapts {objective.adaptive_setting} by {', '.join(unknown)}" if unknown else None


def fitting_objectives(given: tuple[str, ...] = GIVEN, keeps_state: bool = False) -> list[str]:
    return [name for name, one in OBJECTIVES.items() if why_not(one, given, keeps_state) is None]


def _list_own(objective: Objective, host: Host) -> str:
    """The objective's settings, its width under the host's name."""
    own = [name for name in objective.settings if name != "epsilon"]
    width = [f"epsilon, which in {host.title} is {host.epsilon}"] if "epsilon" in objective.settings else []
    return ", ".join(own + width) or "none"


def _check_settings(objective: Objective, host: Host, settings: dict[str, float]) -> None:
    for name, value in settings.items():
        if name == "epsilon":
            raise SpoError(f"epsilon {value} is not accepted: in {host.title} its name is {host.epsilon}")
        if name not in objective.settings:
            raise SpoError(f"objective {objective.name!r} has no setting {name!r}; it has {_list_own(objective, host)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SpoError(f"setting {name} of objective {objective.name!r} is {value!r}; accepted is a number")
