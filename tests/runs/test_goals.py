"""--stop-at and --keep-best: when a run ends, which policy it keeps, and that a resumed run does the same."""

import shutil

import pytest

import spo
from crash import KillAt, child, start_or_resume
from probes import EndlessReward
from spo.experiments.plan import check_length
from spo.models.policy_files import list_best
from spo.runs.best_policy import BestPolicyKeeper
from spo.runs.console import _describe_return
from spo.runs.directory import RunDirectory
from spo.runs.return_goal import ReturnGoal

SHORT = {
    "preset": "classic",
    "envs": 4,
    "horizon": 64,
    "steps": 16 * 256,
    "learning_rate": 1e-6,
    "compile": "off",
    "quiet": True,
}
EVALUATED = SHORT | {"steps": 6 * 256, "eval_every": 1, "keep_best": True, "checkpoint_every": 3}


def test_a_run_stops_once_its_episodes_reach_the_return(tmp_path):
    """CartPole's episodes give at least 8; a hundred of them have ended after a few iterations."""
    run = spo.train("CartPole-v1", **SHORT, stop_at=8, out=str(tmp_path / "run"))
    directory = RunDirectory(run.directory)
    episodes, status = directory.read_episodes(), directory.read_status()
    last = directory.read_metrics()[-1]
    before = [each for each in episodes if each["env_steps"] <= last["env_steps"] - 256]
    assert len(before) < 100 <= len(episodes) and last["env_steps"] < 4096
    assert status["state"] == "finished" and "reached --stop-at 8" in status["reason"]
    tenth = [each["return"] for each in episodes if each["env_steps"] > 0.9 * last["env_steps"]]
    assert len(tenth) < 8 or run.summary["return"] == pytest.approx(sum(tenth) / len(tenth))


def test_a_run_that_reached_its_return_is_finished_when_it_is_resumed(tmp_path, capsys):
    spo.train("CartPole-v1", **SHORT, stop_at=8, out=str(tmp_path / "run"))
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    again = spo.resume(tmp_path / "run")
    assert "is finished; the mean return of 100 episodes" in capsys.readouterr().err
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before and again.policy.act([0.0] * 4) in (0, 1)


def test_a_run_that_ended_early_says_at_its_end_where_and_why(tmp_path, capsys):
    settings = SHORT | {"quiet": False, "out": str(tmp_path / "run"), "stop_at": 8, "checkpoint_every": 1}
    spo.train("CartPole-v1", **settings, callback=lambda trainer, row: False)
    label = "stopped early               at"
    assert f"{label} 256 of 4,096 steps: ended by its callback\n" in capsys.readouterr().out
    steps = spo.resume(tmp_path / "run").summary["env_steps"]
    assert f"{label} {steps:,} of 4,096 steps: the mean return of 100 episodes, " in capsys.readouterr().out
    assert steps < 4096
    spo.train("CartPole-v1", **settings | {"stop_at": 501, "steps": 256, "out": str(tmp_path / "whole")})
    assert "stopped early" not in capsys.readouterr().out


def test_a_run_in_which_no_episode_ended_makes_no_note_of_few(tmp_path, capsys):
    settings = SHORT | {"quiet": False, "steps": 256, "env_arg": {"limit": 1000}}
    spo.train(EndlessReward, **settings, out=str(tmp_path / "run"))
    assert "return over the last 10 %   no episode ended\n" in capsys.readouterr().out
    assert "too few ended" in _describe_return({"return": 1.0, "return_from_last_episodes": True})


def test_a_run_that_does_not_reach_its_return_goes_to_its_end(tmp_path):
    run = spo.train("CartPole-v1", **SHORT | {"steps": 4 * 256}, stop_at=501, out=str(tmp_path / "run"))
    status = RunDirectory(run.directory).read_status()
    assert run.summary["env_steps"] == 1024 and (status["state"], status["reason"]) == ("finished", None)


def test_evaluations_decide_where_there_are_any():
    goal = ReturnGoal(10.0, has_evaluations=True)
    goal.write({}, [{"return": 500.0}] * 200)
    goal.write({"eval_return_mean": 9.9}, [])
    assert goal.reached is None
    goal.write({"eval_return_mean": 10.0}, [])
    assert goal.reached == "the evaluation's mean return, 10.0, reached --stop-at 10"


def test_a_resumed_run_counts_the_episodes_before_it():
    goal = ReturnGoal(-200.0, has_evaluations=False)
    goal.rewind([], [{"return": -100.0}] * 99)
    goal.write({}, [])
    assert goal.reached is None
    goal.write({}, [{"return": -100.0}])
    assert goal.reached == "the mean return of 100 episodes, -100.0, reached --stop-at -200"


def test_a_stopped_run_is_the_same_after_a_kill(tmp_path):
    settings = SHORT | {"stop_at": 8, "checkpoint_every": 1}
    whole = spo.train("CartPole-v1", **settings, out=str(tmp_path / "whole"))
    out = tmp_path / "run"
    spo.train("CartPole-v1", **settings, out=str(out), callback=lambda _, row: row["iteration"] < 2)
    resumed = spo.resume(out, quiet=True)
    assert resumed.summary["env_steps"] == whole.summary["env_steps"]
    assert (out / "episodes.jsonl").read_bytes() == (tmp_path / "whole/episodes.jsonl").read_bytes()


def test_runs_that_are_compared_do_not_stop_early():
    with pytest.raises(spo.ConfigError, match="^--stop-at 100 is not accepted here: runs that are compared have one"):
        check_length(spo.make_config("CartPole-v1", **SHORT, stop_at=100))


def test_the_best_policy_is_the_one_with_the_highest_evaluation(tmp_path):
    run = spo.train("CartPole-v1", **EVALUATED, out=str(tmp_path / "run"))
    rows = RunDirectory(run.directory).read_metrics()
    highest = max(row["eval_return_mean"] for row in rows)
    first = next(row["iteration"] for row in rows if row["eval_return_mean"] == highest)
    assert [int(folder.name) for folder in list_best(run.directory)][0] == first
    played = spo.evaluate(run.directory, best=True, seed=1)  # the seed of the run, as its own evaluations have
    assert played.return_mean == highest
    assert (list_best(run.directory)[0] / "evaluation.json").exists()
    assert not (run.directory / "evaluation.json").exists()
    assert spo.load(run.directory, best=True).act([0.0] * 4) in (0, 1)


def test_best_policies_that_no_checkpoint_needs_are_removed(tmp_path):
    run = RunDirectory(spo.train("CartPole-v1", **SHORT | {"steps": 256}, out=str(tmp_path / "run")).directory)
    keeper = BestPolicyKeeper(run, lambda: spo.load(run.path))
    for iteration in range(1, 5):
        keeper.write({"iteration": iteration, "eval_return_mean": float(iteration)}, [])
    assert [int(folder.name) for folder in list_best(run.path)] == [4, 3, 2, 1]  # the only checkpoint is of iteration 1
    (run.checkpoints / "00000001").rename(run.checkpoints / "00000004")
    keeper.write({"iteration": 5, "eval_return_mean": 4.0}, [])
    assert len(list_best(run.path)) == 4  # not better than the best
    keeper.write({"iteration": 6, "eval_return_mean": 4.5}, [])
    assert [int(folder.name) for folder in list_best(run.path)] == [6, 4]
    keeper.rewind([{"iteration": 5, "eval_return_mean": 4.0}], [])
    assert [int(folder.name) for folder in list_best(run.path)] == [4] and keeper.highest == 4.0


def test_a_run_killed_while_it_keeps_a_policy_has_the_same_best_in_the_end(tmp_path, amount):
    settings = EVALUATED | {"steps": 4 * 256, "checkpoint_every": 2, "keep": 1}
    whole = start_or_resume(tmp_path / "whole", "CartPole-v1", settings)
    expected = best_files(whole.directory)
    for number in amount((9, 19), (9, 14, 19, 24)):
        out = tmp_path / f"run-{number}"
        process = child(out, "CartPole-v1", settings, KillAt(number))
        process.join()
        start_or_resume(out, "CartPole-v1", settings)
        assert best_files(out) == expected, number
        shutil.rmtree(out)


def best_files(run) -> tuple[str, bytes]:
    folder = list_best(run)[0]
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]
    return folder.name, (folder / "policy.safetensors").read_bytes()


def test_what_goes_without_evaluations_is_refused(tmp_path):
    with pytest.raises(spo.ConfigError, match="^--keep-best needs evaluations: set --eval-every"):
        spo.make_config("CartPole-v1", **SHORT, keep_best=True)
    run = spo.train("CartPole-v1", **SHORT | {"steps": 256}, out=str(tmp_path / "run"))
    with pytest.raises(spo.SpoError, match="holds no best policy: a run keeps one with --eval-every and --keep-best"):
        spo.load(run.directory, best=True)
    with pytest.raises(spo.ConfigError, match="--best is not accepted: hf://a/b is on the Hub"):
        spo.load("hf://a/b", best=True)
