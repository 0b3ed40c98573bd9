"""rsl_rl by class path through its runner: its PPO is its PPO, SPO differs, the adaptive schedule, checkpoints."""

import tempfile
import warnings

import pytest
import torch
from hosting import are_equal, are_finite, parameters_of, require_host

require_host("rsl_rl")

from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner, on_policy_runner
from tensordict import TensorDict

from spo.errors import SpoError
from spo.integrations import rsl_rl
from spo.integrations.hosts import HOSTS, numbers

RELEASE = numbers(HOSTS["rsl_rl"].version)
IS_NEW = RELEASE >= (4, 0, 0)
"""Since 4.0 actor and critic are configured apart, and the algorithm writes its checkpoints."""
TAKES_PATHS = RELEASE >= (3, 1, 0)
LOOK = 3
FILES = tempfile.TemporaryDirectory()


class Follow(VecEnv):
    """The reward is how near the actions are to the observation; an episode has 20 steps."""

    def __init__(self, num_envs: int = 16, seed: int = 0):
        self.num_envs, self.num_actions, self.device, self.cfg = num_envs, LOOK, "cpu", {}
        self.max_episode_length = 20
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.generator = torch.Generator().manual_seed(seed)
        self.shown = self._draw()

    def _draw(self) -> torch.Tensor:
        return torch.rand(self.num_envs, LOOK, generator=self.generator) * 2 - 1

    def get_observations(self) -> TensorDict:
        return TensorDict({"policy": self.shown}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor):
        rewards = -(actions - self.shown).square().mean(dim=1)
        self.episode_length_buf += 1
        is_over = self.episode_length_buf >= self.max_episode_length
        self.episode_length_buf[is_over] = 0
        self.shown = self._draw()
        return self.get_observations(), rewards, is_over.long(), {"time_outs": is_over.float()}


def settings(class_name: str, **algorithm) -> dict:
    network = {"hidden_dims": [16], "activation": "tanh"}
    if IS_NEW:
        network |= {"class_name": "MLPModel", "obs_normalization": True}
        distribution = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
        stochastic = {"distribution_cfg": distribution} if RELEASE >= (5, 0, 0) else {"stochastic": True}
        models = {"actor": network | stochastic, "critic": network}
    else:
        hidden = {"actor_hidden_dims": [16], "critic_hidden_dims": [16], "activation": "tanh", "init_noise_std": 1.0}
        normalized = {"actor_obs_normalization": True, "critic_obs_normalization": True}
        models = {"policy": {"class_name": "ActorCritic"} | hidden | normalized}
    groups = {"actor": ["policy"], "critic": ["policy"]} if IS_NEW else {"policy": ["policy"], "critic": ["policy"]}
    learning = {"num_learning_epochs": 5, "num_mini_batches": 4, "learning_rate": 1e-3, "entropy_coef": 0.0}
    learning |= {"schedule": "adaptive", "desired_kl": 0.01, "clip_param": 0.2}
    return {
        "num_steps_per_env": 24,
        "save_interval": 1000,
        "obs_groups": groups,
        "algorithm": {"class_name": class_name} | learning | algorithm,
        "empirical_normalization": None,
    } | models


def name_of(objective: str) -> str:
    name = rsl_rl.class_name(objective)
    return f"spo.integrations.rsl_rl:{name}" if TAKES_PATHS else name


def make(class_name: str, seed: int = 1, **algorithm) -> OnPolicyRunner:
    """A runner that writes nothing, but for releases 3.1 to 3.3, which do not run without a directory."""
    torch.manual_seed(seed)
    directory = FILES.name if (3, 1, 0) <= RELEASE < (4, 0, 0) else None
    runner = OnPolicyRunner(Follow(seed=seed), settings(class_name, **algorithm), log_dir=directory, device="cpu")
    runner.disable_logs, runner.logger_type = True, "none"  # before 3.1, set on the first write
    return runner


def train(class_name: str, iterations: int = 3, **algorithm) -> OnPolicyRunner:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runner = make(class_name, **algorithm)
    runner.learn(iterations)
    return runner


def policy_of(runner: OnPolicyRunner) -> list[torch.Tensor]:
    modules = [runner.alg.actor, runner.alg.critic] if IS_NEW else [runner.alg.policy]
    return [value for module in modules for value in parameters_of(module)]


def test_ppo_through_the_rewriter_is_the_hosts_ppo():
    host, through, ours = train("PPO"), train(name_of("ppo-clip")), train(name_of("spo"))
    assert type(ours.alg) is rsl_rl.SPO
    assert are_equal(policy_of(host), policy_of(through))
    assert host.alg.learning_rate == through.alg.learning_rate != 1e-3  # it follows the KL
    assert not are_equal(policy_of(host), policy_of(ours))
    assert are_finite(policy_of(ours))


def test_every_fitting_objective_has_a_class():
    for name, algorithm in rsl_rl.CLASSES.items():
        assert getattr(rsl_rl, name) is getattr(on_policy_runner, name) is algorithm
        assert rsl_rl.class_name(algorithm.objective) == name
    assert {"SPO", "SPO_ADAPTIVE", "PPO_CLIP", "PPO_RB", "ASPO", "SIMPLE"} <= set(rsl_rl.CLASSES)


def test_the_class_of_an_objective_that_does_not_fit_is_refused():
    for objective, error, sentence in (
        ("tr-ppo", SpoError, r"objective 'tr-ppo' does not fit into rsl-rl-lib \S+: it asks for kl; these fit: "),
        ("spoo", AttributeError, "no class 'SPOO'; it has SPO, "),
    ):
        with pytest.raises(error, match=sentence):
            getattr(rsl_rl, rsl_rl.class_name(objective))


def test_the_rate_does_not_follow_the_kl_under_spo():
    with pytest.warns(UserWarning, match="schedule 'adaptive' raises the learning rate to its cap under 'spo'"):
        runner = make(name_of("spo"))
    runner.learn(2)
    assert runner.alg.learning_rate == 1e-3


def test_the_rate_would_run_to_its_cap_under_spo():
    """Why it is held: the host's rule raises it in every minibatch whose KL is below half of its target."""
    rates = {}
    for objective, class_name in (("spo", name_of("spo")), ("ppo", "PPO")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            runner = make(class_name)
        runner.alg.schedule = "adaptive"
        runner.learn(4)
        rates[objective] = runner.alg.learning_rate
    assert rates["spo"] == pytest.approx(1e-2) and rates["ppo"] < 5e-3


def test_spo_learns_and_its_ratios_are_logged():
    runner = train(name_of("spo"), iterations=1, schedule="fixed", learning_rate=5e-3)
    first = runner.env.step(runner.get_inference_policy()(runner.env.get_observations()))[1].mean()
    logged = []
    update = runner.alg.update
    runner.alg.update = lambda: logged.append(update()) or logged[-1]
    runner.learn(30)
    last = runner.env.step(runner.get_inference_policy()(runner.env.get_observations()))[1].mean()
    assert last > first / 2  # rewards are negative: half of the error or less
    assert {"ratio_deviation", "ratio_deviation_max", "ratio_deviation_sample_max"} <= set(logged[-1])
    assert 0 < logged[-1]["ratio_deviation"] < 0.2


def test_a_width_that_is_adapted_is_saved(tmp_path):
    ours = train(name_of("spo-adaptive"), schedule="fixed")
    width = ours.alg.hosted_objective.adaptive_value
    assert width > 0.2  # ratios stay nearer to 1 than its target, so it grows
    ours.save(str(tmp_path / "model.pt"))
    loaded = make(name_of("spo-adaptive"), schedule="fixed")
    loaded.load(str(tmp_path / "model.pt"))
    logged = []
    update = loaded.alg.update
    loaded.alg.update = lambda: logged.append(update()) or logged[-1]
    loaded.learn(1)
    assert logged[0]["epsilon"] == width and loaded.alg.hosted_objective.adaptive_value != width


def test_checkpoints_go_both_ways(tmp_path):
    ours = train(name_of("spo"), schedule="fixed")
    ours.save(str(tmp_path / "model.pt"))
    for class_name in (name_of("spo"), "PPO"):
        loaded = make(class_name, schedule="fixed")
        loaded.load(str(tmp_path / "model.pt"))
        assert are_equal(policy_of(ours), policy_of(loaded))
        loaded.learn(1)
        assert are_finite(policy_of(loaded))
