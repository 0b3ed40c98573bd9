"""sb3-contrib: recurrent and maskable PPO through the rewriter are the host's, and SPO differs."""

import gymnasium as gym
import numpy as np
import pytest
from hosting import are_equal, are_finite, parameters_of, require_host, run_example

require_host("sb3_contrib")

from sb3_contrib import MaskablePPO, RecurrentPPO

from spo.integrations.sb3_contrib import MaskableSPO, RecurrentSPO


class MaskedCartPole(gym.Wrapper):
    """CartPole in which every third step allows one action only."""

    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
        self.steps = 0

    def step(self, action):
        self.steps += 1
        return self.env.step(action)

    def action_masks(self) -> np.ndarray:
        return np.array([self.steps % 3 != 0, True])


PAIRS = {
    "recurrent": (RecurrentPPO, RecurrentSPO, "MlpLstmPolicy", lambda: gym.make("CartPole-v1")),
    "maskable": (MaskablePPO, MaskableSPO, "MlpPolicy", MaskedCartPole),
}


@pytest.mark.parametrize("host,ours,policy,env", PAIRS.values(), ids=PAIRS)
def test_ppo_through_the_rewriter_is_the_hosts_ppo(host, ours, policy, env, tmp_path):
    kwargs = {"policy_kwargs": {"lstm_hidden_size": 8}} if host is RecurrentPPO else {}

    def train(algorithm, **settings):
        model = algorithm(
            policy, env(), n_steps=48, batch_size=24, n_epochs=2, seed=1, device="cpu", **kwargs, **settings
        )
        return model.learn(96)

    plain, through, other = train(host), train(ours, objective="ppo-clip"), train(ours)
    assert are_equal(parameters_of(plain.policy), parameters_of(through.policy))
    assert not are_equal(parameters_of(plain.policy), parameters_of(other.policy))
    assert are_finite(parameters_of(other.policy))
    other.save(tmp_path / "model")
    for algorithm in (ours, host):
        loaded = algorithm.load(tmp_path / "model", device="cpu")
        assert are_equal(parameters_of(loaded.policy), parameters_of(other.policy))
        loaded.set_env(other.get_env())
        loaded.learn(48, reset_num_timesteps=False)
        assert loaded.num_timesteps == 144 and are_finite(parameters_of(loaded.policy))
        assert not are_equal(parameters_of(loaded.policy), parameters_of(other.policy))


def test_the_pages_example_runs():
    assert run_example("sb3-contrib", {"100_000": "128"})["model"].num_timesteps == 128
