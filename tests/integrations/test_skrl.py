"""skrl through its Runner: its agents through the rewriter are its agents, SPO differs; schedulers, checkpoints."""

from types import SimpleNamespace

import gymnasium as gym
import pytest
import torch
from hosting import Guess, are_equal, are_finite, parameters_of, require_host, run_example

require_host("skrl")

from skrl import logger
from skrl.agents.torch.ppo import PPO_RNN
from skrl.envs.wrappers.torch import MultiAgentEnvWrapper, wrap_env
from skrl.utils.runner.torch import Runner as HostRunner

from spo.errors import SpoError
from spo.integrations.skrl import ISPO, MASPO, SPO, SPO_RNN, Runner
from spo.objectives import OBJECTIVES, Objective, spo

logger.setLevel("ERROR")
NETWORK = [{"name": "net", "input": "OBSERVATIONS", "layers": [16], "activations": "tanh"}]


def settings(agent: str = "PPO", **changes) -> dict:
    policy = {"class": "CategoricalMixin", "network": NETWORK, "output": "ACTIONS"}
    learning = {"rollouts": 32, "learning_epochs": 4, "mini_batches": 2, "learning_rate": 1e-2, "ratio_clip": 0.2}
    if agent != "PPO":
        learning["learning_rate_scheduler_kwargs"] = {"first": {}, "second": {}}
    experiment = {"directory": "", "write_interval": 0, "checkpoint_interval": 0}
    return {
        "seed": 1,
        "models": {
            "separate": True,
            "policy": policy,
            "value": {"class": "DeterministicMixin", "network": NETWORK, "output": "ONE"},
        },
        "memory": {"class": "RandomMemory", "memory_size": -1},
        "agent": {"class": agent, "experiment": experiment} | learning | changes,
        "trainer": {"class": "SequentialTrainer", "timesteps": 96, "close_environment_at_exit": False},
    }


class Guessing(MultiAgentEnvWrapper):
    """Two agents that guess apart, as tensors."""

    def __init__(self):
        self.games = {"first": Guess(), "second": Guess()}
        spaces = {uid: game.observation_space for uid, game in self.games.items()}
        described = {"possible_agents": list(self.games), "agents": list(self.games), "num_envs": 1, "device": "cpu"}
        described |= {"observation_spaces": spaces, "state_spaces": spaces}
        described |= {"action_spaces": {uid: game.action_space for uid, game in self.games.items()}}
        super().__init__(SimpleNamespace(**described))
        self.shown = {uid: torch.as_tensor(game.reset(seed=1)[0])[None] for uid, game in self.games.items()}

    def reset(self):
        return self.shown, {}

    def state(self):
        return self.shown

    def step(self, actions):
        rewards = {}
        for uid, game in self.games.items():
            _, reward, *_ = game.step(int(actions[uid]))
            rewards[uid] = torch.tensor([[reward]])
            self.shown[uid] = torch.as_tensor(game.reset()[0])[None]
        over = {uid: torch.tensor([[True]]) for uid in self.games}
        return self.shown, rewards, over, {uid: torch.tensor([[False]]) for uid in self.games}, {}

    def render(self):
        pass

    def close(self):
        pass


def train(runner: type[HostRunner], agent: str = "PPO", changes: dict | None = None, **objective) -> HostRunner:
    env = Guessing()
    if agent == "PPO":
        env = wrap_env(gym.make("CartPole-v1"), verbose=False)
        env._env.reset(seed=1)
    made = runner(env, settings(agent, **(changes or {})), **objective)
    made.trainer.train()
    return made


def weights_of(runner: HostRunner) -> list[torch.Tensor]:
    models = runner.agent.models
    nested = models.values() if "policy" in models else [m for one in models.values() for m in one.values()]
    return [value for model in nested for value in parameters_of(model)]


class HostRecurrentRunner(HostRunner):
    """Whose PPO is the agent for recurrent models, which takes others too."""

    def _component(self, name: str):
        return PPO_RNN if name.lower() == "ppo" else super()._component(name)


class RecurrentRunner(Runner):
    AGENTS = {"ppo": SPO_RNN}


CASES = {
    "PPO": ("PPO", HostRunner, Runner, SPO),
    "PPO_RNN": ("PPO", HostRecurrentRunner, RecurrentRunner, SPO_RNN),
    "IPPO": ("IPPO", HostRunner, Runner, ISPO),
    "MAPPO": ("MAPPO", HostRunner, Runner, MASPO),
}


@pytest.mark.parametrize("agent,host_runner,runner,ours", CASES.values(), ids=CASES)
def test_ppo_through_the_rewriter_is_the_hosts_ppo(agent, host_runner, runner, ours):
    train(host_runner, agent)  # the first training in a process differs from those after it
    host, through = train(host_runner, agent), train(runner, agent, objective="ppo-clip")
    other = train(runner, agent)
    assert type(other.agent) is ours
    assert are_equal(weights_of(host), weights_of(through))
    assert not are_equal(weights_of(host), weights_of(other)) and are_finite(weights_of(other))


def test_a_rate_that_follows_the_kl_is_warned_of():
    scheduler = {"learning_rate_scheduler": "KLAdaptiveLR", "learning_rate_scheduler_kwargs": {"kl_threshold": 0.01}}
    with pytest.warns(UserWarning, match="KLAdaptiveLR raises the learning rate to its cap under 'spo'"):
        Runner(Guessing(), settings("IPPO", **scheduler))


def test_checkpoints_hold_what_is_adapted_and_go_both_ways(tmp_path, monkeypatch):
    widening = Objective("widening", spo, adapt=lambda epsilon, ratio_deviation: 2 * epsilon)
    monkeypatch.setitem(OBJECTIVES, "widening", widening)
    ours = train(Runner, objective="widening")
    assert ours.agent.hosted_objective.adaptive_value == pytest.approx(0.2 * 2**3)
    assert {"Ratio / ratio_deviation", "Ratio / epsilon"} <= set(ours.agent.tracking_data)
    ours.agent.save(str(tmp_path / "agent.pt"))
    for runner, objective in ((Runner, {"objective": "widening"}), (HostRunner, {})):
        loaded = runner(wrap_env(gym.make("CartPole-v1"), verbose=False), settings(), **objective)
        loaded.agent.load(str(tmp_path / "agent.pt"))
        assert are_equal(weights_of(ours), weights_of(loaded))
        if runner is Runner:
            assert loaded.agent.hosted_objective.adaptive_value == pytest.approx(0.2 * 2**3)
        loaded.trainer.train()
        assert not are_equal(weights_of(ours), weights_of(loaded)) and are_finite(weights_of(loaded))
    with pytest.raises(SpoError, match="adapts epsilon, for which the host has no place"):
        Runner(Guessing(), settings("IPPO"), objective="widening")


def test_the_pages_example_runs():
    host = HostRunner(wrap_env(gym.make("CartPole-v1"), verbose=False), settings())
    agent = run_example("skrl", models=host.agent.models, memory=host.agent.memory, env=host._env)["agent"]
    assert type(agent) is SPO and agent.cfg.ratio_clip == 0.2
