"""sbx, Stable-Baselines3 in JAX: `SPO` is its `PPO` with another objective.

from spo.integrations.sbx import SPO
SPO("MlpPolicy", "Hopper-v4", clip_range=0.2).learn(1_000_000)
"""

import inspect
import warnings
from typing import Any

from spo.integrations.hosts import HOSTS

with HOSTS["sbx"].importing():
    import jax
    from sbx import PPO

from spo.integrations.jax_arrays import make_hosted_in_jax, ratio_of
from spo.integrations.rewriting import rewrite

STATIC = {"normalize_advantage", "share_features_extractor"}
"""Arguments of the host's update that are not arrays; older releases have fewer."""


class SPO(PPO):
    """PPO of sbx that maximises SPO's objective, or another of the registry by its name."""

    host = HOSTS["sbx"]

    def __init__(
        self, *args: Any, objective: str = "spo", objective_settings: dict[str, float] | None = None, **kwargs: Any
    ):
        self.objective, self.objective_settings = objective, dict(objective_settings or {})
        self._host_objective()
        super().__init__(*args, **kwargs)
        if self.target_kl is not None and self.outruns_kl_target:
            warnings.warn(
                f"target_kl raises the learning rate to its cap under {objective!r}, which keeps the KL below its "
                "target: leave target_kl None",
                stacklevel=2,
            )

    def _host_objective(self) -> None:
        hosted = make_hosted_in_jax(self.objective, self.host, self.objective_settings)
        self.outruns_kl_target = hosted.outruns_kl_target
        update = rewrite(self.host.find(PPO, "_one_update"), self.host, hosted, ratio_of=ratio_of)
        self._one_update = jax.jit(update, static_argnames=sorted(STATIC & set(inspect.signature(update).parameters)))

    def _setup_model(self) -> None:
        """Called by the host when a model is made, and again when one was loaded."""
        super()._setup_model()
        self._host_objective()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_one_update"]
