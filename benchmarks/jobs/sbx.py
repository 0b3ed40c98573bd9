"""SBX: Stable-Baselines3 in JAX, on the same DummyVecEnv and VecNormalize."""

import os

from jobs.job import Job, Ready, run
from jobs.stable_baselines3 import networks, ppo_settings, tasks


def prepare(job: Job) -> Ready:
    set_xla_threads(job.threads)
    from sbx import PPO

    model = PPO("MlpPolicy", tasks(job), policy_kwargs={"net_arch": networks(job)}, **ppo_settings(job))
    return Ready(lambda iterations: model.learn(iterations * job.batch_size, reset_num_timesteps=False))


def set_xla_threads(threads: int) -> None:
    """XLA reads its threads when JAX is imported, and has one or all."""
    if threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


if __name__ == "__main__":
    run("sbx-rl", prepare)
