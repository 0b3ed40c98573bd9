"""Advantages: closed forms, the definition written out, and TorchRL's implementation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spo.rollout import gae


def random_case(seed: int, steps: int = 12, envs: int = 3):
    torch.manual_seed(seed)
    reward, value, next_value = (torch.randn(steps, envs, dtype=torch.float64) for _ in range(3))
    done = torch.rand(steps, envs) < 0.25
    terminated = done & (torch.rand(steps, envs) < 0.5)
    return reward, value, next_value, terminated, done


seeds = st.integers(0, 10**6)
shares = st.floats(0, 1)


@given(seeds, shares)
def test_lambda_zero_is_the_one_step_error(seed, gamma):
    reward, value, next_value, terminated, done = random_case(seed)
    expected = reward + gamma * torch.where(terminated, 0.0, next_value) - value
    torch.testing.assert_close(gae(reward, value, next_value, terminated, done, gamma, 0.0), expected)


@given(seeds, shares, shares)
@settings(deadline=None)
def test_definition_written_out(seed, gamma, lam):
    """A(t) = Σ_k (γλ)^k δ(t + k), up to the end of the episode."""
    reward, value, next_value, terminated, done = random_case(seed)
    advantage = gae(reward, value, next_value, terminated, done, gamma, lam)
    for n in range(3):
        for t in range(12):
            total, weight = 0.0, 1.0
            for k in range(t, 12):
                bootstrap = 0.0 if terminated[k, n] else next_value[k, n].item()
                total += weight * (reward[k, n].item() + gamma * bootstrap - value[k, n].item())
                weight *= gamma * lam
                if done[k, n]:
                    break
            assert advantage[t, n].item() == pytest.approx(total, abs=1e-9)


def test_lambda_one_is_return_minus_value():
    reward = torch.ones(5, 1, dtype=torch.float64)
    value = torch.full((5, 1), 0.5, dtype=torch.float64)
    next_value = torch.tensor([[0.5], [0.5], [0.5], [0.5], [7.0]], dtype=torch.float64)
    never = torch.zeros(5, 1, dtype=torch.bool)
    advantage = gae(reward, value, next_value, never, never, 0.9, 1.0)
    expected = [sum(0.9**k for k in range(5 - t)) + 0.9 ** (5 - t) * 7.0 - 0.5 for t in range(5)]
    assert advantage[:, 0].tolist() == pytest.approx(expected)


@given(seeds, shares, shares)
def test_equals_torchrl(seed, gamma, lam):
    # Here, because it takes seconds, which collecting tests need not.
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    case = random_case(seed)
    reward, value, next_value, terminated, done = case
    batched = [x.transpose(0, 1).unsqueeze(-1) for x in (value, next_value, reward, done, terminated)]
    theirs, _ = generalized_advantage_estimate(gamma, lam, *batched)
    ours = gae(*case, gamma, lam)  # TorchRL multiplies by a single-precision γλ, hence the tolerance
    torch.testing.assert_close(ours, theirs.squeeze(-1).transpose(0, 1), rtol=1e-5, atol=1e-5)
