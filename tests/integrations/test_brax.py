"""Brax: PPO's training through the rewriter is its own, SPO differs, and the host is left as it was."""

import numpy as np
import pytest
from hosting import require_host

require_host("brax")

import jax
from brax import envs
from brax.training.agents.ppo import losses
from brax.training.agents.ppo import train as ppo

from spo.errors import SpoError
from spo.integrations.brax import hosting


def train() -> list[np.ndarray]:
    _, parameters, _ = ppo.train(
        environment=envs.get_environment("fast"),
        num_timesteps=256,
        episode_length=16,
        num_envs=8,
        batch_size=8,
        num_minibatches=2,
        unroll_length=8,
        num_updates_per_batch=3,
        num_evals=1,
        learning_rate=1e-2,
        clipping_epsilon=0.2,
        seed=1,
    )
    return [np.asarray(leaf) for leaf in jax.tree.leaves(parameters)]


def are_close(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    """XLA fuses the two programs in its own ways, so the last bits may differ."""
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(one, other, strict=True))


def test_ppo_through_the_rewriter_is_the_hosts_ppo():
    own = losses.compute_ppo_loss
    host = train()
    with hosting("ppo-clip"):
        through = train()
    with hosting():
        assert losses.compute_ppo_loss is not own
        ours = train()
    assert losses.compute_ppo_loss is own
    assert are_close(host, through) and not are_close(host, ours)
    assert all(np.isfinite(weights).all() for weights in ours)


def test_a_bad_objective_is_refused():
    with pytest.raises(SpoError, match="objective 'tr-ppo' does not fit into brax"), hosting("tr-ppo"):
        pass
