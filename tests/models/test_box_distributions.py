"""Distributions for Box actions against torch.distributions, and actions in their own range."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import distributions as reference

from spo.errors import ConfigError
from spo.models.box_distributions import NODES
from spo.models.choose_distribution import describe_action_scale, distribution_for, has_far_bounds, resolve_action_scale

LOW, HIGH = np.array([0.0, -0.1, -2.0], np.float32), np.array([100.0, 0.1, 5.0], np.float32)
BOX = gym.spaces.Box(LOW, HIGH)
OLD, NEW = torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def to_bounds(base, from_low: float):
    """A distribution of torch over (from_low, 1), over the bounds instead."""
    low, high = torch.from_numpy(LOW.astype(float)), torch.from_numpy(HIGH.astype(float))
    scale = (high - low) / (1 - from_low)
    return reference.TransformedDistribution(base, reference.AffineTransform(low - from_low * scale, scale))


def squashed(params):
    mean, log_std = params.chunk(2, dim=-1)
    tanh = reference.TransformedDistribution(reference.Normal(mean, log_std.exp()), reference.TanhTransform())
    return to_bounds(tanh, -1.0)


def beta(params):
    return reference.Beta(*(1 + torch.nn.functional.softplus(params)).chunk(2, dim=-1))


def test_a_gaussian_of_the_state_is_a_normal_distribution():
    ours = distribution_for(BOX, "gaussian-state")
    mean, log_std = OLD.chunk(2, dim=-1)
    theirs, action = reference.Normal(mean, log_std.exp()), NEW[:, :3]
    assert ours.outputs == ours.params_size == 6 and not ours.has_log_std
    torch.testing.assert_close(ours.log_prob(OLD, action), theirs.log_prob(action).sum(-1))
    torch.testing.assert_close(ours.entropy(OLD), theirs.entropy().sum(-1))


def test_a_squashed_gaussian_has_the_density_of_the_environments_action():
    ours, before = distribution_for(BOX, "squashed"), NEW[:, :3]
    action = torch.from_numpy(ours.to_env(before.numpy()))
    torch.testing.assert_close(ours.log_prob(OLD, before), squashed(OLD).log_prob(action).sum(-1), rtol=1e-6, atol=1e-6)


def test_the_entropy_of_a_squashed_gaussian_is_that_of_its_draws():
    """Against the mean over draws, within five of its standard errors; more nodes hardly change it."""
    ours = distribution_for(BOX, "squashed")
    mean, log_std = OLD.chunk(2, dim=-1)
    noise = torch.randn(40_000, 7, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    draws = -ours.log_prob(OLD, mean + log_std.exp() * noise)
    error = draws.std(0) / len(draws) ** 0.5
    assert ((ours.entropy(OLD) - draws.mean(0)).abs() < 5 * error).all()
    assert NODES == 64 and ours.entropy(OLD).isfinite().all()


def test_the_kl_of_squashed_gaussians_is_that_of_the_gaussians():
    plain, ours = distribution_for(BOX, "gaussian"), distribution_for(BOX, "squashed")
    torch.testing.assert_close(ours.kl(OLD, NEW), plain.kl(OLD, NEW))


def test_beta_agrees_with_torch():
    ours = distribution_for(BOX, "beta")
    share = torch.rand(7, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    theirs = to_bounds(beta(OLD), 0.0)
    action = torch.from_numpy(LOW.astype(float)) + share * torch.from_numpy(HIGH.astype(float) - LOW)
    widths = torch.from_numpy(np.log(HIGH.astype(float) - LOW))
    torch.testing.assert_close(ours.log_prob(OLD, share), theirs.log_prob(action).sum(-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.entropy(OLD), (beta(OLD).entropy() + widths).sum(-1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.kl(OLD, NEW), reference.kl_divergence(beta(OLD), beta(NEW)).sum(-1))


@pytest.mark.parametrize("name", ["squashed", "beta"])
def test_samples_stay_within_the_bounds_and_follow_the_noise(name):
    ours = distribution_for(BOX, name)
    params = np.random.default_rng(4).normal(size=(500, 6), scale=4).astype(np.float32)
    noise = ours.noise(np.random.default_rng(5), (500,))
    sample = ours.sample(params, noise)
    assert np.array_equal(sample, ours.sample(params, noise))
    assert all(BOX.contains(action) for action in ours.to_env(sample))
    assert all(BOX.contains(action) for action in ours.to_env(ours.mode(params)))
    assert ours.clipped_fraction(sample) == 0
    assert np.isfinite(ours.log_prob(torch.from_numpy(params), torch.from_numpy(sample))).all()


def test_beta_samples_have_the_distributions_mean():
    ours = distribution_for(BOX, "beta")
    params = np.tile(np.array([0.3, 1.0, -1.0, 0.0, 2.0, 0.5], np.float32), (50_000, 1))
    sample = ours.sample(params, ours.noise(np.random.default_rng(6), (50_000,)))
    np.testing.assert_allclose(sample.mean(0), beta(torch.from_numpy(params[0])).mean, atol=0.005)


def test_scaled_actions_reach_from_bound_to_bound():
    ours = distribution_for(BOX, "gaussian", "bounds")
    action = np.array([[-3, -1, 0], [0, 0, 0], [1, 1, 3]], np.float32)
    np.testing.assert_allclose(ours.to_env(action), [[0, -0.1, 1.5], [50, 0, 1.5], [100, 0.1, 5]], atol=1e-6)
    assert ours.clipped_fraction(action) == pytest.approx(2 / 9)
    assert distribution_for(BOX).clipped_fraction(np.array([[-1.0, 0.05, 0.0]])) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "low, high, is_far",
    [(-1, 1, False), (-0.4, 0.4, False), (-3, 3, False), (0, 1, False), (0, 100, True), (-0.1, 0.1, True)],
)
def test_bounds_that_a_gaussian_cannot_use_are_far(low, high, is_far):
    space = gym.spaces.Box(low, high, (2,))
    assert has_far_bounds(space) == is_far
    assert resolve_action_scale(space, "gaussian", "auto") == ("bounds" if is_far else "off")
    assert (describe_action_scale(space, "gaussian", "off") is not None) == is_far
    assert resolve_action_scale(space, "gaussian", "off") == "off"


MUJOCO = (
    "Ant HalfCheetah Hopper Humanoid HumanoidStandup Reacher Swimmer Walker2d InvertedPendulum InvertedDoublePendulum"
)


@pytest.mark.parametrize("name", [*(f"{name}-v4" for name in MUJOCO.split()), "Pendulum-v1"])
def test_the_papers_tasks_keep_their_actions_as_they_are(name):
    pytest.importorskip("mujoco")
    with gym.make(name) as env:
        assert resolve_action_scale(env.action_space, "gaussian", "auto") == "off"


UNBOUNDED = gym.spaces.Box(-np.inf, np.inf, (2,))
LARGEST = np.finfo(np.float32).max


@pytest.mark.parametrize(
    "space, name, scale, told",
    [
        (UNBOUNDED, "squashed", "auto", "--distribution squashed does not fit"),
        (UNBOUNDED, "beta", "off", "--distribution beta does not fit"),
        (gym.spaces.Box(-LARGEST, LARGEST, (2,)), "squashed", "auto", "it must be a Box with finite bounds"),
        (gym.spaces.Box(np.float32([-1, 0]), np.float32([1, 0])), "beta", "auto", "its bounds must be apart"),
        (UNBOUNDED, "gaussian", "bounds", "--action-scale bounds does not fit"),
        (gym.spaces.Discrete(3), "categorical", "bounds", "--action-scale bounds does not fit"),
    ],
)
def test_bounds_that_are_not_there_cannot_be_mapped_to(space, name, scale, told):
    with pytest.raises(ConfigError, match=told):
        resolve_action_scale(space, name, scale)


def test_the_largest_numbers_of_a_type_are_no_bounds():
    """Mapped to them, an action of ±1 would not be finite."""
    space = gym.spaces.Box(-LARGEST, LARGEST, (2,))
    assert not has_far_bounds(space) and resolve_action_scale(space, "gaussian", "auto") == "off"
    assert distribution_for(space).to_env(np.float32([[0.5, -7]])).tolist() == [[0.5, -7]]


def test_a_distribution_that_does_not_fit_is_refused():
    with pytest.raises(
        ConfigError, match="--distribution beta does not fit .*: it must be auto, which is categorical there"
    ):
        distribution_for(gym.spaces.Discrete(3), "beta")
    with pytest.raises(ConfigError, match="an action mask is not accepted by Gaussian"):
        distribution_for(BOX).mask(np.zeros(6), np.ones(6, bool))
