"""rl-zoo3 by name: `--algo spo` trains, saves and is enjoyed, with the zoo's own settings of PPO or others."""

import subprocess
import sys

from hosting import require_host

require_host("zoo")

from rl_zoo3 import ALGOS, hyperparams_opt

from spo.integrations.sb3 import SPO
from spo.integrations.sb3_contrib import RecurrentSPO
from spo.integrations.zoo import with_settings

FILE = """
CartPole-v1:
  n_timesteps: 128
  policy: MlpPolicy
  n_steps: 64
  batch_size: 32
  n_epochs: 2
  objective: aspo
"""


def call(*arguments: str) -> str:
    command = [sys.executable, "-m", "spo.integrations.zoo", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_by_name_is_saved_and_enjoyed(tmp_path):
    (tmp_path / "settings.yml").write_text(FILE)
    files = ["-f", str(tmp_path / "logs")]
    out = call("train", "--algo", "spo", "--env", "CartPole-v1", "--conf-file", str(tmp_path / "settings.yml"), *files)
    assert "'aspo'" in out
    saved = tmp_path / "logs" / "spo" / "CartPole-v1_1" / "CartPole-v1.zip"
    assert SPO.load(saved, device="cpu").objective == "aspo"
    call("enjoy", "--algo", "spo", "--env", "CartPole-v1", "--no-render", "-n", "20", *files)


def test_a_bad_objective_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "settings.yml").write_text(FILE.replace("aspo", "trpo"))
    named = ["--conf-file", str(tmp_path / "settings.yml"), "-f", str(tmp_path / "logs")]
    command = [sys.executable, "-m", "spo.integrations.zoo", "train", "--algo", "spo", "--env", "CartPole-v1", *named]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "error: objective 'trpo' does not fit into stable-baselines3" in done.stderr.splitlines()[-1]


def test_settings_are_those_of_ppo_unless_named():
    plain = ["train", "--algo", "spo", "--env", "CartPole-v1"]
    assert with_settings(plain)[-1].endswith("hyperparams/ppo.yml")
    assert with_settings(["train", "--algo", "spo_lstm"])[-1].endswith("hyperparams/ppo_lstm.yml")
    assert with_settings(["train", "--algo=spo"])[-1].endswith("hyperparams/ppo.yml")
    for arguments in (
        ["enjoy", *plain[1:]],
        [*plain, "--conf-file", "x.yml"],
        [*plain, "-conf=x.yml"],
        ["train", "--algo", "ppo"],
    ):
        assert with_settings(arguments) == arguments


def test_the_search_for_hyperparameters_knows_them():
    assert (ALGOS["spo"], ALGOS["spo_lstm"]) == (SPO, RecurrentSPO)
    assert hyperparams_opt.HYPERPARAMS_SAMPLER["spo"] is hyperparams_opt.HYPERPARAMS_SAMPLER["ppo"]
    assert hyperparams_opt.HYPERPARAMS_CONVERTER["spo"] is hyperparams_opt.HYPERPARAMS_CONVERTER["ppo"]
