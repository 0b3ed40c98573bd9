"""The same training job on this project and on Stable-Baselines3, interleaved in one run.

    python benchmarks/peers.py [ENV] [--hidden 64 64] [--rounds 3] [--steps 40960]

Both train PPO-Clip with 8 environments × 256 steps, 10 epochs of 4 minibatches, normalised observations and rewards
(an Atari game such as Breakout: 8 × 128, 4 epochs of 4 minibatches, the Nature CNN), and the threads and backend that
each chooses by itself. Warm: set-up and compilation are not counted. Prints steps per second
(best of the rounds) and the ratio.
"""

import argparse
import json
import subprocess
import sys
import time


def ours(env: str, hidden: list[int], steps: int) -> float:
    from spo.envs.atari import is_atari
    from spo.envs.making import EnvMaker
    from spo.presets import make_config
    from spo.training import Training

    settings = {} if is_atari(env) else {"hidden": tuple(hidden)}
    config = make_config(env, steps=10**7, objective="ppo-clip", **settings)
    training = Training(config, EnvMaker(env, {}))
    training.choose_update_path()
    for _ in range(2):
        training.iterate()
    started, before = time.perf_counter(), training.collector.env_steps
    while training.collector.env_steps - before < steps:
        training.iterate()
    return (training.collector.env_steps - before) / (time.perf_counter() - started)


def stable_baselines3(env: str, hidden: list[int], steps: int) -> float:
    from spo.envs.atari import is_atari

    model = sb3_atari(env) if is_atari(env) else sb3_control(env, hidden)
    model.learn(4096)
    started = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - started)


def sb3_atari(game: str):
    import ale_py
    import gymnasium as gym
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    gym.register_envs(ale_py)
    envs = VecFrameStack(make_atari_env(f"{game}NoFrameskip-v4", n_envs=8, seed=1), 4)
    settings = {"n_steps": 128, "batch_size": 256, "n_epochs": 4, "ent_coef": 0.01, "clip_range_vf": 0.2}
    return PPO("CnnPolicy", envs, device="cpu", **settings)


def sb3_control(env: str, hidden: list[int]):
    import gymnasium as gym
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
    from torch import nn

    envs = VecNormalize(DummyVecEnv([lambda: gym.make(env, disable_env_checker=True)] * 8))
    layers = {"net_arch": {"pi": hidden, "vf": [64, 64]}, "activation_fn": nn.Tanh}
    settings = {"n_steps": 256, "batch_size": 512, "n_epochs": 10, "clip_range_vf": 0.2, "policy_kwargs": layers}
    return PPO("MlpPolicy", envs, device="cpu", **settings)


PEERS = {"spo": ours, "stable-baselines3": stable_baselines3}


def in_own_process(peer: str, arguments: argparse.Namespace) -> float:
    """A fresh process for every measurement, so that no peer inherits another's threads or memory."""
    settings = ["--peer", peer, "--steps", str(arguments.steps), "--hidden", *map(str, arguments.hidden)]
    command = [sys.executable, "-W", "ignore", __file__, arguments.env, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env", nargs="?", default="HalfCheetah-v4")
    parser.add_argument("--hidden", nargs="*", type=int, default=[64, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40960)
    parser.add_argument("--peer", choices=PEERS, help="measure one peer in this process and print its steps/s")
    arguments = parser.parse_args()
    if arguments.peer:
        print(json.dumps(PEERS[arguments.peer](arguments.env, arguments.hidden, arguments.steps)))
        return
    speeds = {peer: [] for peer in PEERS}
    for number in range(1, arguments.rounds + 1):
        for peer in PEERS:
            speeds[peer].append(in_own_process(peer, arguments))
            print(f"round {number} of {arguments.rounds}: {peer} {speeds[peer][-1]:,.0f} steps/s", flush=True)
    from spo.envs.atari import is_atari

    policy = "the Nature CNN" if is_atari(arguments.env) else "policy " + "-".join(map(str, arguments.hidden))
    print(f"\n{arguments.env}, {policy}, best of {arguments.rounds}")
    for peer, values in speeds.items():
        print(f"  {peer:20} {max(values):8,.0f} steps/s   spo is {max(speeds['spo']) / max(values):.2f} × as fast")


if __name__ == "__main__":
    main()
