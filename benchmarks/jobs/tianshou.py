"""Tianshou: PPO with its OnPolicyTrainer on a DummyVectorEnv, with VectorEnvNormObs and return scaling."""

import gymnasium as gym
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, VectorEnvNormObs
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
from torch.distributions import Categorical, Distribution, Independent, Normal

from jobs.job import Job, Ready, run


def prepare(job: Job) -> Ready:
    vector = DummyVectorEnv([lambda: gym.make(job.env, disable_env_checker=True)] * job.envs)
    envs, spaces = VectorEnvNormObs(vector), (vector.observation_space[0], vector.action_space[0])
    algorithm = make_ppo(job, *spaces)
    collector = Collector(algorithm, envs, VectorReplayBuffer(job.batch_size, job.envs))
    return Ready(lambda iterations: algorithm.run_training(trainer(job, collector, iterations)))


def make_ppo(job: Job, observation_space: gym.Space, action_space: gym.Space) -> PPO:
    body, critic_body = (net(observation_space, hidden) for hidden in (job.hidden, job.critic_hidden))
    bounds = {"action_space": action_space}
    if isinstance(action_space, gym.spaces.Discrete):
        bounds |= {"action_scaling": False, "action_bound_method": None}
        actor = DiscreteActor(preprocess_net=body, action_shape=action_space.n, softmax_output=False)
        critic, distribution = DiscreteCritic(preprocess_net=critic_body), categorical
    else:
        actor = ContinuousActorProbabilistic(preprocess_net=body, action_shape=action_space.shape, unbounded=True)
        critic, distribution = ContinuousCritic(preprocess_net=critic_body), gaussian
    policy = ProbabilisticActorPolicy(actor=actor, dist_fn=distribution, **bounds)
    return PPO(policy=policy, critic=critic, **settings(job))


def net(observation_space: gym.Space, hidden: tuple[int, ...]) -> Net:
    return Net(state_shape=observation_space.shape, hidden_sizes=hidden, activation=torch.nn.Tanh)


def categorical(logits: torch.Tensor) -> Distribution:
    return Categorical(logits=logits)


def gaussian(parameters: tuple[torch.Tensor, torch.Tensor]) -> Distribution:
    return Independent(Normal(*parameters), 1)


def settings(job: Job) -> dict[str, object]:
    return {
        "optim": AdamOptimizerFactory(lr=job.learning_rate),
        "eps_clip": job.clip,
        "value_clip": True,
        "vf_coef": job.value_coef,
        "ent_coef": job.entropy_coef,
        "max_grad_norm": job.max_grad_norm,
        "gamma": job.gamma,
        "gae_lambda": job.lam,
        "max_batchsize": job.batch_size,  # of the passes without gradient: one is fastest
        "return_scaling": True,
    }


def trainer(job: Job, collector: Collector, iterations: int) -> OnPolicyTrainerParams:
    """One epoch of so many iterations, without tests."""
    return OnPolicyTrainerParams(
        training_collector=collector,
        max_epochs=1,
        epoch_num_steps=iterations * job.batch_size,
        collection_step_num_env_steps=job.batch_size,
        batch_size=job.minibatch_size,
        update_step_num_repetitions=job.epochs,
        show_progress=False,
        verbose=False,
    )


if __name__ == "__main__":
    run("tianshou", prepare)
