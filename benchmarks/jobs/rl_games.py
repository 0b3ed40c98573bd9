"""rl_games: its A2C agents (which are its PPO) on Gymnasium's SyncVectorEnv, with its running statistics.

It has no vector of environments in one process, so one is registered. Its policy and value networks are of one shape:
a network with a critic of its own shape is registered too. Eager: its runner compiles the model unless told otherwise,
and that made it half as fast on a CPU.
"""

import tempfile

import gymnasium as gym
import torch
from rl_games.algos_torch import model_builder
from rl_games.algos_torch.network_builder import A2CBuilder
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv
from rl_games.torch_runner import Runner

from jobs.job import Job, Ready, run
from jobs.vector import in_process

SCRATCH = tempfile.TemporaryDirectory()
"""The agent opens a TensorBoard file whether it writes to it or not."""


class SyncVecEnv(IVecEnv):
    def __init__(self, job: Job):
        self.envs = in_process(job)

    def step(self, action):
        observation, reward, terminated, truncated, _ = self.envs.step(action)
        return observation.astype("float32"), reward, terminated | truncated, {"time_outs": truncated}

    def reset(self):
        return self.envs.reset()[0].astype("float32")

    def get_env_info(self) -> dict[str, gym.Space]:
        envs = self.envs
        return {"observation_space": envs.single_observation_space, "action_space": envs.single_action_space}


class Network(A2CBuilder.Network):
    """The critic gets layers of its own."""

    def __init__(self, params: dict, **keywords):
        inputs = keywords["input_shape"][0]
        super().__init__(params, **keywords)
        units = params["critic_units"]
        self.critic_mlp = self._build_mlp(inputs, units, self.activation, torch.nn.Linear)
        self.value = torch.nn.Linear(units[-1], 1)


class Builder(A2CBuilder):
    def build(self, name: str, **keywords) -> Network:
        return Network(self.params, **keywords)


def prepare(job: Job) -> Ready:
    envs = SyncVecEnv(job)
    vecenv.register("in-process", lambda *_, **__: envs)
    env_configurations.register(job.env, {"vecenv_type": "in-process", "env_creator": None})
    model_builder.register_network("own_critic", Builder)
    is_discrete = isinstance(envs.envs.single_action_space, gym.spaces.Discrete)
    runner = Runner()
    runner.load({"params": parameters(job, is_discrete)})
    agent = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
    agent.init_tensors()
    agent.obs = agent.env_reset()
    return Ready(lambda iterations: [train_once(agent) for _ in range(iterations)])


def train_once(agent) -> None:
    """What the agent's own loop does, without its files."""
    agent.update_epoch()
    agent.train_epoch()
    agent.dataset.update_values_dict(None)


def parameters(job: Job, is_discrete: bool) -> dict[str, object]:
    return {
        "torch_threads": job.threads,
        "algo": {"name": "a2c_discrete" if is_discrete else "a2c_continuous"},
        "model": {"name": "discrete_a2c" if is_discrete else "continuous_a2c_logstd"},
        "network": network(job, is_discrete),
        "config": settings(job),
    }


def network(job: Job, is_discrete: bool) -> dict[str, object]:
    initial = {"mu_init": {"name": "default"}, "sigma_init": {"name": "const_initializer", "val": 0}}
    gaussian = {"mu_activation": "None", "sigma_activation": "None", "fixed_sigma": True} | initial
    return {
        "name": "own_critic",
        "separate": True,
        "space": {"discrete": {}} if is_discrete else {"continuous": gaussian},
        "mlp": {"units": list(job.hidden), "activation": "tanh", "initializer": {"name": "default"}},
        "critic_units": list(job.critic_hidden),
    }


def settings(job: Job) -> dict[str, object]:
    return {
        "name": "job",
        "env_name": job.env,
        "device": "cpu",
        "train_dir": SCRATCH.name,
        "print_stats": False,
        "reward_shaper": {"scale_value": 1},
        "normalize_input": True,
        "normalize_value": True,
        "normalize_advantage": True,
        "value_bootstrap": True,
        "num_actors": job.envs,
        "horizon_length": job.horizon,
        "minibatch_size": job.minibatch_size,
        "mini_epochs": job.epochs,
        "gamma": job.gamma,
        "tau": job.lam,
        "learning_rate": job.learning_rate,
        "lr_schedule": None,
        "grad_norm": job.max_grad_norm,
        "truncate_grads": True,
        "entropy_coef": job.entropy_coef,
        "critic_coef": 2 * job.value_coef,  # the library halves it
        "bounds_loss_coef": 0.0,
        "e_clip": job.clip,
        "clip_value": True,
        "max_epochs": -1,
    }


if __name__ == "__main__":
    run("rl-games", prepare)
