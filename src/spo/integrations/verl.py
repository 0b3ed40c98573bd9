"""verl: installing this project makes its objectives known as policy losses, `policy_loss.loss_mode=spo`.

verl imports this module by the entry point `verl.plugins`, on every worker. ε is verl's `clip_ratio`, with
`clip_ratio_low` and `clip_ratio_high` where they are set.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from spo.integrations.hosts import HOSTS
from spo.integrations.objective import GIVEN, fitting_objectives, make_hosted
from spo.objectives import ratio_of

with HOSTS["verl"].importing():
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, agg_loss, register_policy_loss
    from verl.utils.torch_functional import masked_mean

INPUTS = (*GIVEN, "old_log_prob")


class PolicyLoss:
    """A policy loss of verl that is an objective of this project; called as verl calls its own."""

    def __init__(self, objective: str):
        self.hosted_objective = make_hosted(objective, HOSTS["verl"], given=INPUTS)
        self.__name__ = f"compute_policy_loss_{objective}"

    def __call__(
        self,
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        low, high = widths(config)
        log_ratio = log_prob - old_log_prob
        ratio = ratio_of(log_ratio)
        gain = self.hosted_objective(ratio, advantages, low, high, old_log_prob=old_log_prob, mask=response_mask)
        if rollout_is_weights is not None:
            gain = gain * rollout_is_weights
        loss = agg_loss(
            loss_mat=-gain, loss_mask=response_mask, loss_agg_mode=loss_agg_mode, **config.global_batch_info
        )
        return loss, self.metrics(log_ratio.detach(), ratio.detach(), advantages, response_mask, low, high)

    def metrics(
        self, log_ratio: Tensor, ratio: Tensor, advantages: Tensor, mask: Tensor, low: float, high: float
    ) -> dict[str, float]:
        """verl's metrics, with the share of tokens that have left the bound in their direction, and the ratios'."""
        is_outside = torch.where(advantages > 0, ratio > 1 + high, (ratio < 1 - low) & (advantages < 0))
        kept = self.hosted_objective.end_iteration()
        return {
            "actor/pg_clipfrac": masked_mean(is_outside.float(), mask).item(),
            "actor/ppo_kl": masked_mean(-log_ratio, mask).item(),
            "actor/pg_clipfrac_lower": 0.0,
        } | {f"actor/{name}": value for name, value in kept.items()}


def widths(config: Any) -> tuple[float, float]:
    """ε below and above 1 as verl reads it: `clip_ratio` counts only where the other two are null."""
    low = config.clip_ratio if config.clip_ratio_low is None else config.clip_ratio_low
    high = config.clip_ratio if config.clip_ratio_high is None else config.clip_ratio_high
    if config.clip_ratio not in (low, high):
        warnings.warn(
            f"clip_ratio {config.clip_ratio} has no effect: verl's clip_ratio_low {low} and clip_ratio_high {high} are "
            "set, by default too; set these, or make them null",
            stacklevel=2,
        )
    return low, high


for name in fitting_objectives(INPUTS):
    if name not in POLICY_LOSS_REGISTRY:
        register_policy_loss(name)(PolicyLoss(name))
