"""Brax, and MuJoCo Playground's `train_jax_ppo.py`: PPO's loss with another objective while a block runs.

from brax.training.agents.ppo import train as ppo
from spo.integrations.brax import hosting

with hosting("spo"):
    ppo.train(environment, clipping_epsilon=0.2, episode_length=1000, ...)
"""

import contextlib
from collections.abc import Iterator

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS, numbers

HOST = HOSTS["brax"]
with HOST.importing():
    import jax
    from brax.training.agents.ppo import losses

from spo.integrations.jax_arrays import make_hosted_in_jax, ratio_of
from spo.integrations.rewriting import rewrite


def refuse_new_jax() -> None:
    """Refuses a jax from which Brax's trainer asks for what is gone; a later Brax may know better."""
    if numbers(jax.__version__) >= (0, 10) and numbers(HOST.version) <= numbers(HOST.tested):
        raise SpoError(f"{HOST.title} does not train with jax {jax.__version__}: pip install 'jax<0.10' 'jaxlib<0.10'")


@contextlib.contextmanager
def hosting(objective: str = "spo", **settings: float) -> Iterator[None]:
    """Puts an objective into Brax's PPO for all trainings that begin inside the block."""
    refuse_new_jax()
    hosted = make_hosted_in_jax(objective, HOST, settings)
    host = HOST.find(losses, "compute_ppo_loss")
    losses.compute_ppo_loss = rewrite(host, HOST, hosted, ratio_of=ratio_of)
    try:
        yield
    finally:
        losses.compute_ppo_loss = host
