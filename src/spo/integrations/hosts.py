"""The hosts: what is installed under which name, which releases are supported, and where their objective is."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from spo.errors import SpoError

PROJECT = "simple-policy-optimization"


@dataclass(frozen=True)
class Host:
    """A library that an objective can be put into.

    `places` names what is rewritten or relied on in its wheel: file and function, and how many expressions of PPO the
    function has (0: the function is called or overridden by name).
    """

    name: str  # of the module in spo.integrations, and of the extra
    distribution: str
    oldest: str
    tested: str
    epsilon: str
    places: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def version(self) -> str | None:
        """The installed release; None if there is none."""
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return None

    @property
    def title(self) -> str:
        return f"{self.distribution} {self.version or '(not installed)'}"

    @property
    def remedy(self) -> str:
        return f"pip install '{self.distribution}=={self.tested}' is known to work"

    def require(self) -> None:
        """Refuses a host that is missing or older than what is supported."""
        if self.version is None:
            raise SpoError(
                f"spo.integrations.{self.name} needs {self.distribution}, which is not installed: "
                f"pip install '{PROJECT}[{self.name}]'"
            )
        if numbers(self.version) < numbers(self.oldest):
            raise SpoError(f"{self.title} is too old: supported is {self.oldest} or later; {self.remedy}")

    @contextmanager
    def importing(self) -> Iterator[None]:
        """Refuses a host that is missing or too old, and one that no longer has what the block imports."""
        self.require()
        try:
            yield
        except ImportError as error:
            raise self.lack(str(error))

    def find(self, owner: Any, name: str) -> Any:
        """What a class, an instance or a module of the host has under a name that is relied on."""
        if not hasattr(owner, name):
            named = owner if hasattr(owner, "__name__") else type(owner)
            raise self.lack(f"{named.__name__} has no {name}")
        return getattr(owner, name)

    def lack(self, what: str) -> SpoError:
        supported = f"supported are releases {self.oldest} to {self.tested}: {self.remedy}"
        return SpoError(f"{self.title} is not as spo.integrations.{self.name} needs it: {what}; {supported}")


def numbers(version: str) -> tuple[int, ...]:
    """A release as numbers that can be compared; what follows them (rc1, +cpu) does not count."""
    return tuple(map(int, re.match(r"\d+(?:\.\d+)*", version).group().split(".")))


SB3_CONTRIB = {
    ("sb3_contrib/ppo_recurrent/ppo_recurrent.py", "RecurrentPPO.train"): 1,
    ("sb3_contrib/ppo_mask/ppo_mask.py", "MaskablePPO.train"): 1,
}
SKRL = {
    ("skrl/agents/torch/ppo/ppo.py", "PPO.update"): 1,
    ("skrl/agents/torch/ppo/ppo_rnn.py", "PPO_RNN.update"): 1,
    ("skrl/multi_agents/torch/ippo/ippo.py", "IPPO.update"): 1,
    ("skrl/multi_agents/torch/mappo/mappo.py", "MAPPO.update"): 1,
}
TORCHRL = {
    ("torchrl/objectives/ppo.py", "PPOLoss._log_weight"): 0,
    ("torchrl/objectives/ppo.py", "PPOLoss._maybe_normalize_advantage"): 0,
    ("torchrl/objectives/ppo.py", "ClipPPOLoss.forward"): 0,
}
VERL = {
    ("verl/trainer/ppo/core_algos.py", "register_policy_loss"): 0,
    ("verl/trainer/ppo/core_algos.py", "agg_loss"): 0,
    ("verl/utils/torch_functional.py", "masked_mean"): 0,
}
LEARNER = "ray/rllib/algorithms/ppo/torch/ppo_torch_learner.py", "PPOTorchLearner.compute_loss_for_module"
TIANSHOU = "tianshou/algorithm/modelfree/ppo.py", "PPO._update_with_batch"
BRAX = "brax/training/agents/ppo/losses.py", "compute_ppo_loss"
ZOO = {("rl_zoo3/train.py", "train"): 0, ("rl_zoo3/enjoy.py", "enjoy"): 0}
KNOWN = (
    Host(
        "sb3", "stable-baselines3", "2.0.0", "2.9.2", "clip_range", {("stable_baselines3/ppo/ppo.py", "PPO.train"): 1}
    ),
    Host("sb3_contrib", "sb3-contrib", "2.0.0", "2.9.2", "clip_range", SB3_CONTRIB),
    Host("rsl_rl", "rsl-rl-lib", "3.0.1", "5.5.1", "clip_param", {("rsl_rl/algorithms/ppo.py", "PPO.update"): 1}),
    Host("skrl", "skrl", "2.0.0", "2.1.1", "ratio_clip", SKRL),
    Host("torchrl", "torchrl", "0.14.0", "0.14.1", "clip_epsilon", TORCHRL),
    Host("trl", "trl", "1.0.0", "1.16.0", "epsilon", {("trl/trainer/grpo_trainer.py", "GRPOTrainer._compute_loss"): 1}),
    Host("verl", "verl", "0.9.0", "0.9.1", "clip_ratio", VERL),
    Host("rllib", "ray", "2.40.0", "2.60.0", "clip_param", {LEARNER: 1}),
    Host("tianshou", "tianshou", "2.0.0", "2.0.1", "eps_clip", {TIANSHOU: 2}),
    Host("rl_games", "rl-games", "1.6.5", "1.6.5", "e_clip", {("rl_games/common/common_losses.py", "actor_loss"): 0}),
    Host("sbx", "sbx-rl", "0.18.0", "0.28.0", "clip_range", {("sbx/ppo/ppo.py", "PPO._one_update"): 1}),
    Host("brax", "brax", "0.12.0", "0.14.2", "clipping_epsilon", {BRAX: 1}),
    Host("zoo", "rl_zoo3", "2.0.0", "2.9.2", "clip_range", ZOO),
)
"""Name, distribution, the oldest and the newest release that is tested, the host's name of ε, and the places."""
HOSTS = {host.name: host for host in KNOWN}
