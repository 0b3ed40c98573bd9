"""The update: against Stable-Baselines3, and what its statistics mean."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

from probes import ActionReward, Counting, Spaces, iterate, training
from spo.algorithms.adam import AdamState, adam_step, kl_adaptive_learning_rate
from spo.algorithms.batch import Batch, example_batch, make_batch
from spo.algorithms.losses import divergences, value_loss
from spo.algorithms.metrics import LARGEST_LOGGED_LOG_RATIO, explained_variance, gradient_statistics, ratio_statistics
from spo.algorithms.minibatch_update import as_tensors
from spo.errors import SpoError
from spo.models.actors import NumpyActor, TorchActor
from spo.models.choose_distribution import distribution_for
from spo.models.networks import ActorCritic
from spo.objectives import LARGEST_BETA, OBJECTIVES, SMALLEST_BETA, Objective
from spo.rollout import gae
from spo.runtime.torch_tuning import useful_threads
from spo.spaces import ObservationLayout
from spo.trainer import Trainer

TASKS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}


@pytest.mark.parametrize("env", TASKS.values())
def test_a_full_update_equals_stable_baselines3(env):
    """Equal weights and batch, three epochs of one minibatch (so that no shuffling can differ): equal parameters."""
    theirs, ours, _ = both_updated(env, learning_rate=3e-4)
    for name, weight in sb3_weights(theirs.policy).items():
        torch.testing.assert_close(dict(ours.network.named_parameters())[name], weight, rtol=1e-4, atol=2e-6)


def test_the_clip_fraction_is_that_of_stable_baselines3():
    """So large a step leaves the bound for 7 to 35 % of the samples (six seeds), 3 to 20 % of them without gradient."""
    theirs, _, stats = both_updated("CartPole-v1", learning_rate=0.1)
    fraction = theirs.logger.name_to_value["train/clip_fraction"]
    assert fraction > 0.04 and stats["zero_gradient_fraction"] < fraction - 0.02
    assert stats["clip_fraction"] == pytest.approx(fraction, abs=2.5 / 384)  # two samples may lie on the bound itself


def both_updated(env: str, learning_rate: float) -> tuple[PPO, Trainer, dict[str, float]]:
    """Stable-Baselines3 and this trainer after the same update, and what this one says of it."""
    theirs = PPO(
        "MlpPolicy",
        DummyVecEnv([lambda: gym.make(env)] * 2),
        learning_rate=learning_rate,
        n_steps=64,
        batch_size=128,
        n_epochs=3,
        ent_coef=0.01,
        seed=0,
        device="cpu",
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "optimizer_kwargs": {"eps": 1e-3}},
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
        adam_eps=1e-3,  # so that a step is no steeper in the gradient than 0.3 (test_the_compiled_update says why)
        value_clip="off",
        value_coef=1.0,  # theirs is 0.5 times a mean, ours 0.5 times that half of a mean
        entropy_coef=0.01,
    )
    ours.network.load_state_dict(sb3_weights(theirs.policy))
    stats = ours.update(sb3_batch(theirs.rollout_buffer, theirs.policy, env == "CartPole-v1"), learning_rate)
    theirs.train()
    return theirs, ours, stats


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


def sb3_batch(buffer, policy, is_discrete: bool) -> Batch:
    data = next(buffer.get(128))
    params = policy.get_distribution(data.observations).distribution
    old_dist_params = params.logits if is_discrete else torch.cat([params.mean, params.stddev.log()], -1)
    return Batch(
        observation=data.observations,
        action=data.actions.long().flatten() if is_discrete else data.actions,
        old_log_prob=data.old_log_prob,
        old_value=data.old_values,
        old_dist_params=old_dist_params.detach(),
        value_target=data.returns,
        advantage=data.advantages,
    )


def stepped(vector, state, slope, learning_rate, is_allowed=True):
    moments = (state.first, state.second)
    adam_step(vector, moments, slope, torch.tensor(is_allowed), torch.tensor(learning_rate), state.corrections(), 1e-8)
    state.count += 1


def test_adam_equals_torch():
    torch.manual_seed(0)
    vector = torch.randn(50)
    reference = vector.clone().requires_grad_()
    optimizer = torch.optim.Adam([reference], lr=0.01, eps=1e-8)
    state = AdamState.like(vector)
    for _ in range(30):
        reference.grad = torch.randn(50)
        stepped(vector, state, reference.grad.clone(), 0.01)
        optimizer.step()
    torch.testing.assert_close(vector, reference.detach(), rtol=1e-5, atol=1e-6)


def test_the_joint_gradient_is_clipped_to_its_norm():
    """Against torch's clipping, through one whole step on a batch with a large value error."""
    run = training("CartPole-v1", envs=4, horizon=32, minibatches=1, epochs=1, max_grad_norm=0.5)
    batch = example_batch(run.spec.layout, run.distribution, 128)._replace(value_target=torch.full((128,), 100.0))
    leaf = run.parameters.vector.clone().requires_grad_()
    run.update.loss(leaf, batch, {})[0].backward()
    norm = torch.nn.utils.clip_grad_norm_([leaf], 0.5)
    row = run.update(batch, 1e-3)
    assert row["grad_norm"] == pytest.approx(norm.item(), rel=1e-5) and norm > 1
    torch.testing.assert_close(run.update.epochs.adam.first, 0.1 * leaf.grad, rtol=1e-5, atol=1e-8)


def test_a_step_that_is_not_allowed_changes_nothing():
    vector, state = torch.ones(3), AdamState(torch.full((3,), 0.1), torch.full((3,), 0.2))
    stepped(vector, state, torch.tensor([0.0, float("nan"), 1.0]), 0.1, is_allowed=False)
    assert vector.tolist() == [1, 1, 1]
    assert state.first.tolist() == pytest.approx([0.1] * 3) and state.second.tolist() == pytest.approx([0.2] * 3)


@pytest.mark.parametrize("field", ["observation", "advantage", "value_target", "old_log_prob"])
def test_a_poisoned_batch_stops_the_run_before_it_trains(field):
    run = training("CartPole-v1", envs=4, horizon=32, minibatches=1, epochs=1)
    batch = example_batch(run.spec.layout, run.distribution, 128)
    poisoned = getattr(batch, field).clone()
    poisoned.view(-1)[5] = float("nan")
    before = run.parameters.vector.clone()
    with pytest.raises(SpoError, match="training diverged: the .* became nan at minibatch 1"):
        run.update(batch._replace(**{field: poisoned}), 1e-3)
    assert torch.equal(run.parameters.vector, before)


def test_value_loss_takes_the_larger_of_plain_and_clipped():
    value, old, target = torch.tensor([1.0, 0.1]), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 0.2])
    assert value_loss(value, old, target, None).item() == pytest.approx(0.5 * (0 + 0.01) / 2)
    assert value_loss(value, old, target, 0.2).item() == pytest.approx(0.5 * (0.64 + 0.01) / 2)


def test_ratio_statistics():
    stats = ratio_statistics(torch.tensor([1.0, 1.5, 0.7, 1.1]).log(), 0.2)
    assert stats["ratio_deviation"].item() == pytest.approx((0.5 + 0.3 + 0.1) / 4, rel=1e-5)
    assert stats["ratio_deviation_sample_max"].item() == pytest.approx(0.5, rel=1e-5)
    assert stats["clip_fraction"].item() == 0.5


def test_logged_ratios_stay_finite_but_are_not_those_of_the_objective():
    stats = ratio_statistics(torch.tensor([500.0] * 512), 0.2)
    assert stats["ratio_deviation"].item() == pytest.approx(np.exp(LARGEST_LOGGED_LOG_RATIO), rel=1e-4)


def test_slope_statistics():
    stats = gradient_statistics(torch.tensor([0.0, 1.0, -1.0, 2.0]), torch.tensor([1.0, 1.0, 1.0, -1.0]))
    assert stats["zero_gradient_fraction"].item() == 0.25 and stats["rollback_fraction"].item() == 0.5


def test_beyond_the_bound_ppo_leaves_samples_alone_and_spo_pulls_them_back():
    """The paper's point, seen in the metrics of a batch whose ratios have left the bound."""
    rows = {}
    for objective in ("spo", "ppo-clip"):
        run = training("CartPole-v1", objective=objective, envs=4, horizon=32, minibatches=1, epochs=1)
        batch = example_batch(run.spec.layout, run.distribution, 128)
        advantage = torch.tensor([1.0, -1.0]).repeat(64)
        # log 2 is the old log-probability of either action; ratio 1.5 where A > 0, 0.5 where A < 0
        old = -torch.tensor([2.0, 2.0]).log() - torch.tensor([1.5, 0.5]).log()
        rows[objective] = run.update(batch._replace(advantage=advantage, old_log_prob=old.repeat(64)), 1e-3)
    assert rows["ppo-clip"]["zero_gradient_fraction"] == 1.0 and rows["ppo-clip"]["rollback_fraction"] == 0.0
    assert rows["spo"]["zero_gradient_fraction"] == 0.0 and rows["spo"]["rollback_fraction"] == 1.0
    assert rows["spo"]["clip_fraction"] == 1.0 and rows["spo"]["ratio_deviation"] == pytest.approx(0.5, rel=1e-5)


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


@pytest.mark.parametrize(
    "kl, expected",
    [(0.0201, 1e-3 / 1.5), (0.02, 1e-3), (0.01, 1e-3), (0.005, 1e-3), (0.0049, 1.5e-3), (0.0, 1e-3)],
)
def test_the_adaptive_learning_rate_follows_the_kl(kl, expected):
    adapted = kl_adaptive_learning_rate(torch.tensor(1e-3), torch.tensor(kl), 0.01)
    assert adapted.item() == pytest.approx(expected, rel=1e-5)


def test_the_adaptive_learning_rate_stays_within_bounds():
    assert kl_adaptive_learning_rate(torch.tensor(1.1e-5), torch.tensor(1.0), 0.01).item() == pytest.approx(1e-5)
    assert kl_adaptive_learning_rate(torch.tensor(9e-3), torch.tensor(1e-4), 0.01).item() == pytest.approx(1e-2)


def test_the_adaptive_learning_rate_is_recorded_and_carried_on():
    run = training("CartPole-v1", lr_schedule="adaptive-kl", learning_rate=1e-3)
    rates = [row["learning_rate"] for row in iterate(run, 3)]
    assert rates[0] != 1e-3 and all(1e-5 <= rate <= 1e-2 for rate in rates)
    assert run.update.epochs.learning_rate.item() == pytest.approx(rates[-1])


def batch_of(run):
    rollout = run.collector.collect()
    masks = (rollout.terminated, rollout.done)
    advantage = gae(rollout.reward, rollout.value, rollout.next_value, *masks, 0.99, 0.95)
    return rollout, make_batch(rollout, advantage, run.distribution, "cpu", with_next_step=True)


def test_only_what_an_objective_asks_for_is_computed(monkeypatch):
    """SPO pays for no KL, and only the reflective objective for successors."""
    asked = []
    monkeypatch.setattr("spo.models.distributions.Categorical.kl", lambda *_: asked.append("kl") or torch.zeros(128))
    for name, objective in OBJECTIVES.items():
        run = training("CartPole-v1", objective=name, envs=4, horizon=32, minibatches=1)
        _, batch = batch_of(run)
        asked.clear()
        run.update.loss(run.parameters.vector, batch, as_tensors(getattr(run.update, "adaptive_values", {})))
        assert bool(asked) == bool({"kl", "kl_reverse"} & set(objective.inputs)), name
        assert run.update.needs_next_step == (name == "rpo-reflective"), name
        given = run.update.loss.inputs(run.parameters.vector, batch.old_dist_params, batch)
        assert set(given) | {"ratio", "advantage"} == set(objective.inputs), name


def both_divergences(ratio, kl, kl_reverse):
    return ratio + kl + kl_reverse


def test_kl_is_from_the_old_policy_and_kl_reverse_from_the_new(monkeypatch):
    """Against torch, where the two differ: the trust region is KL(old‖new), SPU's KL(new‖old)."""
    monkeypatch.setitem(OBJECTIVES, "both", Objective("both", both_divergences))
    run = training("CartPole-v1", objective="both", envs=4, horizon=32, minibatches=1)
    _, batch = batch_of(run)
    new_params = batch.old_dist_params + torch.tensor([3.0, 0.0])
    inputs = run.update.loss.inputs(run.parameters.vector, new_params, batch)
    old, new = (torch.distributions.Categorical(logits=params) for params in (batch.old_dist_params, new_params))
    torch.testing.assert_close(inputs["kl"], torch.distributions.kl_divergence(old, new))
    torch.testing.assert_close(inputs["kl_reverse"], torch.distributions.kl_divergence(new, old))
    assert (inputs["kl"] - inputs["kl_reverse"]).abs().min() > 0.1
    moved = divergences(run.update.loss, batch._replace(old_dist_params=new_params))
    assert moved["kl"] == pytest.approx(inputs["kl_reverse"].mean().item(), rel=1e-4)
    assert moved["kl_reverse"] == pytest.approx(inputs["kl"].mean().item(), rel=1e-4)


@pytest.mark.parametrize("space", [gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(3)], ids=type)
def test_the_old_probability_is_that_of_the_whole_action(space):
    """Of several choices and of coins it is the product, whatever the policy has become meanwhile."""
    run = training(lambda: Spaces(gym.spaces.Box(-1, 1, (3,)), space), objective="drpo", envs=4, horizon=32)
    _, batch = batch_of(run)
    moved = run.parameters.vector + 1.0
    given = run.update.loss.inputs(moved, batch.old_dist_params + 1.0, batch)["old_log_prob"].exp()
    torch.testing.assert_close(given, joint_probability(space, batch.old_dist_params, batch.action))
    assert not given.requires_grad and (given > 0).all() and (given < 1).all()


def joint_probability(space, params: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    if isinstance(space, gym.spaces.MultiBinary):
        heads = params.sigmoid()
        return torch.where(action == 1, heads, 1 - heads).prod(-1)
    parts = params.split(space.nvec.tolist(), -1)
    chosen = [part.softmax(-1).gather(-1, action[:, [i]])[:, 0] for i, part in enumerate(parts)]
    return torch.stack(chosen).prod(0)


def test_successors_cross_neither_an_episode_nor_the_rollout():
    run = training(lambda: Counting(), envs=3, horizon=20, minibatches=4, normalize_observation="off")
    rollout, batch = batch_of(run)
    observation, successor, has_next = batch.observation, batch.next_step.observation, batch.next_step.has_next
    assert has_next.view(20, 3)[-1].tolist() == [0, 0, 0]
    for sample in range(60):
        environment, episode, time = observation[sample].tolist()
        is_last = time + 1 == 3 + episode or sample >= 57
        assert has_next[sample].item() == (not is_last)
        if not is_last:
            assert successor[sample].tolist() == [environment, episode, time + 1]
            assert batch.next_step.advantage[sample] == batch.advantage[sample + 3]
            assert batch.next_step.old_log_prob[sample] == batch.old_log_prob[sample + 3]
    assert 0 < has_next.sum() < 57


def test_the_successors_advantage_is_standardised_like_its_own_minibatch():
    run = training("CartPole-v1", objective="rpo-reflective", envs=4, horizon=32, minibatches=1)
    _, batch = batch_of(run)
    inputs = run.update.loss.inputs(run.parameters.vector, batch.old_dist_params, batch)
    mean, std = batch.advantage.mean(), batch.advantage.std()
    torch.testing.assert_close(inputs["next_advantage"], (batch.next_step.advantage - mean) / (std + 1e-8))


@pytest.mark.parametrize("log_ratio", [20.0, 50.0, 88.0, 90.0, 1e30])
def test_a_ratio_beyond_the_cap_counts_as_the_cap(log_ratio):
    settings = {"objective": "espo", "normalize_advantage": "off", "envs": 4, "horizon": 32, "minibatches": 1}
    run = training("CartPole-v1", **settings)
    batch = example_batch(run.spec.layout, run.distribution, 128)
    batch = batch._replace(advantage=torch.ones(128), old_log_prob=torch.full((128,), -log_ratio))
    stats = run.update.loss(run.parameters.vector, batch, {})[1]
    assert stats["policy_loss"].item() == pytest.approx(-math.exp(15.0), rel=1e-5)


def test_spu_ends_the_epochs_and_the_penalty_moves_beta():
    settings = {"envs": 4, "horizon": 64, "epochs": 10, "learning_rate": 0.03}
    row = iterate(training("CartPole-v1", objective="spu", **settings), 1)[0]
    assert row["epochs"] < 10 and row["kl_reverse"] > 0.05 / 1.3
    run = training("CartPole-v1", objective="ppo-penalty", **settings)
    rows = iterate(run, 3)
    assert rows[0]["beta"] == 1.0  # the value that was used in the iteration
    for row, after in zip(rows, [*(row["beta"] for row in rows[1:]), run.update.adaptive_values["beta"]]):
        expected = 0.5 if row["kl"] < 0.01 / 1.5 else 2 if row["kl"] > 0.015 else 1
        assert after == row["beta"] * expected
    assert len({row["beta"] for row in rows}) > 1
    fixed = iterate(training("CartPole-v1", objective="ppo-penalty", beta=3.0, kl_target="off", **settings), 2)
    assert [row["beta"] for row in fixed] == [3.0, 3.0]


def test_the_width_is_fed_back():
    """The row has the width that was used, the next iteration the one that follows from its deviation."""
    settings = {"envs": 4, "horizon": 64, "epochs": 4, "learning_rate": 0.01}
    run = training("CartPole-v1", objective="spo-adaptive", deviation_target=0.05, epsilon_gain=0.5, **settings)
    rows = iterate(run, 3)
    assert rows[0]["epsilon"] == 0.2 and len({row["epsilon"] for row in rows}) == 3
    for row, after in zip(rows, [*(row["epsilon"] for row in rows[1:]), run.update.adaptive_values["epsilon"]]):
        expected = row["epsilon"] * (0.05 / row["ratio_deviation"]) ** 0.5
        assert after == pytest.approx(min(max(expected, 0.02), 0.99))


def test_a_width_without_gain_is_spo_to_the_bit():
    settings = {"envs": 4, "horizon": 64, "epochs": 4, "learning_rate": 0.01, "epsilon": 0.3}
    plain = training("CartPole-v1", **settings)
    adaptive = training("CartPole-v1", objective="spo-adaptive", epsilon_gain=0.0, **settings)
    for row, other in zip(iterate(plain, 3), iterate(adaptive, 3)):
        assert row | {"epsilon": 0.3} == other
    assert torch.equal(plain.parameters.vector, adaptive.parameters.vector)


def test_the_width_in_force_counts_for_ratios_and_the_start_for_values():
    """Ratios of 1.5 are outside 0.2 and inside 0.6; the value stays clipped as it was at the start."""
    run = training("CartPole-v1", objective="spo-adaptive", envs=4, horizon=32, minibatches=1, epochs=1)
    batch = example_batch(run.spec.layout, run.distribution, 128)
    batch = batch._replace(
        advantage=torch.tensor([1.0, -1.0]).repeat(64),
        value_target=torch.full((128,), 1.0),
        old_log_prob=-torch.full((128,), 3.0).log(),  # the policy gives 1/2
    )
    stats = {
        width: run.update.loss(run.parameters.vector, batch, {"epsilon": torch.tensor(width)})[1]
        for width in (0.2, 0.6)
    }
    assert stats[0.2]["clip_fraction"] == 1 and stats[0.6]["clip_fraction"] == 0
    assert stats[0.2]["rollback_fraction"] == 0.5 and stats[0.6]["rollback_fraction"] == 0
    assert stats[0.2]["value_loss"] == stats[0.6]["value_loss"]
    assert run.config.value_clip_range == run.update.loss.value_clip_range == 0.2


@pytest.mark.parametrize("beta, expected", [(2.0**-160, SMALLEST_BETA), (2.0**20, LARGEST_BETA)])
def test_a_beta_from_before_it_had_bounds_is_used_once_and_then_within_them(beta, expected):
    run = training("CartPole-v1", objective="ppo-penalty", envs=4, horizon=32)
    state = run.state()
    state["improve"]["fed_back"]["beta"] = beta
    run.restore(state)
    assert [row["beta"] for row in iterate(run, 2)] == [beta, expected]


def test_espo_ends_the_updates_without_stepping_on_the_minibatch():
    run = training("CartPole-v1", objective="espo", envs=4, horizon=64, learning_rate=0.1, epochs=10)
    counts = []
    step = run.update.epochs.step

    def watched(vector, *arguments):
        before = vector.clone()
        row = step(vector, *arguments)
        counts.append((row[0][3].item() > 0.25, torch.equal(vector, before)))
        return row

    run.update.epochs.step = watched
    row = iterate(run, 1)[0]
    assert row["ratio_deviation_max"] > 0.25 and row["epochs"] < 10
    assert counts[-1] == (True, True) and all(count == (False, False) for count in counts[:-1])
    assert run.update.epochs.adam.count == len(counts) - 1


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
    layout = ObservationLayout(gym.spaces.Box(-1, 1, (5,)))
    network = ActorCritic(layout, distribution_for(gym.spaces.Box(-1, 1, (3,))), hidden, (16,), activation, seed=3)
    network.requires_grad_(False)
    observation = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    ours, (params, value) = NumpyActor(network), TorchActor(network, "cpu")(observation)
    np.testing.assert_allclose(ours(observation)[0], params, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.value(observation), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "observation, hidden, threads",
    [((17,), (64, 64), 1), ((17,), (256, 256, 128, 128, 64, 64), 2), ((376,), (64, 64), 2), ((4, 84, 84), (), 2)],
)
def test_only_large_networks_get_more_than_one_thread(observation, hidden, threads):
    layout = ObservationLayout(gym.spaces.Box(0, 255, observation, np.uint8))
    network = ActorCritic(layout, distribution_for(gym.spaces.Box(-1, 1, (6,))), hidden, hidden, "tanh")
    assert min(2, useful_threads(network)) == threads
