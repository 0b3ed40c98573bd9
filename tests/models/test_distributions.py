"""Distributions against torch.distributions, and the acting half against the learning half."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import distributions as td

from spo.errors import SpoError
from spo.models.choose_distribution import distribution_for
from spo.models.distributions import Categorical, Gaussian
from spo.runtime.seeding import generator

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


@pytest.fixture
def choices():
    torch.manual_seed(0)
    space = gym.spaces.MultiDiscrete([[2, 3], [4, 2]], start=[[0, 1], [5, 0]])
    return distribution_for(space), torch.randn(5, 11, dtype=torch.float64), torch.randn(5, 11, dtype=torch.float64)


@pytest.fixture
def coins():
    torch.manual_seed(0)
    space = gym.spaces.MultiBinary(4)
    return distribution_for(space), torch.randn(5, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)


def test_independent_choices_equal_torch(choices):
    ours, old, new = choices
    action = torch.stack([torch.arange(5) % size for size in (2, 3, 4, 2)], -1)
    parts = [[td.Categorical(logits=part) for part in params.split((2, 3, 4, 2), -1)] for params in (old, new)]
    expected = sum(part.log_prob(action[:, i]) for i, part in enumerate(parts[0]))
    torch.testing.assert_close(ours.log_prob(old, action), expected)
    torch.testing.assert_close(ours.entropy(old), sum(part.entropy() for part in parts[0]))
    torch.testing.assert_close(ours.kl(old, new), sum(td.kl_divergence(a, b) for a, b in zip(*parts)))
    assert ours.to_env(np.array([[1, 2, 3, 0]])).tolist() == [[[1, 3], [8, 0]]]


def test_coins_equal_torch(coins):
    ours, old, new = coins
    action = torch.tensor([[0, 1, 1, 0]] * 5)
    theirs, other = (td.Independent(td.Bernoulli(logits=params), 1) for params in (old, new))
    torch.testing.assert_close(ours.log_prob(old, action), theirs.log_prob(action.double()))
    torch.testing.assert_close(ours.entropy(old), theirs.entropy())
    torch.testing.assert_close(ours.kl(old, new), td.kl_divergence(theirs, other))


KINDS = ["gaussian", "categorical", "choices", "coins"]


def drawn(ours, params, count):
    noise = ours.noise(generator(0, "test"), (count,))
    return torch.from_numpy(ours.sample(params.numpy().repeat(count, 0), noise))


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_equals_monte_carlo(kind, request):
    ours, params, _ = request.getfixturevalue(kind)
    count = 200_000
    surprise = -ours.log_prob(params[:1].expand(count, -1), drawn(ours, params[:1], count))
    assert ours.entropy(params[:1]).item() == pytest.approx(
        surprise.mean().item(), abs=5 * surprise.std().item() / count**0.5
    )


def test_a_masked_action_has_no_probability_and_everything_stays_finite(categorical):
    ours, old, new = (thing.float() if isinstance(thing, torch.Tensor) else thing for thing in categorical)
    mask = torch.tensor([True, False, True, False])
    old, new = ours.mask(old, mask), ours.mask(new, mask).requires_grad_()
    assert old.softmax(-1)[:, [1, 3]].abs().max() == 0
    total = (
        ours.kl(old, new) + ours.kl(new, old) + ours.entropy(new) + ours.log_prob(new, torch.zeros(5, dtype=torch.long))
    )
    total.sum().backward()
    assert total.isfinite().all() and new.grad.isfinite().all()
    alone = td.Categorical(logits=old[:, [0, 2]])
    torch.testing.assert_close(ours.entropy(old), alone.entropy())


@pytest.mark.parametrize("kind", KINDS)
def test_kl_is_zero_and_flat_at_the_old_policy(kind, request):
    ours, old, _ = request.getfixturevalue(kind)
    new = old.clone().requires_grad_()
    kl = ours.kl(old, new)
    kl.sum().backward()
    assert kl.abs().max() < 1e-12 and new.grad.abs().max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_kl_equals_monte_carlo(kind, request):
    ours, old, new = request.getfixturevalue(kind)
    old, new = old[:1], new[:1] * 0.5 + old[:1] * 0.5
    count = 200_000
    action = drawn(ours, old, count)
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
    with pytest.raises(SpoError, match="Text.*accepted are Box"):
        distribution_for(gym.spaces.Text(3))
