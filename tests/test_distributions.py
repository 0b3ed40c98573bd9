"""Distributions against torch.distributions, and the acting half against the learning half."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import distributions as td

from spo.distributions import Categorical, Gaussian, distribution_for
from spo.errors import Refusal
from spo.seeding import generator

BOX = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
CHOICE = gym.spaces.Discrete(4, start=10)


@pytest.fixture
def gaussian():
    torch.manual_seed(0)
    return Gaussian(BOX), torch.randn(5, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)


@pytest.fixture
def categorical():
    torch.manual_seed(0)
    return Categorical(CHOICE), torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)


def normal(params):
    mean, log_std = params.chunk(2, dim=-1)
    return td.Independent(td.Normal(mean, log_std.exp()), 1)


def test_gaussian_equals_torch(gaussian):
    ours, old, new = gaussian
    action = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(ours.log_prob(old, action), normal(old).log_prob(action))
    torch.testing.assert_close(ours.entropy(old), normal(old).entropy())
    torch.testing.assert_close(ours.kl(old, new), td.kl_divergence(normal(old), normal(new)))


def test_categorical_equals_torch(categorical):
    ours, old, new = categorical
    action = torch.tensor([0, 1, 2, 3, 0])
    theirs = td.Categorical(logits=old)
    torch.testing.assert_close(ours.log_prob(old, action), theirs.log_prob(action))
    torch.testing.assert_close(ours.entropy(old), theirs.entropy())
    torch.testing.assert_close(ours.kl(old, new), td.kl_divergence(theirs, td.Categorical(logits=new)))


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_kl_is_zero_and_flat_at_the_old_policy(kind, request):
    ours, old, _ = request.getfixturevalue(kind)
    new = old.clone().requires_grad_()
    kl = ours.kl(old, new)
    kl.sum().backward()
    assert kl.abs().max() < 1e-12 and new.grad.abs().max() < 1e-12


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_kl_equals_monte_carlo(kind, request):
    ours, old, new = request.getfixturevalue(kind)
    old, new = old[:1], new[:1] * 0.5 + old[:1] * 0.5
    count = 200_000
    noise = ours.noise(generator(0, "test"), (count,))
    action = torch.from_numpy(ours.sample(old.numpy().repeat(count, 0), noise))
    estimate = ours.log_prob(old.expand(count, -1), action) - ours.log_prob(new.expand(count, -1), action)
    error = estimate.std().item() / count**0.5
    assert ours.kl(old, new).item() == pytest.approx(estimate.mean().item(), abs=5 * error)


def test_half_the_mean_deviation_is_the_total_variation(categorical):
    """½·E_old|r − 1| = TV, and TV ≤ √(KL/2): what the ratio deviation measures."""
    ours, old, new = categorical
    p, q = old.softmax(-1), new.softmax(-1)
    variation = 0.5 * (p - q).abs().sum(-1)
    torch.testing.assert_close(0.5 * (p * (q / p - 1).abs()).sum(-1), variation)
    assert (variation <= (ours.kl(old, new) / 2).sqrt()).all()


def test_sampled_frequencies_follow_the_probabilities(categorical):
    ours, old, _ = categorical
    count = 100_000
    params = old[:1].numpy().repeat(count, 0)
    drawn = ours.sample(params, ours.noise(generator(1, "test"), (count,)))
    frequency = np.bincount(drawn, minlength=4) / count
    assert frequency == pytest.approx(old[0].softmax(-1).numpy(), abs=0.01)


def test_actions_reach_the_environment_clipped_and_shifted():
    assert Gaussian(BOX).to_env(np.array([[-3.0, 0.5, 3.0]])).tolist() == [[-1.0, 0.5, 1.0]]
    assert Categorical(CHOICE).to_env(np.array([0, 3])).tolist() == [10, 13]


def test_unsupported_action_space_is_refused():
    with pytest.raises(Refusal, match="Text.*accepted are Box"):
        distribution_for(gym.spaces.Text(3))
