"""The update: against Stable-Baselines3, compiled against eager, and what its statistics mean."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

from probes import ActionReward, iterate, training
from spo.distributions import distribution_for
from spo.errors import Refusal
from spo.improve import (
    LARGEST_LOGGED_LOG_RATIO,
    AdamState,
    adam_scales,
    adam_step,
    example_batch,
    explained_variance,
    ratio_statistics,
    slope_statistics,
    value_loss,
)
from spo.objectives import OBJECTIVES

TASKS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}


@pytest.mark.parametrize("env", TASKS.values())
def test_a_full_update_equals_stable_baselines3(env):
    """Equal weights and batch, three epochs of one minibatch (so that no shuffling can differ): equal parameters."""
    theirs = PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: gym.make(env)] * 2),
        n_steps=64,
        batch_size=128,
        n_epochs=3,
        ent_coef=0.01,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}},
    )
    _, callback = theirs._setup_learn(128)
    theirs.collect_rollouts(theirs.env, callback, theirs.rollout_buffer, 64)
    ours = training(
        env,
        objective="ppo-clip",
        envs=2,
        horizon=64,
        minibatches=1,
        epochs=3,
        adam_eps=1e-5,
        value_clip="off",
        value_coef=1.0,  # theirs is 0.5 times a mean, ours 0.5 times that half of a mean
        entropy_coef=0.01,
    )
    ours.network.load_state_dict(sb3_weights(theirs.policy))
    batch = sb3_batch(theirs.rollout_buffer, theirs.policy, env == "CartPole-v1")
    ours.improve(batch, 3e-4)
    theirs.train()
    for name, weight in sb3_weights(theirs.policy).items():
        torch.testing.assert_close(dict(ours.network.named_parameters())[name], weight, rtol=1e-4, atol=2e-6)


def sb3_weights(policy) -> dict[str, torch.Tensor]:
    """Stable-Baselines3's weights under our names."""
    layers = {
        "actor.0": policy.mlp_extractor.policy_net[0],
        "actor.2": policy.mlp_extractor.policy_net[2],
        "actor.4": policy.action_net,
        "critic.0": policy.mlp_extractor.value_net[0],
        "critic.2": policy.mlp_extractor.value_net[2],
        "critic.4": policy.value_net,
    }
    weights = {
        f"{name}.{part}": getattr(layer, part).data for name, layer in layers.items() for part in ("weight", "bias")
    }
    return weights | ({"log_std": policy.log_std.data} if hasattr(policy, "log_std") else {})


def sb3_batch(buffer, policy, is_discrete: bool) -> dict[str, torch.Tensor]:
    data = next(buffer.get(128))
    params = policy.get_distribution(data.observations).distribution
    old_params = params.logits if is_discrete else torch.cat([params.mean, params.stddev.log()], -1)
    return {
        "observation": data.observations,
        "action": data.actions.long().flatten() if is_discrete else data.actions,
        "old_log_prob": data.old_log_prob,
        "old_value": data.old_values,
        "old_params": old_params.detach(),
        "value_target": data.returns,
        "advantage": data.advantages,
    }


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("space", TASKS)
def test_the_compiled_update_equals_the_eager_one(objective, space):
    """Every parameter agrees to 1e-5 after an iteration from equal weights and batch."""
    settings = {"objective": objective, "envs": 4, "horizon": 64, "epochs": 4, "hidden": (32, 32), "entropy_coef": 0.01}
    eager, compiled = (training(TASKS[space], **settings) for _ in range(2))
    example = example_batch(compiled.spec.observation_shape, compiled.distribution, compiled.config.minibatch_size)
    compiled.improve.compile(example)
    rows = [iterate(run, 1)[0] for run in (eager, compiled)]
    torch.testing.assert_close(compiled.parameters.vector, eager.parameters.vector, rtol=0, atol=1e-5)
    torch.testing.assert_close(compiled.improve.adam.second, eager.improve.adam.second, rtol=1e-3, atol=1e-6)
    assert rows[0].keys() == rows[1].keys()
    for name, value in rows[0].items():
        assert rows[1][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


def test_adam_equals_torch():
    torch.manual_seed(0)
    vector = torch.randn(50)
    reference = vector.clone().requires_grad_()
    optimizer = torch.optim.Adam([reference], lr=0.01, eps=1e-8)
    state = AdamState.like(vector)
    for count in range(1, 30):
        gradient = torch.randn(50)
        reference.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_([reference], 0.5)
        optimizer.step()
        returned = adam_step(vector, state.first, state.second, gradient, adam_scales(0.01, count), 0.5, 1e-8)
        assert returned.item() == pytest.approx(norm.item(), rel=1e-6)
    torch.testing.assert_close(vector, reference.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_step_with_a_gradient_that_is_not_finite_changes_nothing(poison):
    vector, state = torch.ones(3), AdamState(torch.full((3,), 0.1), torch.full((3,), 0.2))
    gradient = torch.tensor([0.0, poison, 1.0])
    adam_step(vector, state.first, state.second, gradient, adam_scales(0.1, 1), 0.5, 1e-8)
    assert vector.tolist() == [1, 1, 1]
    assert state.first.tolist() == pytest.approx([0.1] * 3) and state.second.tolist() == pytest.approx([0.2] * 3)


@pytest.mark.parametrize("field", ["observation", "advantage", "value_target", "old_log_prob"])
def test_a_poisoned_batch_stops_the_run_before_it_trains(field):
    run = training("CartPole-v1", envs=4, horizon=32, minibatches=1, epochs=1)
    batch = example_batch((4,), run.distribution, 128) | {"old_params": torch.zeros(128, 2)}
    batch[field] = batch[field].clone()
    batch[field].view(-1)[5] = float("nan")
    before = run.parameters.vector.clone()
    with pytest.raises(Refusal, match="training diverged: the .* became nan at minibatch 1"):
        run.improve(batch, 1e-3)
    assert torch.equal(run.parameters.vector, before)


def test_value_loss_takes_the_larger_of_plain_and_clipped():
    value, old, target = torch.tensor([1.0, 0.1]), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.2])
    assert value_loss(value, old, target, None).item() == pytest.approx(0.5 * (0 + 0.01) / 2)
    assert value_loss(value, old, target, 0.2).item() == pytest.approx(0.5 * (0.64 + 0.01) / 2)


def test_ratio_statistics():
    stats = ratio_statistics(torch.tensor([1.0, 1.5, 0.7, 1.1]).log(), 0.2)
    assert stats["ratio_deviation"].item() == pytest.approx((0.5 + 0.3 + 0.1) / 4, rel=1e-5)
    assert stats["ratio_max"].item() == pytest.approx(0.5, rel=1e-5)
    assert stats["outside_fraction"].item() == 0.5


def test_logged_ratios_stay_finite_but_are_not_those_of_the_objective():
    stats = ratio_statistics(torch.tensor([500.0] * 512), 0.2)
    assert stats["ratio_deviation"].item() == pytest.approx(np.exp(LARGEST_LOGGED_LOG_RATIO), rel=1e-4)


def test_slope_statistics():
    stats = slope_statistics(torch.tensor([0.0, 1.0, -1.0, 2.0]), torch.tensor([1.0, 1.0, 1.0, -1.0]))
    assert stats["zero_gradient_fraction"].item() == 0.25 and stats["rollback_fraction"].item() == 0.5


def test_beyond_the_bound_ppo_leaves_samples_alone_and_spo_pulls_them_back():
    """The paper's point, seen in the metrics of a batch whose ratios have left the bound."""
    rows = {}
    for objective in ("spo", "ppo-clip"):
        run = training("CartPole-v1", objective=objective, envs=4, horizon=32, minibatches=1, epochs=1)
        batch = example_batch((4,), run.distribution, 128) | {"old_params": torch.zeros(128, 2)}
        advantage = torch.tensor([1.0, -1.0]).repeat(64)
        # log 2 is the old log-probability of either action; ratio 1.5 where A > 0, 0.5 where A < 0
        old = -torch.tensor([2.0, 2.0]).log() - torch.tensor([1.5, 0.5]).log()
        rows[objective] = run.improve(batch | {"advantage": advantage, "old_log_prob": old.repeat(64)}, 1e-3)
    assert rows["ppo-clip"]["zero_gradient_fraction"] == 1.0 and rows["ppo-clip"]["rollback_fraction"] == 0.0
    assert rows["spo"]["zero_gradient_fraction"] == 0.0 and rows["spo"]["rollback_fraction"] == 1.0
    assert rows["spo"]["outside_fraction"] == 1.0 and rows["spo"]["ratio_deviation"] == pytest.approx(0.5, rel=1e-5)


def test_explained_variance():
    target = torch.tensor([1.0, 2.0, 3.0])
    assert explained_variance(target, target) == 1.0
    assert explained_variance(torch.zeros(3), target) == pytest.approx(0.0)
    assert explained_variance(torch.zeros(3), torch.ones(3)) == 0.0


def test_target_kl_ends_the_epochs():
    settings = {"envs": 4, "horizon": 64, "epochs": 10, "learning_rate": 0.03}
    assert iterate(training("CartPole-v1", **settings), 1)[0]["epochs"] == 10
    row = iterate(training("CartPole-v1", target_kl=0.005, **settings), 1)[0]
    assert row["epochs"] < 10 and row["kl"] > 0.005


def test_learning_rate_decays_to_nothing():
    run = training(ActionReward, steps=4 * 8 * 128, learning_rate=0.1)
    assert [row["learning_rate"] for row in iterate(run, 4)] == pytest.approx([0.1, 0.075, 0.05, 0.025])


def test_networks_start_orthogonal():
    run = training("Pendulum-v1", hidden=(64, 64))
    first, head, value = run.network.actor[2].weight, run.network.actor[-1].weight, run.network.critic[-1].weight
    torch.testing.assert_close(first @ first.T, 2 * torch.eye(64), atol=1e-5, rtol=0)
    assert head.norm().item() == pytest.approx(0.01, rel=1e-4) and value.norm().item() == pytest.approx(1, rel=1e-4)
    assert run.network.log_std.tolist() == [0.0] and run.network.actor[0].bias.abs().max() == 0


@pytest.mark.parametrize("activation", ["tanh", "relu", "elu", "silu"])
@pytest.mark.parametrize("hidden", [(), (32,), (64, 32, 16)])
def test_acting_in_numpy_equals_torch(activation, hidden):
    from spo.networks import ActorCritic, NumpyActor, TorchActor

    network = ActorCritic(5, distribution_for(gym.spaces.Box(-1, 1, (3,))), hidden, (16,), activation, seed=3)
    network.requires_grad_(False)
    observation = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    for ours, theirs in zip(NumpyActor(network)(observation), TorchActor(network, "cpu")(observation)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
