"""Tianshou: `SPO` is its `PPO` with another objective.

from spo.integrations.tianshou import SPO
algorithm = SPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=3e-4), eps_clip=0.2)
"""

from typing import Any

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS
from spo.integrations.objective import make_hosted
from spo.integrations.rewriting import rewrite

HOST = HOSTS["tianshou"]
with HOST.importing():
    from tianshou.algorithm import PPO


class SPO(PPO):
    """PPO of Tianshou that maximises SPO's objective, or another of the registry by its name.

    The ratios' statistics of the last update are in `ratio_statistics`.
    """

    def __init__(self, *, objective: str = "spo", objective_settings: dict[str, float] | None = None, **kwargs: Any):
        if kwargs.get("dual_clip") is not None:
            raise SpoError(
                f"{HOST.title}: dual_clip {kwargs['dual_clip']} would bound {objective!r} a second time; leave it None "
                "or choose objective 'ppo-dual-clip'"
            )
        super().__init__(**kwargs)
        self.hosted_objective = make_hosted(objective, HOST, objective_settings)
        self.ratio_statistics: dict[str, float] = {}

    hosted_update = rewrite(HOST.find(PPO, "_update_with_batch"), HOST, expressions=2)

    def _update_with_batch(self, *args: Any, **kwargs: Any) -> Any:
        statistics = self.hosted_update(*args, **kwargs)
        self.ratio_statistics = self.hosted_objective.end_iteration()
        return statistics
