"""A trained policy in a program of your own: loaded from its directory, asked for actions.

    python examples/load_and_act.py RUN

Loading reads safetensors and JSON and runs no code; the normaliser of observations and the bounds of actions are part
of the policy. Only the two files in RUN/policy are needed.
"""

import sys

import gymnasium as gym

import spo


def play(policy: spo.Policy, env: gym.Env, seed: int = 0) -> float:
    """The return of one deterministic episode."""
    observation, _ = env.reset(seed=seed)
    total, is_over = 0.0, False
    while not is_over:
        observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
        total, is_over = total + float(reward), terminated or truncated
    return total


if __name__ == "__main__":
    policy = spo.load(sys.argv[1])
    print(f"return {play(policy, gym.make(policy.spec.env)):.1f}")
