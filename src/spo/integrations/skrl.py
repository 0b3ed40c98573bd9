"""skrl: `SPO`, `SPO_RNN`, `ISPO` and `MASPO` are its `PPO`, `PPO_RNN`, `IPPO` and `MAPPO` with another objective.

    from spo.integrations.skrl import SPO
    agent = SPO(models=models, memory=memory, cfg=PPO_CFG(ratio_clip=0.2), ...)

`Runner` is skrl's, in which the classes "ppo", "ippo" and "mappo" of a configuration are these.
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from spo.integrations.hosts import HOSTS
from spo.integrations.objective import make_hosted
from spo.integrations.rewriting import rewrite

HOST = HOSTS["skrl"]
with HOST.importing():
    from skrl.agents.torch.ppo import PPO, PPO_RNN
    from skrl.multi_agents.torch.ippo import IPPO
    from skrl.multi_agents.torch.mappo import MAPPO
    from skrl.resources.schedulers.torch import KLAdaptiveLR
    from skrl.utils.runner.torch import Runner as HostRunner


class WithObjective:
    """What is around an agent of skrl whose `update` calls an objective of this project."""

    def __init__(
        self, *args: Any, objective: str = "spo", objective_settings: dict[str, float] | None = None, **kwargs: Any
    ):
        keeps_state = isinstance(self, PPO | PPO_RNN)  # of several agents each would need its own
        self.hosted_objective = make_hosted(objective, HOST, objective_settings, keeps_state=keeps_state)
        super().__init__(*args, **kwargs)
        if self.hosted_objective.objective.adaptive_setting:
            self.checkpoint_modules["objective"] = self.hosted_objective
        follows_kl = any(isinstance(one, KLAdaptiveLR) for one in self._schedulers())
        if follows_kl and self.hosted_objective.outruns_kl_target:
            warnings.warn(
                f"KLAdaptiveLR raises the learning rate to its cap under {objective!r}, which keeps the KL below its "
                "target: set learning_rate_scheduler to None, or to one that does not follow the KL",
                stacklevel=2,
            )

    def _schedulers(self) -> Iterator[object]:
        yield getattr(self, "scheduler", None)
        yield from getattr(self, "schedulers", {}).values()

    def update(self, *, timestep: int, timesteps: int, **which: Any) -> None:
        """The host's update; then the ratios' statistics are tracked (of each agent, where there are several)."""
        self.hosted_update(timestep=timestep, timesteps=timesteps, **which)
        agents = "".join(f" ({uid})" for uid in which.values())
        for name, value in self.hosted_objective.end_iteration().items():
            self.track_data(f"Ratio / {name}{agents}", value)


class SPO(WithObjective, PPO):
    """PPO of skrl that maximises SPO's objective, or another of the registry by its name."""

    hosted_update = rewrite(HOST.find(PPO, "update"), HOST)


class SPO_RNN(WithObjective, PPO_RNN):
    """PPO_RNN of skrl that maximises SPO's objective, or another of the registry by its name."""

    hosted_update = rewrite(HOST.find(PPO_RNN, "update"), HOST)


class ISPO(WithObjective, IPPO):
    """IPPO of skrl that maximises SPO's objective, or another of the registry by its name."""

    hosted_update = rewrite(HOST.find(IPPO, "update"), HOST)


class MASPO(WithObjective, MAPPO):
    """MAPPO of skrl that maximises SPO's objective, or another of the registry by its name."""

    hosted_update = rewrite(HOST.find(MAPPO, "update"), HOST)


class Runner(HostRunner):
    """The runner of skrl and of Isaac Lab's script for it, with SPO where a configuration says PPO."""

    AGENTS = {"ppo": SPO, "ippo": ISPO, "mappo": MASPO}

    def __init__(
        self, *args: Any, objective: str = "spo", objective_settings: dict[str, float] | None = None, **kwargs: Any
    ):
        self._objective = {"objective": objective, "objective_settings": objective_settings}
        super().__init__(*args, **kwargs)

    def _component(self, name: str) -> Callable:
        agent = self.AGENTS.get(name.lower())
        return functools.partial(agent, **self._objective) if agent else super()._component(name)
