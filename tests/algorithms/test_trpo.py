"""TRPO's rule: the solver, the promise of an accepted step, and what happens when there is none."""

import gymnasium as gym
import pytest
import torch
from test_minibatch_update import batch_of

from probes import iterate, training
from spo.algorithms.losses import normalize
from spo.algorithms.trpo import conjugate_gradient

SETTINGS = {"objective": "trpo", "envs": 4, "horizon": 64, "normalize_reward": "off"}


def test_conjugate_gradient_solves_a_known_system():
    torch.manual_seed(0)
    root = torch.randn(8, 8, dtype=torch.float64)
    matrix = root @ root.T + torch.eye(8, dtype=torch.float64)
    expected = torch.randn(8, dtype=torch.float64)
    solution = conjugate_gradient(lambda x: matrix @ x, matrix @ expected, 30)
    torch.testing.assert_close(solution, expected)


def prepared(env: str, **settings):
    run = training(env, **SETTINGS | settings)
    _, batch = batch_of(run)
    return run, batch._replace(advantage=normalize(batch.advantage, batch.advantage))


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("delta", [0.001, 0.01, 0.1])
def test_an_accepted_step_improves_within_the_trust_region(env, delta):
    run, batch = prepared(env, delta=delta)
    rule = run.update
    before, _ = rule._surrogate_and_gradient(batch)
    stats = rule.policy_step(batch)
    after, _ = rule._surrogate_and_gradient(batch)
    params = run.network(batch.observation, "dist_params")
    kl = run.distribution.kl(batch.old_dist_params, params).mean().item()
    assert stats["step_fraction"] > 0 and after > before
    assert 0.2 * delta < kl <= delta  # a step worth the name


def test_a_failed_line_search_restores_every_bit(monkeypatch):
    run, batch = prepared("Pendulum-v1")
    before = run.parameters.vector.clone()
    monkeypatch.setattr(run.update, "_is_accepted", lambda *_: False)
    assert run.update.policy_step(batch)["step_fraction"] == 0.0
    assert torch.equal(run.parameters.vector, before)


def test_the_line_search_backtracks_until_a_step_is_accepted(monkeypatch):
    run, batch = prepared("Pendulum-v1", backtrack=0.5)
    answers = iter([False, False, True])
    monkeypatch.setattr(run.update, "_is_accepted", lambda *_: next(answers))
    assert run.update.policy_step(batch)["step_fraction"] == 0.25


@pytest.mark.parametrize("advantage", [0.0, float("nan")])
def test_without_a_usable_gradient_nothing_moves(advantage):
    run, batch = prepared("CartPole-v1")
    before = run.parameters.vector.clone()
    run.update.policy_step(batch._replace(advantage=torch.full((256,), advantage)))
    assert torch.equal(run.parameters.vector, before)


def test_an_indefinite_fisher_matrix_makes_no_step(monkeypatch):
    run, batch = prepared("CartPole-v1")
    monkeypatch.setattr(run.update, "_fisher_product", lambda batch: lambda v: -v)
    before = run.parameters.vector.clone()
    run.update.policy_step(batch)
    assert torch.equal(run.parameters.vector, before)


def test_the_fisher_product_is_the_hessian_of_the_kl():
    """By finite differences of the gradient of KL(old‖new) at the old policy."""
    run, batch = prepared("Pendulum-v1", hidden=(8,), damping=0.0)
    rule, size = run.update, run.parameters.policy_size
    direction = torch.randn(size, generator=torch.Generator().manual_seed(0))

    def kl_gradient(shift: float) -> torch.Tensor:
        leaf = (run.parameters.vector[:size] + shift * direction).requires_grad_()
        vector = torch.cat([leaf, run.parameters.vector[size:]])
        params = run.parameters.call(vector, batch.observation, part="dist_params")
        return torch.autograd.grad(run.distribution.kl(batch.old_dist_params, params).mean(), leaf)[0]

    difference = (kl_gradient(1e-2) - kl_gradient(-1e-2)) / 2e-2
    torch.testing.assert_close(rule._fisher_product(batch)(direction), difference, rtol=0.05, atol=1e-3)


def test_the_policy_step_leaves_the_critic_and_the_critic_the_policy(monkeypatch):
    run, batch = prepared("CartPole-v1")
    size = run.parameters.policy_size
    assert all(name.startswith("critic") == (position >= len(run.parameters.names) - 6)
               for position, name in enumerate(run.parameters.names))  # fmt: skip
    before = run.parameters.vector.clone()
    run.update.policy_step(batch)
    stepped = run.parameters.vector.clone()
    assert torch.equal(stepped[size:], before[size:]) and not torch.equal(stepped[:size], before[:size])
    run.update.epochs(batch, 1e-3, {}, lambda order, samples: False)
    after = run.parameters.vector
    assert torch.equal(after[:size], stepped[:size]) and not torch.equal(after[size:], stepped[size:])


def test_ratios_are_those_after_the_step():
    row = iterate(training("Pendulum-v1", **SETTINGS), 1)[0]
    assert row["ratio_deviation"] > 0.01 and 0 < row["kl"] <= 0.01 and row["step_fraction"] > 0


def test_one_action_leaves_nothing_to_improve():
    class OneAction(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (1,))
        action_space = gym.spaces.Discrete(1)

        def reset(self, *, seed=None, options=None):
            return self.observation_space.sample(), {}

        def step(self, action):
            return self.observation_space.sample(), 1.0, False, False, {}

    assert iterate(training(OneAction, **SETTINGS), 1)[0]["step_fraction"] == 0.0
