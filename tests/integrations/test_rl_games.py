"""rl_games through its runner: its PPO with our actor loss is its PPO, SPO differs; smooth clamp, schedules, files."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from hosting import are_equal, are_finite, parameters_of, require_host, run_example

require_host("rl_games")

from rl_games.common import common_losses, env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv
from rl_games.torch_runner import Runner

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS
from spo.integrations.objective import make_hosted
from spo.integrations.rl_games import DiscreteSPOAgent, SPOAgent, WithObjective, register

ENVS = {"continuous": "Pendulum-v1", "discrete": "CartPole-v1"}


class InProcess(IVecEnv):
    """Four environments of Gymnasium in this process."""

    def __init__(self, env: str):
        self.envs = gym.vector.SyncVectorEnv([lambda: gym.make(env, max_episode_steps=20)] * 4)

    def step(self, action):
        observation, reward, terminated, truncated, _ = self.envs.step(np.asarray(action))
        return observation.astype("float32"), reward.astype("float32"), terminated | truncated, {}

    def reset(self):
        return self.envs.reset(seed=1)[0].astype("float32")

    def get_env_info(self) -> dict[str, gym.Space]:
        envs = self.envs
        return {"observation_space": envs.single_observation_space, "action_space": envs.single_action_space}


for kind, env in ENVS.items():
    vecenv.register(kind, lambda *_, env=env, **__: InProcess(env))
    env_configurations.register(kind, {"vecenv_type": kind, "env_creator": None})


def parameters(kind: str, algorithm: str, out, **config) -> dict:
    initial = {"mu_init": {"name": "default"}, "sigma_init": {"name": "const_initializer", "val": 0}}
    gaussian = {"mu_activation": "None", "sigma_activation": "None", "fixed_sigma": True} | initial
    mlp = {"units": [16], "activation": "tanh", "initializer": {"name": "default"}}
    space = {"continuous": gaussian} if kind == "continuous" else {"discrete": {}}
    learning = {"gamma": 0.99, "tau": 0.95, "learning_rate": 1e-2, "e_clip": 0.2, "critic_coef": 1, "entropy_coef": 0.0}
    learning |= {"horizon_length": 16, "minibatch_size": 32, "mini_epochs": 3, "max_epochs": 2, "grad_norm": 0.5}
    learning |= {"normalize_input": True, "normalize_value": True, "normalize_advantage": True, "clip_value": True}
    files = {"name": "test", "env_name": kind, "train_dir": str(out), "save_frequency": 0, "print_stats": False}
    others = {"num_actors": 4, "device": "cpu", "reward_shaper": {"scale_value": 0.1}, "lr_schedule": None}
    return {
        "seed": 1,
        "torch_compile": False,
        "algo": {"name": f"{algorithm}_{kind}"},
        "model": {"name": "continuous_a2c_logstd" if kind == "continuous" else "discrete_a2c"},
        "network": {"name": "actor_critic", "separate": True, "space": space, "mlp": mlp},
        "config": files | others | learning | {"truncate_grads": True, "bounds_loss_coef": 0.0} | config,
    }


def make(kind: str, algorithm: str, out, **config):
    runner = Runner()
    register(runner)
    runner.load({"params": parameters(kind, algorithm, out, **config)})
    torch.manual_seed(1)
    np.random.seed(1)
    return runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)


def train(kind: str, algorithm: str, out, **config):
    return learn(make(kind, algorithm, out, **config))


def learn(agent, epochs: int = 2):
    agent.init_tensors()
    agent.obs = agent.env_reset()
    for _ in range(epochs):
        agent.update_epoch()
        agent.train_epoch()
        agent.dataset.update_values_dict(None)
    return agent


@pytest.mark.parametrize("kind,ours", [("continuous", SPOAgent), ("discrete", DiscreteSPOAgent)])
def test_ppo_with_our_loss_is_the_hosts_ppo(kind, ours, tmp_path):
    host, through = train(kind, "a2c", tmp_path), train(kind, "spo", tmp_path, objective="ppo-clip")
    other = train(kind, "spo", tmp_path)
    assert type(other) is ours
    assert are_equal(parameters_of(host.model), parameters_of(through.model))
    assert not are_equal(parameters_of(host.model), parameters_of(other.model))
    assert are_finite(parameters_of(other.model))
    assert 0 < other.hosted_objective.statistics()["ratio_deviation"] < 1
    other.save(str(tmp_path / "model"))
    for algorithm in ("spo", "a2c"):
        loaded = make(kind, algorithm, tmp_path)
        loaded.restore(str(tmp_path / "model.pth"))
        assert are_equal(parameters_of(loaded.model), parameters_of(other.model))
        assert loaded.epoch_num == 2
        learn(loaded, epochs=1)
        assert not are_equal(parameters_of(loaded.model), parameters_of(other.model))
        assert are_finite(parameters_of(loaded.model))


@pytest.mark.parametrize("is_ppo", [True, False])
def test_the_actor_loss_is_the_hosts(is_ppo):
    agent = WithObjective.__new__(WithObjective)
    agent.hosted_objective = make_hosted("ppo-clip", HOSTS["rl_games"])
    old, advantage = torch.randn(2, 500, generator=torch.Generator().manual_seed(1))
    results = []
    for function in (common_losses.actor_loss, agent.actor_loss):
        new = (old + 0.3).requires_grad_()
        loss = function(old, new, advantage, is_ppo, 0.2)
        results.append((loss, torch.autograd.grad(loss.sum(), new)[0]))
    assert are_equal(*results)


@pytest.mark.parametrize("log_ratio", [20.0, 50.0, 88.0, 90.0])
def test_an_overflow_has_the_trainers_slope(log_ratio):
    agent = WithObjective.__new__(WithObjective)
    agent.hosted_objective = make_hosted("spo", HOSTS["rl_games"])
    new = torch.tensor([-log_ratio], requires_grad=True)  # hosts hand over negative log-probabilities
    loss = agent.actor_loss(torch.zeros(1), new, -torch.ones(1), True, 0.2)
    largest = torch.tensor(15.0).exp()
    (slope,) = torch.autograd.grad(loss.sum(), new)
    assert loss.isfinite().all() and torch.isclose(slope, -(1 + (largest - 1) / 0.2) * largest).all()


def test_smooth_clamp_is_refused_and_an_adaptive_rate_warned_of(tmp_path):
    with pytest.raises(SpoError, match=r"rl-games \S+: use_smooth_clamp is an objective of its own"):
        make("continuous", "spo", tmp_path, use_smooth_clamp=True)
    with pytest.warns(UserWarning, match="lr_schedule 'adaptive' raises the learning rate to its cap under 'spo'"):
        make("continuous", "spo", tmp_path, lr_schedule="adaptive", kl_threshold=0.01)


def test_the_pages_example_runs(tmp_path):
    runner = run_example("rl_games")["runner"]
    runner.load({"params": parameters("continuous", "spo", tmp_path)})
    assert type(runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)) is SPOAgent
