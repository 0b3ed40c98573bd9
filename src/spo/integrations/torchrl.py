"""TorchRL: `SPOLoss` is its `ClipPPOLoss` with another objective.

from spo.integrations.torchrl import SPOLoss
loss_module = SPOLoss(actor, critic, clip_epsilon=0.2, normalize_advantage=True)
"""

from typing import Any

from torch import Tensor

from spo.integrations.hosts import HOSTS
from spo.integrations.objective import make_hosted
from spo.objectives import ratio_of

HOST = HOSTS["torchrl"]
with HOST.importing():
    from tensordict import TensorDictBase
    from tensordict.nn import dispatch
    from torchrl.objectives import ClipPPOLoss
for name in ("_log_weight", "_maybe_normalize_advantage", "_reduce_loss"):
    HOST.find(ClipPPOLoss, name)


class SPOLoss(ClipPPOLoss):
    """ClipPPOLoss that maximises SPO's objective, or another of the registry by its name.

    The host clips in log space, so there is no expression to replace: its forward is run as it is, the log-ratio and
    the advantage that it computes are noted on the way, and `loss_objective` is made of them.
    """

    def __init__(
        self, *args: Any, objective: str = "spo", objective_settings: dict[str, float] | None = None, **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self.hosted_objective = make_hosted(objective, HOST, objective_settings)
        self._noted: dict[str, Any] = {}

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        losses = super().forward(tensordict)
        gain = self._gain()
        losses.set("loss_objective", self._reduce_loss(-gain, self._noted["tensordict"]).squeeze(-1))
        self._noted.clear()
        return losses

    def _gain(self) -> Tensor:
        """The objective, weighted by π_prox/π_behav where the two differ (`delay_actor`, `max_importance_ratio`)."""
        log_weight, _, _, log_is_weight = self._noted["weights"]
        advantage = self._noted["advantage"]
        while advantage.dim() < log_weight.dim():
            advantage = advantage.unsqueeze(-1)
        gain = self.hosted_objective(ratio_of(log_weight), advantage, *self._widths())
        return gain if log_is_weight is None else log_is_weight.exp() * gain

    def _widths(self) -> list[Tensor]:
        return [self.clip_epsilon_low, self.clip_epsilon_high] if self._asymmetric_clip else [self.clip_epsilon]

    def _maybe_normalize_advantage(self, advantage: Tensor, tensordict: TensorDictBase, **how: Any) -> Tensor:
        self._noted["advantage"] = super()._maybe_normalize_advantage(advantage, tensordict, **how)
        return self._noted["advantage"]

    def _log_weight(self, tensordict: TensorDictBase, adv_shape: Any) -> tuple:
        self._noted["tensordict"] = tensordict
        self._noted["weights"] = super()._log_weight(tensordict, adv_shape)
        return self._noted["weights"]
