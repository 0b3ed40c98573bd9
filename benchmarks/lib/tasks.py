"""The jobs that libraries are compared on."""

from jobs.job import Job

DEEP = (256, 256, 128, 128, 64, 64)
"""The paper's policy of seven layers."""

TASKS = {
    "halfcheetah-3": Job(env="HalfCheetah-v4"),
    "halfcheetah-7": Job(env="HalfCheetah-v4", hidden=DEEP),
    "humanoid-3": Job(env="Humanoid-v4"),
    "humanoid-7": Job(env="Humanoid-v4", hidden=DEEP),
    "cartpole": Job(env="CartPole-v1"),
    "breakout": Job(
        env="Breakout", hidden=(), critic_hidden=(), horizon=128, epochs=4, learning_rate=2.5e-4, entropy_coef=0.01
    ),
}

DEFAULT_TASKS = ("halfcheetah-3", "halfcheetah-7", "humanoid-3", "cartpole", "breakout")


def describe(job: Job) -> str:
    policy = "the Nature CNN" if job.is_atari else "policy " + "-".join(map(str, job.hidden))
    return f"{job.env}, {policy}, {job.envs} × {job.horizon} steps, {job.epochs} × {job.minibatches} minibatches"
