"""Stable-Baselines3: `SPO` is its `PPO` with another objective.

from spo.integrations.sb3 import SPO
SPO("MlpPolicy", "Hopper-v4", clip_range=0.2).learn(1_000_000)
"""

from typing import Any

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS, Host
from spo.integrations.objective import make_hosted
from spo.integrations.rewriting import rewrite

with HOSTS["sb3"].importing():
    from stable_baselines3 import PPO


class WithObjective:
    """What is around an algorithm of Stable-Baselines3 whose `train` calls an objective of this project.

    The objective's name and settings are plain attributes, so `save` keeps them, and `PPO.load` reads the file too.
    """

    host: Host

    def __init__(
        self, *args: Any, objective: str = "spo", objective_settings: dict[str, float] | None = None, **kwargs: Any
    ):
        self.objective, self.objective_settings = objective, dict(objective_settings or {})
        self.objective_state: float | None = None
        self._host_objective()
        super().__init__(*args, **kwargs)

    def _host_objective(self) -> None:
        self.hosted_objective = make_hosted(self.objective, self.host, self.objective_settings, keeps_state=True)
        self.hosted_objective.adaptive_value = self.objective_state

    def _setup_model(self) -> None:
        """Called by the host when a model is made, and again when one was loaded."""
        super()._setup_model()
        self._host_objective()
        if not (epsilon := self.clip_range(1.0)) > 0:
            raise SpoError(f"{self.host.epsilon} {epsilon} is not accepted: it is the ratio's bound, above 0")

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "hosted_objective"]

    def train(self) -> None:
        """The host's training on a rollout; then the ratios' statistics are logged, and ε is adapted if it is."""
        self.hosted_train()
        for name, value in self.hosted_objective.end_iteration().items():
            self.logger.record(f"train/{name}", value)
        self.objective_state = self.hosted_objective.adaptive_value


class SPO(WithObjective, PPO):
    """PPO of Stable-Baselines3 that maximises SPO's objective, or another of the registry by its name."""

    host = HOSTS["sb3"]
    hosted_train = rewrite(host.find(PPO, "train"), host)
