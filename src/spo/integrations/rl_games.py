"""rl_games: the algorithms `spo_continuous` and `spo_discrete`, which are its `a2c_*` with another objective.

from rl_games.torch_runner import Runner
from spo.integrations.rl_games import register
runner = Runner(); register(runner)        # then params.algo.name: spo_continuous
"""

import warnings
from typing import Any

from torch import Tensor

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS
from spo.integrations.objective import make_hosted
from spo.objectives import ratio_of

HOST = HOSTS["rl_games"]
with HOST.importing():
    from rl_games.algos_torch.a2c_continuous import A2CAgent
    from rl_games.algos_torch.a2c_discrete import DiscreteA2CAgent
    from rl_games.algos_torch.players import PpoPlayerContinuous, PpoPlayerDiscrete
    from rl_games.common import common_losses


class WithObjective:
    """What is around an agent of rl_games whose actor loss is an objective of this project.

    `params.config.objective` names it and `params.config.objective_settings` are its settings.
    """

    def __init__(self, base_name: str, params: dict[str, Any]):
        config = params["config"]
        objective = config.get("objective", "spo")
        self.hosted_objective = make_hosted(objective, HOST, config.get("objective_settings"))
        if config.get("use_smooth_clamp"):
            raise SpoError(
                f"{HOST.title}: use_smooth_clamp is an objective of its own; set it to False for {objective!r}"
            )
        super().__init__(base_name, params)
        HOST.find(self, "actor_loss_func")
        self.actor_loss_func = self.actor_loss
        if self.is_adaptive_lr and self.hosted_objective.outruns_kl_target:
            warnings.warn(
                f"lr_schedule 'adaptive' raises the learning rate to its cap under {objective!r}, which keeps the KL "
                "below its threshold: set lr_schedule to linear or identity",
                stacklevel=2,
            )

    def actor_loss(self, old_neglog: Tensor, neglog: Tensor, advantage: Tensor, is_ppo: bool, epsilon: float) -> Tensor:
        """The host's actor loss, which gets negative log-probabilities; without `ppo` it is the host's own."""
        if not is_ppo:
            return common_losses.actor_loss(old_neglog, neglog, advantage, is_ppo, epsilon)
        return -self.hosted_objective(ratio_of(old_neglog - neglog), advantage, epsilon)

    def write_stats(self, *args: Any, **kwargs: Any) -> None:
        """What the host writes after an epoch, and the ratios' statistics."""
        super().write_stats(*args, **kwargs)
        for name, value in self.hosted_objective.end_iteration().items():
            self.writer.add_scalar(f"info/{name}", value, self.frame)


class SPOAgent(WithObjective, A2CAgent):
    """PPO of rl_games for continuous actions that maximises SPO's objective, or another of the registry."""


class DiscreteSPOAgent(WithObjective, DiscreteA2CAgent):
    """PPO of rl_games for discrete actions that maximises SPO's objective, or another of the registry."""


def register(runner: Any) -> None:
    """Makes the algorithms and their players known to a runner."""
    agents = {"spo_continuous": SPOAgent, "spo_discrete": DiscreteSPOAgent}
    players = {"spo_continuous": PpoPlayerContinuous, "spo_discrete": PpoPlayerDiscrete}
    for name in agents:
        runner.algo_factory.register_builder(name, agents[name])
        runner.player_factory.register_builder(name, players[name])
