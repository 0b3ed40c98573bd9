"""Loggers: a user's own, and the table of --verbose."""

import io
import json

import pytest

import spo
from probes import ConstantReward
from spo.runs.loggers import ProgressLogger, TableLogger

CARTPOLE = {"preset": "classic", "envs": 4, "horizon": 32, "steps": 4 * 128, "checkpoint_every": 2, "quiet": True}
ROW = {
    "iteration": 3, "env_steps": 1_000_000, "wall_time": 100.0, "steps_per_second": 12_345.6, "kl": 0.0123,
    "ratio_deviation": 0.0456, "clip_fraction": 0.1, "entropy": 1.4, "explained_variance": 0.5, "grad_norm": 0.3,
    "learning_rate": 3e-4, "policy_loss": -0.01, "value_loss": 0.2,
}  # fmt: skip


class Notebook:
    """Keeps all that it is given."""

    def __init__(self):
        self.rows, self.episodes, self.rewound, self.closed = [], [], [], 0

    def write(self, row, episodes):
        self.rows.append(dict(row))
        self.episodes += episodes

    def rewind(self, rows, episodes):
        self.rewound.append((len(rows), len(episodes)))
        self.rows, self.episodes = list(rows), list(episodes)

    def close(self):
        self.closed += 1


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_logger_of_ones_own_gets_what_the_files_get(tmp_path):
    notes = Notebook()
    run = spo.train("CartPole-v1", **CARTPOLE, out=str(tmp_path / "run"), loggers=[notes])
    assert notes.rows == read(run.directory / "metrics.jsonl") and len(notes.rows) == 4
    assert notes.episodes == read(run.directory / "episodes.jsonl")
    assert notes.rewound == [] and notes.closed == 1


def test_a_resumed_run_takes_its_loggers_back_to_what_counts(tmp_path):
    """The third iteration was logged, but the checkpoint is of the second: nothing is there twice."""

    def fail_after_three(trainer, row):
        if row["iteration"] == 3:
            raise RuntimeError("the power failed")

    notes, out = Notebook(), tmp_path / "run"
    with pytest.raises(RuntimeError):
        spo.train("CartPole-v1", **CARTPOLE, out=str(out), loggers=[notes], callback=fail_after_three)
    run = spo.resume(out, quiet=True, loggers=[notes])
    assert [row["iteration"] for row in notes.rows] == [1, 2, 3, 4]
    assert notes.rows == read(run.directory / "metrics.jsonl")
    assert notes.episodes == read(run.directory / "episodes.jsonl")
    assert len(notes.rewound) == 1 and notes.closed == 2


def test_rows_have_the_episodes_means(tmp_path):
    notes = Notebook()
    spo.train("CartPole-v1", **CARTPOLE, out=str(tmp_path / "run"), loggers=[notes])
    first = [episode for episode in notes.episodes if episode["env_steps"] <= 128]
    assert notes.rows[0]["episodes"] == len(first) > 0
    assert notes.rows[0]["return_mean"] == pytest.approx(sum(one["return"] for one in first) / len(first))
    assert notes.rows[0]["length_mean"] == pytest.approx(sum(one["length"] for one in first) / len(first))
    assert sum(row["episodes"] for row in notes.rows) == len(notes.episodes)
    assert "action_std" not in notes.rows[0]


def test_rows_of_box_actions_have_their_spread_and_how_many_are_clipped(tmp_path):
    notes = Notebook()
    settings = {"preset": "classic", "envs": 2, "horizon": 256, "steps": 512, "action_scale": "off", "quiet": True}
    spo.train("Pendulum-v1", **settings, out=str(tmp_path / "run"), loggers=[notes])
    (row,) = notes.rows
    assert row["action_std"] == pytest.approx(1.0)
    assert 0.01 < row["clipped_action_fraction"] < 0.1  # beyond ±2 of a Gaussian of about 1: 4.6 %


def test_evaluations_reach_loggers_and_callbacks(tmp_path):
    notes, seen = Notebook(), []
    settings = CARTPOLE | {"eval_every": 2}
    out = tmp_path / "run"
    spo.train("CartPole-v1", **settings, out=str(out), loggers=[notes], callback=lambda _, row: seen.append(row))
    evaluated = read(out / "evaluations.jsonl")
    assert [row["eval_return_mean"] for row in notes.rows if "eval_return_mean" in row] == [
        row["return_mean"] for row in evaluated
    ]
    assert [row["iteration"] for row in seen if "eval_length_mean" in row] == [2, 4]


def test_the_verbose_table_has_the_numbers_under_known_names(capsys):
    logger = TableLogger()
    logger.write(ROW, [{"return": 10.0, "length": 20}, {"return": 30.0, "length": 40}])
    told = capsys.readouterr().err
    cells = dict(
        line.strip("| ").replace(" ", "").split("|")[:2] for line in told.splitlines() if line.startswith("|  ")
    )
    assert cells["ep_rew_mean"] == "20" and cells["ep_len_mean"] == "30"
    assert cells["total_timesteps"] == "1000000" and cells["fps"] == "12346" and cells["kl"] == "0.0123"
    assert len({len(line) for line in told.splitlines()}) == 1


def test_verbose_prints_a_table_per_iteration(tmp_path, capsys):
    settings = CARTPOLE | {"quiet": False, "verbose": True}
    spo.train("CartPole-v1", **settings, out=str(tmp_path / "run"))
    assert capsys.readouterr().err.count("| rollout/") == 4


def test_the_live_line_shows_what_matters_in_80_columns():
    logger = ProgressLogger(10_000_000)
    logger.returns.append(-12_345.678)
    line = logger._line(ROW | {"env_steps": 1_024_000, "wall_time": 105.0, "epsilon": 0.2})
    for words in ("return -12345.7", "ratio deviation 0.0456", "left"):
        assert words in line[:80]


def test_an_evaluation_that_was_asked_for_is_within_80_columns_too():
    logger = ProgressLogger(10_000_000)
    logger.returns.append(-345.678)
    logger.rewind([ROW | {"eval_return_mean": -234.567}, ROW], [])
    line = logger._line(ROW | {"env_steps": 1_024_000, "wall_time": 105.0})
    for words in ("return -345.7", "evaluation -234.6", "ratio deviation 0.0456", "left"):
        assert words in line[:80]


def test_the_live_line_leaves_out_what_does_not_fit_whole():
    logger, row = ProgressLogger(10_000_000), ROW | {"env_steps": 1_024_000, "wall_time": 105.0, "epsilon": 0.2}
    whole = logger._line(row)
    assert logger._line(row, len(whole)) == whole
    for width in range(len("return –"), len(whole)):
        line = logger._line(row, width)
        assert len(line) <= width and whole.startswith(f"{line} · ")


def test_a_command_below_the_live_line_stays_one_line(tmp_path, monkeypatch):
    """On a terminal of 80 columns; what such a terminal breaks by itself is pasted whole."""

    def stop(trainer, row):
        raise KeyboardInterrupt

    terminal, out = io.StringIO(), str(tmp_path / ("a-long-name-" * 9))
    terminal.isatty = lambda: True
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal)
    with pytest.raises(KeyboardInterrupt):
        spo.train("CartPole-v1", **CARTPOLE | {"quiet": False}, out=out, callback=stop)
    before, _, after = terminal.getvalue().partition(
        f"saved up to iteration 1: spo resume {out} continues from there\n"
    )
    assert "ratio deviation" in before and "ratio deviation" in after  # the line was live


def test_no_episode_means_no_mean(tmp_path):
    notes = Notebook()
    settings = {"preset": "classic", "envs": 2, "horizon": 32, "steps": 64, "quiet": True}
    spo.train("Pendulum-v1", **settings, out=str(tmp_path / "run"), loggers=[notes])
    assert notes.rows[0]["episodes"] == 0 and "return_mean" not in notes.rows[0]


def test_every_step_an_episode(tmp_path):
    notes = Notebook()
    settings = {"preset": "classic", "envs": 2, "horizon": 32, "steps": 64, "quiet": True}
    spo.train(ConstantReward, **settings, out=str(tmp_path / "run"), loggers=[notes])
    assert notes.rows[0]["episodes"] == 64 and notes.rows[0]["return_mean"] == 1.0 == notes.rows[0]["length_mean"]
