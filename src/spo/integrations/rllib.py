"""RLlib: `SPOTorchLearner` is the learner of its PPO with another objective.

    config = PPOConfig().learners(learner_class=SPOTorchLearner).training(use_kl_loss=False, clip_param=0.2)

Another objective is named by `training(learner_config_dict={"objective": "aspo"})`, its settings by the key
`objective_settings`.
"""

import warnings
from typing import Any

from torch import Tensor

from spo.integrations.hosts import HOSTS
from spo.integrations.objective import make_hosted
from spo.integrations.rewriting import rewrite

HOST = HOSTS["rllib"]
with HOST.importing():
    from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner


class SPOTorchLearner(PPOTorchLearner):
    """PPO's learner that maximises SPO's objective, or another of the registry; importable on every node."""

    def build(self) -> None:
        super().build()
        chosen = self.config.learner_config_dict
        name = chosen.get("objective", "spo")
        self.hosted_objective = make_hosted(name, HOST, chosen.get("objective_settings"))
        if self.config.use_kl_loss and name != "ppo-clip":
            warnings.warn(
                f"use_kl_loss, RLlib's default, adds {self.config.kl_coeff} times the KL to {name!r}; for it "
                "alone, training(use_kl_loss=False)",
                stacklevel=2,
            )

    hosted_loss = rewrite(HOST.find(PPOTorchLearner, "compute_loss_for_module"), HOST)

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: dict, fwd_out: dict) -> Tensor:
        """The host's loss; the ratios' statistics join its metrics."""
        loss = self.hosted_loss(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        self.metrics.log_dict(self.hosted_objective.end_iteration(), key=module_id, window=1)
        return loss
