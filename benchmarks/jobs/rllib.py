"""RLlib: PPO with its environment runner and its learner in one process, with MeanStdFilter; rewards as they are.

Its policy and value networks are of one shape, so a module with a value network of its own is given. It adds an
artificial step to every episode of a batch, and so makes one or two gradient steps more than it is asked for.
"""

import os
import tempfile

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # read when Ray is imported

import gymnasium as gym
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.trainable import trainable

from jobs.job import Job, Ready, run
from jobs.layers import mlp

SCRATCH = tempfile.TemporaryDirectory()
"""Where Ray and its own processes write."""


def prepare(job: Job) -> Ready:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=SCRATCH.name)
    trainable.DEFAULT_STORAGE_PATH = SCRATCH.name  # each algorithm would leave a directory in the user's home
    algorithm = make_config(job).build_algo()
    return Ready(lambda iterations: [algorithm.train() for _ in range(iterations)])


def make_config(job: Job) -> PPOConfig:
    runners = {
        "num_env_runners": 0,
        "num_envs_per_env_runner": job.envs,
        "rollout_fragment_length": job.horizon,
        "env_to_module_connector": lambda *_, **__: MeanStdFilter(),
    }
    config = PPOConfig().environment(job.env).env_runners(**runners).learners(num_learners=0)
    return config.rl_module(rl_module_spec=networks(job)).training(**settings(job))


def networks(job: Job) -> RLModuleSpec:
    class OwnCritic(DefaultPPOTorchRLModule):
        def setup(self) -> None:
            super().setup()
            self.vf = mlp(self.observation_space.shape[0], job.critic_hidden, 1)

        def compute_values(self, batch, embeddings=None):
            return self.vf(batch["obs"]).squeeze(-1)

    is_gaussian = isinstance(gym.make(job.env).action_space, gym.spaces.Box)
    layers = {"fcnet_hiddens": list(job.hidden), "fcnet_activation": "tanh", "free_log_std": is_gaussian}
    # Layers count as shared, so that the library builds none for a critic.
    return RLModuleSpec(module_class=OwnCritic, model_config=DefaultModelConfig(vf_share_layers=True, **layers))


def settings(job: Job) -> dict[str, object]:
    return {
        "train_batch_size_per_learner": job.batch_size,
        "minibatch_size": job.minibatch_size,
        "num_epochs": job.epochs,
        "lr": job.learning_rate,
        "gamma": job.gamma,
        "lambda_": job.lam,
        "clip_param": job.clip,
        "vf_loss_coeff": job.value_coef,
        "entropy_coeff": job.entropy_coef,
        "use_kl_loss": False,
        "grad_clip": job.max_grad_norm,
        "grad_clip_by": "global_norm",
    }


if __name__ == "__main__":
    run("ray", prepare)
