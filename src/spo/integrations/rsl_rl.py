"""rsl_rl, the trainer of Isaac Lab, mjlab and MuJoCo Playground: a class for each objective, named in a configuration.

    agent.algorithm.class_name=spo.integrations.rsl_rl:SPO

The class of another objective has its name in capitals: `spo.integrations.rsl_rl:PPO_RB`. Releases before 3.1 look a
name up among those of their runner, where importing this module puts it.
"""

import warnings
from typing import Any

from spo.integrations.hosts import HOSTS
from spo.integrations.objective import fitting_objectives, make_hosted
from spo.integrations.rewriting import rewrite
from spo.objectives import OBJECTIVES

with HOSTS["rsl_rl"].importing():
    from rsl_rl.algorithms import PPO
    from rsl_rl.runners import on_policy_runner

STATE = "objective_state"


class SPO(PPO):
    """PPO of rsl_rl that maximises SPO's objective; its learning rate does not follow the KL.

    That schedule raises the rate while the KL is below half of its target, where SPO keeps it: the rate would run to
    its cap. `SPO_ADAPTIVE` feeds the deviation of the ratios back to ε instead.
    """

    host = HOSTS["rsl_rl"]
    objective = "spo"

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.hosted_objective = make_hosted(self.objective, self.host, keeps_state=True)
        if self.schedule == "adaptive" and self.hosted_objective.outruns_kl_target:
            warnings.warn(
                f"schedule 'adaptive' raises the learning rate to its cap under {self.objective!r}, which keeps the KL "
                f"below its target: the rate stays at {self.learning_rate:g}, as with schedule 'fixed'",
                stacklevel=2,
            )
            self.schedule = "fixed"

    hosted_update = rewrite(host.find(PPO, "update"), host)

    def update(self) -> dict[str, float]:
        """The host's update; what it returns, and so what is logged, has the ratios' statistics too.

        A setting that is adapted lies in the optimizer, which checkpoints of every release hold.
        """
        kept = self.optimizer.param_groups[0]
        self.hosted_objective.adaptive_value = kept.get(STATE)
        losses = self.hosted_update() | self.hosted_objective.end_iteration()
        if self.hosted_objective.objective.adaptive_setting:
            kept[STATE] = self.hosted_objective.adaptive_value
        return losses


def class_name(objective: str) -> str:
    return objective.upper().replace("-", "_")


def __getattr__(name: str) -> None:
    """Says of the class of an objective that does not fit why there is none."""
    for objective in OBJECTIVES:
        if class_name(objective) == name:
            make_hosted(objective, HOSTS["rsl_rl"], keeps_state=True)
    raise AttributeError(f"module {__name__!r} has no class {name!r}; it has {', '.join(CLASSES)}")


CLASSES = {"SPO": SPO} | {
    class_name(name): type(class_name(name), (SPO,), {"objective": name})
    for name in fitting_objectives(keeps_state=True)
    if name != "spo"
}
globals().update(CLASSES)
for name, algorithm in CLASSES.items():
    if not hasattr(on_policy_runner, name):
        setattr(on_policy_runner, name, algorithm)
