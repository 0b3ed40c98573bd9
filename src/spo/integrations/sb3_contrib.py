"""sb3-contrib: `RecurrentSPO` and `MaskableSPO` are its `RecurrentPPO` and `MaskablePPO` with another objective."""

from spo.integrations.hosts import HOSTS

with HOSTS["sb3_contrib"].importing():
    from sb3_contrib import MaskablePPO, RecurrentPPO

from spo.integrations.rewriting import rewrite
from spo.integrations.sb3 import WithObjective


class RecurrentSPO(WithObjective, RecurrentPPO):
    """RecurrentPPO that maximises SPO's objective, or another of the registry; padded steps stay masked."""

    host = HOSTS["sb3_contrib"]
    hosted_train = rewrite(host.find(RecurrentPPO, "train"), host, inputs={"mask": "mask"})


class MaskableSPO(WithObjective, MaskablePPO):
    """MaskablePPO that maximises SPO's objective, or another of the registry."""

    host = HOSTS["sb3_contrib"]
    hosted_train = rewrite(host.find(MaskablePPO, "train"), host)
