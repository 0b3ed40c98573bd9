"""TRL: `SPOTrainer` is its `GRPOTrainer` with another objective; advantages and aggregation (`loss_type`) stay.

from spo.integrations.trl import SPOTrainer
SPOTrainer(model=..., reward_funcs=..., train_dataset=..., args=GRPOConfig(epsilon=0.2, num_iterations=4)).train()
"""

import warnings
from typing import Any

from torch import Tensor

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS
from spo.integrations.objective import GIVEN, make_hosted
from spo.integrations.rewriting import rewrite

HOST = HOSTS["trl"]
with HOST.importing():
    from trl import GRPOConfig, GRPOTrainer

CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
"""The loss types that clip the ratio; the others have objectives of their own."""


class SPOTrainer(GRPOTrainer):
    """GRPOTrainer that maximises SPO's objective, or another of the registry by its name."""

    def __init__(
        self, *args: Any, objective: str = "spo", objective_settings: dict[str, float] | None = None, **kwargs: Any
    ):
        given = (*GIVEN, "old_log_prob")
        self.hosted_objective = make_hosted(objective, HOST, objective_settings, given=given)
        super().__init__(*args, **kwargs)
        refuse_other_objectives(self.args)
        if "old_log_prob" in self.hosted_objective.objective.inputs and self.importance_sampling_level != "token":
            level = self.importance_sampling_level
            raise SpoError(
                f"objective {objective!r} weighs tokens; importance_sampling_level is {level!r}, not 'token'"
            )
        if is_on_policy(self.args):
            warnings.warn(
                "every batch is learned from once, so the ratio is always 1 and all objectives have the same gradient "
                "as GRPO's: set num_iterations above 1, or steps_per_generation above gradient_accumulation_steps",
                stacklevel=2,
            )

    hosted_loss = rewrite(
        HOST.find(GRPOTrainer, "_compute_loss"), HOST, inputs={"old_log_prob": "old_per_token_logps", "mask": "mask"}
    )

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """The host's loss; the ratios' statistics over the completions' tokens join its metrics."""
        loss = self.hosted_loss(model, inputs)
        mode = "train" if self.model.training else "eval"
        for name, value in self.hosted_objective.end_iteration().items():
            self._metrics[mode][name].append(value)
        return loss


def refuse_other_objectives(args: GRPOConfig) -> None:
    if args.loss_type not in CLIPPED:
        accepted = ", ".join(CLIPPED)
        raise SpoError(f"{HOST.title}: loss_type {args.loss_type!r} has an objective of its own; accepted: {accepted}")
    if args.use_liger_kernel and hasattr(GRPOTrainer, "compute_liger_loss"):
        raise SpoError(f"{HOST.title}: use_liger_kernel computes GRPO's loss in a kernel of its own; leave it False")
    if args.delta is not None:
        raise SpoError(f"{HOST.title}: delta {args.delta} clips the ratio before the objective sees it; leave it None")


def is_on_policy(args: GRPOConfig) -> bool:
    """Whether no step is taken between the sampling of completions and their loss, by the host's own rule."""
    return args.gradient_accumulation_steps % (args.num_iterations * args.steps_per_generation) == 0
