"""sbx: its PPO through the rewriter is its PPO, SPO differs; files; objectives and ratios on JAX's arrays."""

import numpy as np
import pytest
import torch
from hosting import Guess, require_host, run_example

require_host("sbx")

import jax
import jax.numpy as jnp
from sbx import PPO

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS
from spo.integrations.jax_arrays import make_hosted_in_jax, ratio_of
from spo.integrations.objective import fitting_objectives, make_hosted
from spo.integrations.sbx import SPO
from spo.objectives import OBJECTIVES, Objective


def train(algorithm: type[PPO], steps: int = 128, **settings) -> PPO:
    chosen = {"n_steps": 64, "batch_size": 32, "n_epochs": 3, "seed": 1, "learning_rate": 1e-2} | settings
    return algorithm("MlpPolicy", Guess(), **chosen).learn(steps)


def weights_of(model: PPO) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(model.policy.actor_state.params)]


def are_close(one: PPO, other: PPO) -> bool:
    """XLA fuses the two programs in its own ways, so the last bits may differ."""
    return all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(weights_of(one), weights_of(other), strict=True))


def test_ppo_through_the_rewriter_is_the_hosts_ppo(tmp_path):
    host, through, ours = train(PPO), train(SPO, objective="ppo-clip"), train(SPO)
    assert are_close(host, through)
    assert not are_close(host, ours)
    assert all(np.isfinite(weights).all() for weights in weights_of(ours))
    ours.save(tmp_path / "model")
    for algorithm in (SPO, PPO):
        assert are_close(algorithm.load(tmp_path / "model"), ours)
    again = SPO.load(tmp_path / "model", env=ours.get_env())
    again.learn(64, reset_num_timesteps=False)
    assert again.objective == "spo" and not are_close(again, ours)


def test_objectives_of_ratio_and_advantage_take_arrays_of_all_libraries():
    rng = np.random.default_rng(1)
    ratio, advantage = (
        np.exp(rng.normal(size=200, scale=0.5)).astype(np.float32),
        rng.normal(size=200).astype(np.float32),
    )
    for name in ("spo", "spo-power", "ppo-clip", "simple", "ppo-rb", "ppo-dual-clip", "aspo", "clip-higher"):
        function = OBJECTIVES[name].function
        expected = function(torch.from_numpy(ratio), torch.from_numpy(advantage)).numpy()
        np.testing.assert_allclose(function(ratio, advantage), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(jax.jit(function)(ratio, advantage), expected, rtol=1e-5, atol=1e-6)
        leaf = torch.from_numpy(ratio).requires_grad_()
        function(leaf, torch.from_numpy(advantage)).sum().backward()
        gradient = jax.grad(lambda r, a, f=function: f(r, a).sum())(jnp.asarray(ratio), jnp.asarray(advantage))
        np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("log_ratio", [-200.0, 1.0, 20.0, 50.0, 88.0, 90.0])
def test_a_ratio_that_overflows_has_the_trainers_slope(log_ratio):
    value, slope = jax.value_and_grad(ratio_of)(jnp.float32(log_ratio))
    assert value == pytest.approx(np.exp(min(log_ratio, 15)), rel=1e-5)
    assert slope == pytest.approx(np.exp(min(log_ratio, 15)), rel=1e-5)


def test_two_widths_and_log_ratios_work_with_jax():
    for name in fitting_objectives():
        hosted = make_hosted_in_jax(name, HOSTS["sbx"])
        ratio, advantage = jnp.array([0.5, 1.5]), jnp.array([1.0, -1.0])
        expected = make_hosted(name, HOSTS["sbx"])(torch.tensor([0.5, 1.5]), torch.tensor([1.0, -1.0]), 0.1, 0.3)
        np.testing.assert_allclose(hosted(ratio, advantage, 0.1, 0.3), expected.numpy(), rtol=1e-5)


def test_what_takes_tensors_alone_is_refused(monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "torch-only", Objective("torch-only", lambda ratio, advantage: ratio.detach()))
    with pytest.raises(SpoError, match="objective 'torch-only' takes torch's tensors alone, not JAX's arrays"):
        train(SPO, objective="torch-only")


def test_a_rate_that_follows_the_kl_is_warned_of():
    with pytest.warns(UserWarning, match="target_kl raises the learning rate to its cap under 'spo'"):
        SPO("MlpPolicy", Guess(), n_steps=64, batch_size=32, target_kl=0.01)


def test_the_pages_example_runs():
    assert run_example("sbx", {"100_000": "2048"})["model"].num_timesteps == 2048
