"""RLlib: its PPO's learner through the rewriter is its own, SPO differs and is sent by reference; its traps."""

import os

import pytest
import torch
from hosting import are_equal, are_finite, require_host, run_example

if os.environ.get("SPO_TEST_HOST") != "rllib":  # its Ray would meet the one of the tests of sweeps
    pytest.skip("RLlib has an environment of its own: make test-integrations", allow_module_level=True)
require_host("rllib")
ray = pytest.importorskip("ray")
REASON = "ray is here without what rllib needs; make test-integrations has it"
pytest.importorskip("ray.rllib.algorithms.ppo", reason=REASON, exc_type=ImportError)

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner

from spo.integrations.rllib import SPOTorchLearner

ATTEMPTS = 5
"""Ray gives its own processes half a minute to start, which is not a machine's fault that does other things too."""


@pytest.fixture(scope="module", autouse=True)
def cluster():
    for attempt in range(ATTEMPTS):
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
            break
        except Exception as error:
            ray.shutdown()
            if attempt == ATTEMPTS - 1 or "timed out during startup" not in str(error):
                raise
    yield
    ray.shutdown()


def configure(learner: type[PPOTorchLearner], use_kl_loss: bool = False, **chosen) -> PPOConfig:
    config = PPOConfig().environment("CartPole-v1").debugging(seed=1).env_runners(num_env_runners=0)
    config = config.learners(learner_class=learner, num_learners=0)
    batch = {"train_batch_size_per_learner": 128, "minibatch_size": 64, "num_epochs": 3, "lr": 1e-2}
    settings = batch | {"use_kl_loss": use_kl_loss, "clip_param": 0.2, "learner_config_dict": chosen}
    return config.training(**settings).rl_module(model_config={"fcnet_hiddens": [16]})


def train(learner: type[PPOTorchLearner], **settings):
    algorithm = configure(learner, **settings).build_algo()
    for _ in range(2):
        result = algorithm.train()
    return algorithm, result["learners"]["default_policy"]


def weights_of(algorithm) -> list[torch.Tensor]:
    weights = algorithm.get_weights()["default_policy"]
    return [torch.as_tensor(weights[name]) for name in sorted(weights)]


def test_ppo_through_the_rewriter_is_the_hosts_ppo(tmp_path):
    host, _ = train(PPOTorchLearner)
    through, _ = train(SPOTorchLearner, objective="ppo-clip")
    ours, logged = train(SPOTorchLearner)
    assert are_equal(weights_of(host), weights_of(through))
    assert not are_equal(weights_of(host), weights_of(ours)) and are_finite(weights_of(ours))
    assert 0 < float(logged["ratio_deviation"]) < float(logged["ratio_deviation_sample_max"])
    ours.save_to_path(str(tmp_path / "checkpoint"))
    again = configure(SPOTorchLearner).build_algo()
    again.restore_from_path(str(tmp_path / "checkpoint"))
    assert are_equal(weights_of(again), weights_of(ours))
    again.train()
    assert not are_equal(weights_of(again), weights_of(ours)) and are_finite(weights_of(again))


def test_the_kl_penalty_is_warned_of():
    with pytest.warns(UserWarning, match="use_kl_loss, RLlib's default, adds 0.2 times the KL to 'spo'"):
        configure(SPOTorchLearner, use_kl_loss=True).build_algo()


def test_a_bad_objective_is_refused():
    with pytest.raises(Exception, match="objective 'spu' does not fit into ray .*: it asks for kl_reverse"):
        configure(SPOTorchLearner, objective="spu").build_algo()


def test_the_pages_example_runs():
    short = "clip_param=0.2, train_batch_size_per_learner=128, minibatch_size=64, num_epochs=1"
    config = run_example("RLlib", {"clip_param=0.2": short})["config"]
    assert config.learner_class is SPOTorchLearner and not config.use_kl_loss
