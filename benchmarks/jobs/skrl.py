"""skrl: PPO with its SequentialTrainer on Gymnasium's SyncVectorEnv, with RunningStandardScaler."""

import gymnasium as gym
import torch
from skrl.agents.torch.ppo import PPO
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model
from skrl.resources.preprocessors.torch import RunningStandardScaler
from skrl.trainers.torch import SequentialTrainer, SequentialTrainerCfg

from jobs.job import Job, Ready, run
from jobs.layers import mlp
from jobs.vector import in_process


class Gaussian(GaussianMixin, Model):
    def __init__(self, hidden: tuple[int, ...], **spaces):
        Model.__init__(self, **spaces)
        GaussianMixin.__init__(self)
        self.net = mlp(self.num_observations, hidden, self.num_actions)
        self.log_std = torch.nn.Parameter(torch.zeros(self.num_actions))

    def compute(self, inputs, role=""):
        return self.net(inputs["observations"]), {"log_std": self.log_std}


class Categorical(CategoricalMixin, Model):
    def __init__(self, hidden: tuple[int, ...], **spaces):
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        self.net = mlp(self.num_observations, hidden, self.num_actions)

    def compute(self, inputs, role=""):
        return self.net(inputs["observations"]), {}


class Value(DeterministicMixin, Model):
    def __init__(self, hidden: tuple[int, ...], **spaces):
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = mlp(self.num_observations, hidden, 1)

    def compute(self, inputs, role=""):
        return self.net(inputs["observations"]), {}


def prepare(job: Job) -> Ready:
    env = wrap_env(in_process(job), verbose=False)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space, "device": "cpu"}
    policy = Categorical if isinstance(env.action_space, gym.spaces.Discrete) else Gaussian
    models = {"policy": policy(job.hidden, **spaces), "value": Value(job.critic_hidden, **spaces)}
    memory = RandomMemory(memory_size=job.horizon, num_envs=job.envs, device="cpu")
    agent = PPO(models=models, memory=memory, cfg=settings(job, env.observation_space), **spaces)
    trainer = SequentialTrainer(cfg=quiet_trainer(), env=env, agents=agent)
    return Ready(lambda iterations: train(trainer, iterations * job.horizon))


def train(trainer: SequentialTrainer, timesteps: int) -> None:
    trainer.cfg.timesteps = timesteps
    trainer.train()


def quiet_trainer() -> SequentialTrainerCfg:
    return SequentialTrainerCfg(headless=True, disable_progressbar=True)


def settings(job: Job, observation_space: gym.Space) -> dict[str, object]:
    return {
        "rollouts": job.horizon,
        "learning_epochs": job.epochs,
        "mini_batches": job.minibatches,
        "discount_factor": job.gamma,
        "gae_lambda": job.lam,
        "learning_rate": job.learning_rate,
        "observation_preprocessor": RunningStandardScaler,
        "observation_preprocessor_kwargs": {"size": observation_space, "device": "cpu"},
        "value_preprocessor": RunningStandardScaler,
        "value_preprocessor_kwargs": {"size": 1, "device": "cpu"},
        "grad_norm_clip": job.max_grad_norm,
        "ratio_clip": job.clip,
        "value_clip": job.clip,
        "value_loss_scale": job.value_coef,
        "entropy_loss_scale": job.entropy_coef,
        "time_limit_bootstrap": True,
        "experiment": {"write_interval": 0, "checkpoint_interval": 0},
    }


if __name__ == "__main__":
    run("skrl", prepare)
