"""Stable-Baselines3: PPO on a DummyVecEnv, with VecNormalize."""

from jobs.job import Job, Ready, run


def prepare(job: Job) -> Ready:
    from stable_baselines3 import PPO
    from torch import nn

    settings = ppo_settings(job) | {"clip_range_vf": job.clip}
    if job.is_atari:
        model = PPO("CnnPolicy", games(job), **settings)
    else:
        layers = {"net_arch": networks(job), "activation_fn": nn.Tanh}
        model = PPO("MlpPolicy", tasks(job), policy_kwargs=layers, **settings)
    return Ready(lambda iterations: model.learn(iterations * job.batch_size, reset_num_timesteps=False))


def ppo_settings(job: Job) -> dict[str, object]:
    return {
        "n_steps": job.horizon,
        "batch_size": job.minibatch_size,
        "n_epochs": job.epochs,
        "learning_rate": job.learning_rate,
        "gamma": job.gamma,
        "gae_lambda": job.lam,
        "clip_range": job.clip,
        "vf_coef": job.value_coef,
        "ent_coef": job.entropy_coef,
        "max_grad_norm": job.max_grad_norm,
        "device": "cpu",
    }


def networks(job: Job) -> dict[str, list[int]]:
    return {"pi": list(job.hidden), "vf": list(job.critic_hidden)}


def tasks(job: Job):
    """Normalised observations and rewards."""
    import gymnasium as gym
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    return VecNormalize(DummyVecEnv([lambda: gym.make(job.env, disable_env_checker=True)] * job.envs), gamma=job.gamma)


def games(job: Job):
    """The library's own Atari wrappers, four frames seen at once."""
    import ale_py
    import gymnasium as gym
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gym.register_envs(ale_py)
    return VecFrameStack(make_atari_env(f"{job.env}NoFrameskip-v4", n_envs=job.envs, seed=1), 4)


if __name__ == "__main__":
    run("stable-baselines3", prepare)
