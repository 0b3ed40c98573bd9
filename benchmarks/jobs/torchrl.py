"""TorchRL: its collector, GAE, replay buffer and ClipPPOLoss on Gymnasium's SyncVectorEnv, with VecNormV2.

Eager, which is its default: compiling the gradient, or the whole step, gained nothing on a CPU. Its own SerialEnv was
slower than the SyncVectorEnv.
"""

from collections.abc import Callable, Iterator

import torch
from tensordict import TensorDict
from tensordict.nn import AddStateIndependentNormalScale, TensorDictModule
from torch.distributions import Categorical, Independent, Normal
from torchrl.collectors import Collector
from torchrl.data import Bounded, LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import Compose, DoubleToFloat, EnvBase, GymWrapper, TransformedEnv, VecNormV2
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.advantages import GAE

from jobs.job import Job, Ready, run
from jobs.layers import mlp
from jobs.vector import in_process


def prepare(job: Job) -> Ready:
    env = make_env(job)
    actor, critic = make_actor(job, env), make_critic(job, env)
    loss = ClipPPOLoss(actor, critic, **settings(job))
    batches = iter(Collector(env, actor, frames_per_batch=job.batch_size, total_frames=-1))
    advantage = GAE(gamma=job.gamma, lmbda=job.lam, value_network=critic)
    storage, sampler = LazyTensorStorage(job.batch_size), SamplerWithoutReplacement()
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=job.minibatch_size)
    step = make_step(loss, job)
    return Ready(lambda iterations: train(iterations, job.epochs, batches, advantage, buffer, step))


def make_env(job: Job) -> EnvBase:
    env = GymWrapper(in_process(job), device="cpu", categorical_action_encoding=True)
    scaled = VecNormV2(in_keys=["observation", "reward"], reduce_batch_dims=True)
    return TransformedEnv(env, Compose(DoubleToFloat(), scaled))


def make_actor(job: Job, env: EnvBase) -> ProbabilisticActor:
    spec, inputs = env.action_spec_unbatched, env.observation_spec["observation"].shape[-1]
    if isinstance(spec, Bounded):
        size = spec.shape[-1]
        network = torch.nn.Sequential(mlp(inputs, job.hidden, size), AddStateIndependentNormalScale(size))
        keys, distribution = ["loc", "scale"], gaussian
    else:
        network, keys, distribution = mlp(inputs, job.hidden, spec.n), ["logits"], Categorical
    module = TensorDictModule(network, in_keys=["observation"], out_keys=keys)
    return ProbabilisticActor(module, in_keys=keys, spec=spec, distribution_class=distribution, return_log_prob=True)


def gaussian(loc: torch.Tensor, scale: torch.Tensor) -> Independent:
    return Independent(Normal(loc, scale), 1)


def make_critic(job: Job, env: EnvBase) -> ValueOperator:
    return ValueOperator(mlp(env.observation_spec["observation"].shape[-1], job.critic_hidden, 1), ["observation"])


def settings(job: Job) -> dict[str, object]:
    return {
        "clip_epsilon": job.clip,
        "clip_value": job.clip,
        "critic_coeff": job.value_coef,
        "entropy_coeff": job.entropy_coef,
        "entropy_bonus": job.entropy_coef > 0,
        "normalize_advantage": True,
        "loss_critic_type": "l2",
    }


def make_step(loss: ClipPPOLoss, job: Job) -> Callable[[TensorDict], None]:
    optimizer = torch.optim.Adam(loss.parameters(), lr=job.learning_rate)

    def step(minibatch: TensorDict) -> None:
        terms = loss(minibatch)
        optimizer.zero_grad(set_to_none=True)
        sum(value for name, value in terms.items() if name.startswith("loss_")).backward()
        torch.nn.utils.clip_grad_norm_(loss.parameters(), job.max_grad_norm)
        optimizer.step()

    return step


def train(iterations: int, epochs: int, batches: Iterator[TensorDict], advantage, buffer, step) -> None:
    for _ in range(iterations):
        batch = next(batches)
        with torch.no_grad():
            batch = advantage(batch)
        buffer.extend(batch.reshape(-1))
        for _ in range(epochs):
            for minibatch in buffer:
                step(minibatch)


if __name__ == "__main__":
    run("torchrl", prepare)
