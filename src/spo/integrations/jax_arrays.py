"""What hosts that compute with JAX share: the guarded ratio, and an objective that is known to take JAX's arrays."""

import jax
import jax.numpy as jnp

from spo.errors import SpoError
from spo.integrations.hosts import Host
from spo.integrations.objective import HostedObjective, make_hosted
from spo.objectives import LARGEST_LOG_RATIO


def ratio_of(log_ratio: jax.Array) -> jax.Array:
    """exp(log r) with its value and slope capped at e¹⁵, as `spo.objectives.ratio_of`."""
    capped = LARGEST_LOG_RATIO + (log_ratio - jax.lax.stop_gradient(log_ratio))
    return jnp.exp(jnp.where(log_ratio > LARGEST_LOG_RATIO, capped, log_ratio))


def make_hosted_in_jax(name: str, host: Host, settings: dict[str, float] | None = None) -> HostedObjective:
    """The objective, if it is written for more than torch's tensors."""
    hosted = make_hosted(name, host, settings)
    try:
        jax.eval_shape(lambda ratio: hosted(ratio, ratio, 0.2), jnp.ones(2))
    except Exception as error:  # whatever a function raises that asks an array for what tensors have
        raise SpoError(f"objective {name!r} takes torch's tensors alone, not JAX's arrays ({type(error).__name__})")
    return hosted
