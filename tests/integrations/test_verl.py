"""verl: installing the project makes its losses known; PPO's is verl's, SPO differs; drpo's input is there."""

import subprocess
import sys

import pytest
import torch
from hosting import are_equal, require_host

require_host("verl")

from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig

from spo.integrations.verl import PolicyLoss
from spo.objectives import OBJECTIVES, Objective, spo


def config(**changes) -> ActorConfig:
    settings = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 2, "clip_ratio": 0.2}
    return ActorConfig(**settings | {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 1e9} | changes)


@pytest.fixture
def tokens():
    generator = torch.Generator().manual_seed(1)
    old = -torch.rand(4, 9, generator=generator) * 3
    new = (old + 0.4 * torch.randn(4, 9, generator=generator)).requires_grad_()
    mask = (torch.rand(4, 9, generator=generator) < 0.8).float()
    return old, new, torch.randn(4, 9, generator=generator), mask


def evaluate(loss, tokens, mode: str = "token-mean", **changes):
    old, new, advantage, mask = tokens
    value, metrics = loss(old, new, advantage, mask, mode, config(**changes))
    return (value, torch.autograd.grad(value, new)[0]), metrics


MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("high", [0.2, 0.28])
def test_ppo_is_the_hosts(mode, high, tokens):
    host, theirs = evaluate(get_policy_loss_fn("vanilla"), tokens, mode, clip_ratio_high=high)
    through, ours = evaluate(get_policy_loss_fn("ppo-clip"), tokens, mode, clip_ratio_high=high)
    assert are_equal(host, through)
    assert ours.items() >= theirs.items()  # the host's metrics to the bit, and the ratios' statistics
    other, _ = evaluate(get_policy_loss_fn("spo"), tokens, mode, clip_ratio_high=high)
    assert not are_equal(host, other) and other[0].isfinite() and other[1].isfinite().all()


def test_dual_clip_is_the_hosts_default(tokens):
    host, _ = evaluate(get_policy_loss_fn("vanilla"), tokens, clip_ratio_c=3.0)
    through, _ = evaluate(get_policy_loss_fn("ppo-dual-clip"), tokens, clip_ratio_c=3.0)
    assert are_equal(host, through)


def test_the_loss_is_spo_and_masked_tokens_do_not_count(tokens):
    old, new, advantage, mask = tokens
    (value, _), metrics = evaluate(get_policy_loss_fn("spo"), tokens)
    ratio = (new - old).exp()
    expected = -(spo(ratio, advantage, epsilon=0.2) * mask).sum() / mask.sum()
    torch.testing.assert_close(value, expected)
    deviation = float(((ratio - 1).abs() * mask).sum().detach() / mask.sum())
    assert metrics["actor/ratio_deviation"] == pytest.approx(deviation, rel=1e-5)


def test_weights_of_the_rollout_are_applied(tokens):
    old, new, advantage, mask = tokens
    weights = torch.full_like(old, 0.5)
    half, _ = get_policy_loss_fn("spo")(old, new, advantage, mask, "token-mean", config(), weights)
    torch.testing.assert_close(half * 2, evaluate(get_policy_loss_fn("spo"), tokens)[0][0])


@pytest.mark.parametrize("log_ratio", [20.0, 50.0, 88.0, 90.0])
def test_an_overflow_has_the_trainers_slope(log_ratio):
    old, mask, advantage = torch.full((1, 2), -100.0), torch.ones(1, 2), torch.tensor([[-1.0, 1.0]])
    new = torch.tensor([[log_ratio - 100, -99.9]], requires_grad=True)
    value, gradient = evaluate(get_policy_loss_fn("spo"), (old, new, advantage, mask))[0]
    largest = torch.tensor(15.0).exp()
    assert value.isfinite() and gradient.isfinite().all()
    assert torch.isclose(gradient[0, 0], (1 + (largest - 1) / 0.2) * largest / 2)


def test_a_clip_ratio_that_verl_does_not_read_is_warned_of(tokens):
    with pytest.warns(UserWarning, match="clip_ratio 0.4 has no effect: verl's clip_ratio_low 0.2 and .*high 0.2"):
        evaluate(get_policy_loss_fn("spo"), tokens, clip_ratio=0.4)
    widths = {"clip_ratio": 0.4, "clip_ratio_low": None, "clip_ratio_high": None}
    (nulled, _), _ = evaluate(get_policy_loss_fn("spo"), tokens, **widths)
    (named, _), _ = evaluate(get_policy_loss_fn("spo"), tokens, **dict.fromkeys(widths, 0.4))
    assert torch.equal(nulled, named)


def test_the_old_log_probability_reaches_an_objective(tokens, monkeypatch):
    def weighed(ratio, advantage, old_log_prob, *, epsilon: float = 0.2):
        return ratio * advantage * old_log_prob.exp()

    monkeypatch.setitem(OBJECTIVES, "weighed", Objective("weighed", weighed))
    (value, _), _ = evaluate(PolicyLoss("weighed"), tokens)
    old, new, advantage, mask = tokens
    torch.testing.assert_close(value, -(new.exp() * advantage * mask).sum() / mask.sum())


def test_installing_is_enough():
    """A process that imports verl alone knows the losses, by the entry point."""
    code = "from verl.trainer.ppo.core_algos import get_policy_loss_fn as f; print(type(f('spo')).__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "spo.integrations.verl"
