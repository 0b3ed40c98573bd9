"""Brax: PPO's training through the rewriter is its own, SPO differs, and the host is left as it was."""

import numpy as np
import pytest
from hosting import require_host, run_example

require_host("brax")

import jax
from brax import envs
from brax.training.agents.ppo import losses
from brax.training.agents.ppo import train as ppo

from spo.errors import SpoError
from spo.integrations.brax import hosting


def train(**changes) -> tuple:
    """The policy's and the value's parameters after a short training."""
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
        **changes,
    )
    return parameters


def leaves_of(parameters: tuple) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(parameters)]


def are_close(one: tuple, other: tuple) -> bool:
    """XLA fuses the two programs in its own ways, so the last bits may differ."""
    pairs = zip(leaves_of(one), leaves_of(other), strict=True)
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in pairs)


def test_ppo_through_the_rewriter_is_the_hosts_ppo():
    own = losses.compute_ppo_loss
    host = train()
    with hosting("ppo-clip"):
        through = train()
    with hosting():
        assert losses.compute_ppo_loss is not own
        ours = train()
        again = train(restore_params=ours)
    assert losses.compute_ppo_loss is own
    assert are_close(host, through) and not are_close(host, ours)
    assert not are_close(ours, again)
    assert all(np.isfinite(weights).all() for weights in leaves_of(ours) + leaves_of(again))


def test_the_pages_example_runs():
    short = {"1_000_000": "1", "clipping_epsilon=0.2": "clipping_epsilon=0.2, num_evals=1, num_minibatches=2"}
    environment = envs.get_environment("fast")
    assert run_example("Brax and MuJoCo Playground", short, environment=environment)["ppo"] is ppo


def test_a_jax_that_is_too_new_is_refused(monkeypatch):
    monkeypatch.setattr(jax, "__version__", "0.10.1")
    with pytest.raises(SpoError, match=r"brax \S+ does not train with jax 0.10.1: pip install 'jax<0.10'"), hosting():
        pass


def test_a_bad_objective_is_refused():
    with pytest.raises(SpoError, match="objective 'tr-ppo' does not fit into brax"), hosting("tr-ppo"):
        pass
