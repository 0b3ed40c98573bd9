"""A search for settings: what is searched and what is fixed, how it goes on after a kill, and the best as a file."""

import io
import json
import signal
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from spo import cli
from spo.cli.training import parse_train
from spo.errors import SpoError

optuna = pytest.importorskip("optuna")

from spo.experiments import tune as tuning
from spo.experiments import tune_worker
from spo.experiments.executors import ray
from spo.experiments.tune_worker import (
    Search,
    carry_out,
    count_missing,
    find_stopped,
    open_study,
    run_trial,
    search_space,
    suggest,
    try_again,
)
from waiting import PATIENCE, wait_for

TINY = ["--preset", "classic", "--envs", "2", "--hidden", "8", "--critic-hidden", "8", "--compile", "off"]
SMALL = [*TINY, "--horizon", "32", "--minibatches", "2", "--epochs", "1", "--steps", "640"]


def make_search(*words: str, trials: int = 2, seeds: int = 1) -> Search:
    config = parse_train(["CartPole-v1", *words])
    return Search("CartPole-v1", tuning.fixed_settings(config, words), seeds, trials)


def test_what_a_user_names_is_fixed_and_the_rest_is_searched():
    """Also what equals the preset's value; the width is that of the objective."""
    assert set(search_space(make_search(*TINY).config())) >= {"learning_rate", "epochs", "horizon", "epsilon", "hidden"}
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    chosen = suggest(study.ask(), make_search(*SMALL))
    assert set(chosen) == {"learning_rate", "entropy_coef", "epsilon"}
    adaptive = make_search("--preset", "classic", "--objective", "spo-adaptive").config()
    assert "deviation_target" in search_space(adaptive) and "epsilon" not in search_space(adaptive)
    assert "hidden" not in search_space(parse_train(["Breakout", "--preset", "atari"]))


@pytest.mark.parametrize("preset", ["classic", "mujoco", "atari"])
def test_every_choice_is_a_configuration(preset):
    search = Search("CartPole-v1" if preset != "atari" else "Breakout", {"preset": preset}, 1, 1)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    for _ in range(20):
        config = search.config(**suggest(study.ask(), search))
        assert config.batch_size % config.minibatches == 0


def test_a_trial_is_the_median_of_its_seeds(tmp_path):
    search = make_search(*SMALL, seeds=2)
    trial = open_study(tmp_path).ask()
    value = run_trial(trial, search, tmp_path)
    runs = [tmp_path / "trials" / "0" / seed for seed in ("1", "2")]
    assert all(json.loads((run / "status.json").read_text())["state"] == "finished" for run in runs)
    assert 0 < value < 500


def test_a_search_goes_on_where_it_stopped(tmp_path, capsys):
    """A trial that died with its process is tried again; the best settings are a file that training takes."""
    out = tmp_path / "search"
    tuning.begin(out, make_search(*SMALL, trials=2))
    died = open_study(out).ask()
    suggest(died, make_search(*SMALL))
    cli.dispatch(["tune", "CartPole-v1", *SMALL, "--trials", "3", "--jobs", "1", "--out", str(out)])
    study = open_study(out)
    states = [trial.state.name for trial in study.get_trials()]
    assert states[0] == "FAIL" and len(states) == 4 and "COMPLETE" in states[1:]
    assert study.get_trials()[1].params == died.params
    best = tomllib.loads((out / "best.toml").read_text())
    assert best["learning_rate"] == study.best_params["learning_rate"] and best["horizon"] == 32
    assert parse_train(["CartPole-v1", "--config", str(out / "best.toml")]).epsilon == study.best_params["epsilon"]
    assert "1 stopped" in capsys.readouterr().out and (out / "optimization_history.png").stat().st_size > 1000
    with pytest.raises(SpoError, match="holds another search"):
        cli.dispatch(["tune", "CartPole-v1", *SMALL, "--gamma", "0.9", "--out", str(out)])


def carry_out_one(search: Search, out: Path, monkeypatch, outcome: dict | BaseException) -> None:
    """A trial as a worker carries it out, whose training comes to this."""

    def train(config, *_):
        if isinstance(outcome, BaseException):
            raise outcome
        return SimpleNamespace(summary=outcome)

    monkeypatch.setattr(tune_worker, "run_training", train)
    open_study(out).optimize(lambda trial: carry_out(trial, search, out), n_trials=1, catch=(SpoError,))


def test_a_stopped_trial_is_tried_again_once_and_counts_no_more(tmp_path, monkeypatch):
    """However often it is stopped, and however often a search goes on; one that was refused came to its own end."""
    search, study = make_search(*SMALL), open_study(tmp_path)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            carry_out_one(search, tmp_path, monkeypatch, KeyboardInterrupt())
        tuning.free_abandoned(study)
        assert [trial.state.name for trial in study.get_trials()][-1] == "WAITING" and count_missing(study, 2) == 2
    carry_out_one(search, tmp_path, monkeypatch, SpoError("refused"))
    tuning.free_abandoned(study)
    assert [trial.state.name for trial in study.get_trials()] == ["FAIL"] * 3 and count_missing(study, 2) == 1
    first, second, third = (trial.params for trial in study.get_trials())
    assert first == second == third and len(first) == 3
    lines = [tuning.describe_trial(trial, find_stopped(study)).split(",")[0] for trial in study.get_trials()]
    assert lines == ["stopped", "stopped", "fail"]


def test_a_trial_that_was_killed_before_it_chose_is_tried_again_as_well(tmp_path):
    study, params = open_study(tmp_path), {"learning_rate": 1e-3}
    study.enqueue_trial(params)
    try_again(study, study.ask().number)  # by a call that was killed before it had told Optuna of the trial's end
    tuning.free_abandoned(study)
    _, again = study.get_trials()
    assert study.ask().suggest_float("learning_rate", 1e-5, 1e-2) == params["learning_rate"]
    assert again.number == 1 and count_missing(study, 2) == 1


def test_ctrl_c_leaves_its_trial_to_the_next_call(tmp_path):
    out = tmp_path / "search"
    words = ["tune", "CartPole-v1", *TINY, "--steps", "100M", "--trials", "1", "--jobs", "1", "--out", str(out)]
    process = subprocess.Popen([sys.executable, "-m", "spo", *words], stderr=subprocess.PIPE, text=True)
    wait_for(lambda: any(file.stat().st_size for file in out.rglob("metrics.jsonl")))
    process.send_signal(signal.SIGINT)
    assert "the same command goes on" in process.communicate(timeout=PATIENCE)[1]
    study = open_study(out)
    assert [trial.state.name for trial in study.get_trials()] == ["FAIL", "WAITING"]
    assert count_missing(study, 1) == 1


def test_trials_that_a_kill_left_are_told(tmp_path, monkeypatch, capsys):
    """After what could be done was done: a table, the best settings, and exit code 2."""
    search = make_search(*SMALL)

    def search_once(executor, most, out, study):
        carry_out_one(search, out, monkeypatch, {"return": 12.0})
        suggest(study.ask(), search)

    monkeypatch.setattr(tuning, "run_searchers", search_once)
    out = tmp_path / "search"
    with pytest.raises(SpoError, match="1 of 2 trials were stopped; the same command goes on with them"):
        cli.dispatch(["tune", "CartPole-v1", *SMALL, "--trials", "2", "--jobs", "1", "--out", str(out)])
    assert "12.0" in capsys.readouterr().out and (out / "best.toml").exists()
    assert [trial.state.name for trial in open_study(out).get_trials()] == ["COMPLETE", "FAIL", "WAITING"]


def test_a_pruned_trial_has_no_return(tmp_path):
    """Optuna takes what it was pruned at for its value."""
    study = open_study(tmp_path)
    for state in (optuna.trial.TrialState.PRUNED, None):
        trial = study.ask()
        trial.report(7.0, 1)
        study.tell(trial, None if state else 8.0, state)
    pruned, completed = study.get_trials()
    assert pruned.value == 7.0 and tuning.describe_trial(pruned, set()) == "pruned"
    assert tuning.describe_trial(completed, set()) == "return 8.0"


def test_no_more_trials_are_made_than_asked_for(tmp_path):
    """By several processes too: what another one carries out counts, and what is there already."""
    study = open_study(tmp_path)
    assert count_missing(study, 2) == 2
    study.tell(study.ask(), 1.0)
    study.ask()
    assert count_missing(study, 2) == 0 and count_missing(study, 3) == 1


def test_the_table_shows_whole_numbers_in_a_terminal_of_80_columns(tmp_path):
    study, space = open_study(tmp_path), search_space(make_search("--preset", "classic").config())
    trial = study.ask({"hidden": optuna.distributions.CategoricalDistribution(["256 256 128 128 64 64"])})
    for name, choose in space.items():
        assert name == "hidden" or choose(trial)
    study.tell(trial, -1234.56)
    console = Console(width=80, file=io.StringIO())
    console.print(tuning.trial_table(study))
    text = console.file.getvalue()
    assert "-1234.6" in text and f"{trial.params['learning_rate']:.3g}" in text and "…" not in text


def test_a_node_that_does_not_see_the_directory_says_so(tmp_path, monkeypatch):
    """And one that sees it carries out trials there, as a process of its own."""
    tuning.begin(tmp_path, make_search(*SMALL))
    content = (tmp_path / "search.json").read_bytes()
    monkeypatch.setattr(ray, "search_command", lambda path, number: ["sh", "-c", f"echo {path.name} {number}; exit 3"])
    assert ray.search_on_node(str(tmp_path), content, 7) == (3, None)
    assert (tmp_path / "output.txt").read_text() == f"{tmp_path.name} 7\n"
    with pytest.raises(SpoError, match="does not see .+: name a directory with --out that all nodes see"):
        ray.search_on_node(str(tmp_path / "elsewhere"), content, 0)


@pytest.mark.long
@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")
def test_a_search_on_ray(tmp_path, capsys):
    out = tmp_path / "search"
    words = ["tune", "CartPole-v1", *SMALL, "--trials", "3", "--jobs", "2", "--out", str(out), "--executor", "ray"]
    cli.dispatch(words)
    states = [trial.state.name for trial in open_study(out).get_trials()]
    assert len(states) == 3 and set(states) <= {"COMPLETE", "PRUNED"}
    assert tomllib.loads((out / "best.toml").read_text())["horizon"] == 32


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--executor", "ray", "--ray-address", "127.0.0.1:1"), "--ray-address 127.0.0.1:1 cannot be reached"),
        (("--stop-at", "100"), "--stop-at 100 is not accepted here: runs that are compared have one length"),
        (("--threads", "2"), "--threads is not accepted here: each run has one thread"),
        (("--seed=3",), "--seed=3 is not accepted here: --seeds says how many there are"),
        (("--trials", "0"), "--trials 0 is not accepted: it must be a whole number of at least 1"),
        (("--seeds", "0"), "--seeds 0 is not accepted"),
        (("--wings", "2"), "Unrecognized options: --wings"),
    ],
)
def test_refusals(tmp_path, words, sentence):
    with pytest.raises(SpoError, match=sentence):
        cli.dispatch(["tune", "CartPole-v1", *words, "--out", str(tmp_path / "new")])
    (tmp_path / "mine").touch()
    with pytest.raises(SpoError, match="is not empty and holds no search.json"):
        cli.dispatch(["tune", "CartPole-v1", "--out", str(tmp_path)])


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SpoError, match="spo tune needs: pip install 'simple-policy-optimization"):
        tuning.tune(parse_train(["CartPole-v1"]), [], None, 1, 1, 1)


def test_settings_of_every_kind_as_toml():
    values = {"env_arg": {"a b": 1}, "hidden": [8, 8], "paper": True, "objective": 'a"\\b', "gamma": 0.99, "lam": 1e-05}
    assert tomllib.loads(tuning.as_toml(values | {"epsilon": None})) == values
