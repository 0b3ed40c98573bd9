"""Gymnasium's vector of environments in one process, for libraries that have none of their own."""

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from jobs.job import Job


def in_process(job: Job) -> SyncVectorEnv:
    """A step that ends an episode starts the next one: no step is spent on a reset."""
    make = [lambda: gym.make(job.env, disable_env_checker=True)] * job.envs
    return SyncVectorEnv(make, autoreset_mode=AutoresetMode.SAME_STEP)
