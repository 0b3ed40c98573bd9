"""TorchRL: SPOLoss with PPO's objective is ClipPPOLoss in all that it returns and in its gradients; SPO learns."""

import pytest
import torch
from hosting import require_host, run_example

require_host("torchrl")

from tensordict import TensorDict
from tensordict.nn import InteractionType, NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss

from spo.errors import SpoError
from spo.integrations.torchrl import SPOLoss
from spo.objectives import spo

OPTIONS = {
    "default": {},
    "value clip": {"clip_value": 0.2, "normalize_advantage": True},
    "delayed actor": {"delay_actor": True},
    "capped weights": {"max_importance_ratio": 1.1},
    "sum": {"reduction": "sum"},
    "no reduction": {"reduction": "none"},
    "two widths": {"clip_epsilon": (0.1, 0.3)},
}
KEYS = ("loss_objective", "loss_critic", "loss_entropy")


def networks() -> tuple[ProbabilisticActor, ValueOperator]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 4), NormalParamExtractor())
    module = TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"])
    actor = ProbabilisticActor(
        module,
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
        default_interaction_type=InteractionType.RANDOM,
    )
    return actor, ValueOperator(nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1)), in_keys=["observation"])


def sample(actor: ProbabilisticActor, size: int = 64) -> TensorDict:
    """Transitions of the actor, which is changed afterwards so that ratios leave 1 on both sides of the bound."""
    torch.manual_seed(1)
    data = actor(TensorDict({"observation": torch.randn(size, 3)}, [size])).detach()
    data["advantage"], data["value_target"] = torch.randn(size, 1), torch.randn(size, 1)
    data["state_value"] = torch.randn(size, 1)
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return data


def losses(loss: type[ClipPPOLoss], options: dict, **objective) -> tuple[TensorDict, list[torch.Tensor]]:
    actor, critic = networks()
    module = loss(actor, critic, **options, **objective)
    torch.manual_seed(2)  # the entropy of a squashed normal is sampled
    out = module(sample(actor))
    sum(out[key].sum() for key in KEYS).backward()
    return out.detach(), [parameter.grad for parameter in module.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_ppo_in_the_loss_is_the_hosts(options):
    """Up to the last bit of exp(log(1 + ε)), which the host takes for 1 + ε."""
    (host, host_gradients), (through, gradients) = (
        losses(ClipPPOLoss, options),
        losses(SPOLoss, options, objective="ppo-clip"),
    )
    assert set(host.keys()) == set(through.keys())
    for key in host.keys():
        torch.testing.assert_close(through[key], host[key], rtol=1e-6, atol=1e-6)
        assert key == "loss_objective" or torch.equal(through[key], host[key])
    assert len(gradients) == len(host_gradients) > 0
    for ours, theirs in zip(gradients, host_gradients):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)
    other, _ = losses(SPOLoss, options)
    assert not torch.equal(other["loss_objective"], host["loss_objective"])
    assert other["loss_objective"].isfinite().all() and torch.equal(other["loss_critic"], host["loss_critic"])


def test_the_objective_is_spo():
    actor, critic = networks()
    module, data = SPOLoss(actor, critic, clip_epsilon=0.3), sample(actor)
    ratio = (actor.get_dist(data).log_prob(data["action"]) - data["action_log_prob"]).exp()
    expected = -spo(ratio, data["advantage"].squeeze(-1), epsilon=0.3).mean()
    torch.testing.assert_close(module(data)["loss_objective"], expected)
    kept = module.hosted_objective.statistics()["ratio_deviation"]
    assert kept == pytest.approx((ratio - 1).abs().mean().item(), rel=1e-5)


def test_spo_learns():
    """A tanh-normal actor finds the action that is paid for: 0.5 in both dimensions."""
    actor, critic = networks()
    module = SPOLoss(actor, critic, clip_epsilon=0.3, normalize_advantage=True, entropy_bonus=False)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    observation = TensorDict({"observation": torch.randn(128, 3)}, [128])

    def distance() -> float:
        with torch.no_grad():
            return float((actor(observation.clone())["action"] - 0.5).square().mean())

    before = distance()
    for _ in range(15):
        data = actor(observation.clone()).detach()
        data["advantage"] = -(data["action"] - 0.5).square().sum(-1, keepdim=True)
        data["value_target"] = data["advantage"]
        for _ in range(4):
            optimizer.zero_grad()
            out = module(data)
            (out["loss_objective"] + out["loss_critic"]).backward()
            optimizer.step()
    assert distance() < before / 2


def test_a_bad_objective_is_refused():
    with pytest.raises(SpoError, match="objective 'tr-ppo' does not fit into torchrl .*: it asks for kl"):
        SPOLoss(*networks(), objective="tr-ppo")


def test_a_state_is_loaded_and_goes_on():
    actor, critic = networks()
    ours, data = SPOLoss(actor, critic), sample(actor)
    for loss in (SPOLoss, ClipPPOLoss):
        loaded = loss(*networks())
        loaded.load_state_dict(ours.state_dict())
        torch.manual_seed(2)
        there = loaded(data.clone())
        torch.manual_seed(2)
        assert torch.equal(there["loss_critic"], ours(data.clone())["loss_critic"])
        there["loss_objective"].backward()
        assert all(value.grad.isfinite().all() for value in loaded.parameters() if value.grad is not None)


@pytest.mark.parametrize("log_ratio", [20.0, 50.0, 88.0, 90.0])
def test_an_overflow_has_the_trainers_slope(log_ratio, monkeypatch):
    module, shift = SPOLoss(*networks()), torch.tensor(log_ratio, requires_grad=True)
    data = sample(networks()[0], size=1)
    data["advantage"] = -torch.ones(1, 1)
    weights = (shift.expand(1, 1), *ClipPPOLoss._log_weight(module, data, torch.Size([1, 1]))[1:])
    monkeypatch.setattr(ClipPPOLoss, "_log_weight", lambda *_, **__: weights)
    loss = module(data)["loss_objective"]
    largest = torch.tensor(15.0).exp()
    assert loss.isfinite() and torch.isclose(torch.autograd.grad(loss, shift)[0], (1 + (largest - 1) / 0.2) * largest)


def test_the_pages_example_runs():
    actor, critic = networks()
    assert run_example("TorchRL", actor=actor, critic=critic)["loss_module"](sample(actor))["loss_objective"].isfinite()
