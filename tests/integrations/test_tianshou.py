"""Tianshou: its PPO through the rewriter is its PPO, SPO differs; dual clip is refused."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from hosting import are_equal, are_finite, parameters_of, require_host, run_example

require_host("tianshou")

from tianshou.algorithm import PPO
from tianshou.algorithm.algorithm_base import policy_within_training_step
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from spo.errors import SpoError
from spo.integrations.tianshou import SPO


def networks() -> tuple[ProbabilisticActorPolicy, DiscreteCritic]:
    actor = DiscreteActor(preprocess_net=Net(state_shape=4, hidden_sizes=[16]), action_shape=2)
    critic = DiscreteCritic(preprocess_net=Net(state_shape=4, hidden_sizes=[16]))
    space = gym.make("CartPole-v1").action_space
    kwargs = {"action_space": space, "action_scaling": False, "action_bound_method": None}
    return ProbabilisticActorPolicy(actor=actor, dist_fn=torch.distributions.Categorical, **kwargs), critic


def make(algorithm: type[PPO], **settings) -> PPO:
    np.random.seed(1)
    torch.manual_seed(1)
    policy, critic = networks()
    return algorithm(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-2), eps_clip=0.2, **settings)


def learn(made: PPO, iterations: int = 2) -> PPO:
    envs = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(2)])
    envs.seed(1)
    collector = Collector(made, envs, VectorReplayBuffer(256, 2))
    collector.reset()
    for _ in range(iterations):
        with policy_within_training_step(made.policy):
            collector.collect(n_step=128)
            made.update(buffer=collector.buffer, batch_size=32, repeat=3)
        collector.reset_buffer()
    return made


def train(algorithm: type[PPO], **settings) -> PPO:
    return learn(make(algorithm, **settings))


def test_ppo_through_the_rewriter_is_the_hosts_ppo(tmp_path):
    host, through, ours = train(PPO), train(SPO, objective="ppo-clip"), train(SPO)
    assert are_equal(parameters_of(host), parameters_of(through))
    assert not are_equal(parameters_of(host), parameters_of(ours)) and are_finite(parameters_of(ours))
    assert 0 < ours.ratio_statistics["ratio_deviation"] < ours.ratio_statistics["ratio_deviation_sample_max"]
    torch.save(ours.state_dict(), tmp_path / "model.pt")
    for algorithm in (SPO, PPO):
        loaded = make(algorithm)
        loaded.load_state_dict(torch.load(tmp_path / "model.pt"))
        assert are_equal(parameters_of(loaded), parameters_of(ours))
        learn(loaded, iterations=1)
        assert not are_equal(parameters_of(loaded), parameters_of(ours)) and are_finite(parameters_of(loaded))


def test_dual_clip_is_refused():
    with pytest.raises(SpoError, match=r"tianshou \S+: dual_clip 3.0 would bound 'spo' a second time; leave it None"):
        train(SPO, dual_clip=3.0)


def test_the_pages_example_runs():
    policy, critic = networks()
    algorithm = run_example("Tianshou", policy=policy, critic=critic)["algorithm"]
    assert type(algorithm) is SPO and are_finite(parameters_of(learn(algorithm, iterations=1)))
