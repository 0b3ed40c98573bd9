"""Trackers: their points are the run's rows, once each; one that fails or hangs costs a warning and nothing else."""

import json
import os
import sqlite3
import sys
import threading
import types
from importlib.util import find_spec

import pytest

import spo
from spo.runs import trackers
from spo.runs.directory import RunDirectory
from spo.runs.trackers import TrackerLogger, check_trackers

SETTINGS = {"preset": "classic", "envs": 4, "horizon": 32, "steps": 4 * 128, "checkpoint_every": 2, "quiet": True}


class Memory:
    """A tracker that keeps its runs in memory, by their ids."""

    runs: dict = {}

    def __init__(self, run):
        self.told, self.id = run, run.known_id or f"id-{len(self.runs)}"
        self.points = self.runs.setdefault(self.id, [])

    def log(self, metrics, step):
        self.points.append((step, metrics))

    def finish(self):
        self.points.append("finished")


class Broken(Memory):
    def log(self, metrics, step):
        raise ConnectionError("the server is on fire")


class Hanging(Memory):
    released = threading.Event()

    def log(self, metrics, step):
        self.released.wait(60)


@pytest.fixture
def tracked(monkeypatch):
    """Put a tracker in the place of W&B, which counts as installed and known."""

    def put(kind):
        kind.runs = {}
        monkeypatch.setitem(trackers.TRACKERS, "wandb", kind)
        monkeypatch.setattr("spo.runs.start.check_trackers", lambda names: None)
        return kind

    return put


def test_a_tracker_gets_every_row_under_known_names_and_the_settings(tracked, tmp_path):
    kind = tracked(Memory)
    run = spo.train("CartPole-v1", **SETTINGS, track=("wandb",), out=str(tmp_path / "run"))
    (points,) = kind.runs.values()
    rows = RunDirectory(run.directory).read_metrics()
    assert [step for step, _ in points[:-1]] == [128, 256, 384, 512] and points[-1] == "finished"
    assert [point["losses/kl"] for _, point in points[:-1]] == [row["kl"] for row in rows]
    assert points[0][1]["charts/episodic_return"] == rows[0]["return_mean"]


def test_a_resumed_run_goes_on_in_the_same_tracked_run_with_no_point_twice(tracked, tmp_path):
    kind = tracked(Memory)

    def fail(trainer, row):
        if row["iteration"] == 3:
            raise RuntimeError("the power failed")

    with pytest.raises(RuntimeError):
        spo.train("CartPole-v1", **SETTINGS, track=("wandb",), out=str(tmp_path / "run"), callback=fail)
    spo.resume(tmp_path / "run", quiet=True)
    (points,) = kind.runs.values()
    assert [point[0] for point in points if point != "finished"] == [128, 256, 384, 512]


class Remembering(Memory):
    """Knows by itself how far it came, as MLflow does."""

    def __init__(self, run):
        super().__init__(run)
        self.last_step = max((point[0] for point in self.points if point != "finished"), default=0)


def test_a_point_that_was_sent_but_not_kept_before_a_kill_is_not_sent_again(tracked, tmp_path):
    kind = tracked(Remembering)
    (tmp_path / "run").mkdir()
    kind.runs["old"] = [(128, {})]
    (tmp_path / "run/trackers.json").write_text('{"wandb": {"id": "old", "env_steps": 0}}')
    logger = TrackerLogger("wandb", RunDirectory(tmp_path / "run"), {})
    logger.rewind([{"env_steps": 128}, {"env_steps": 256}], [])
    logger.close()
    assert [point[0] for point in kind.runs["old"][:-1]] == [128, 256] and len(kind.runs) == 1


def test_a_run_that_is_killed_before_its_first_point_keeps_its_tracked_run(tracked, tmp_path):
    kind = tracked(Memory)
    (tmp_path / "run").mkdir()
    for _ in range(2):
        TrackerLogger("wandb", RunDirectory(tmp_path / "run"), {}).close()
    assert list(kind.runs) == ["id-0"]


@pytest.mark.parametrize("kind", [Broken, Hanging])
def test_a_tracker_that_fails_or_hangs_costs_one_warning(kind, tracked, tmp_path, capsys, monkeypatch):
    tracked(kind)
    Hanging.released.clear()
    monkeypatch.setattr(trackers, "PATIENCE", 0.2)
    run = spo.train("CartPole-v1", **SETTINGS, track=("wandb",), out=str(tmp_path / "run"))
    assert len(RunDirectory(run.directory).read_metrics()) == 4
    assert capsys.readouterr().err.count("warning: --track wandb has ended") == 1
    Hanging.released.set()


def test_a_tracker_that_takes_nothing_does_not_fill_memory(tracked, tmp_path, monkeypatch, capsys):
    tracked(Hanging)
    Hanging.released.clear()
    monkeypatch.setattr(trackers, "MOST_WAITING", 2)
    monkeypatch.setattr(trackers, "PATIENCE", 0.2)
    (tmp_path / "run").mkdir()
    logger = TrackerLogger("wandb", RunDirectory(tmp_path / "run"), {})
    for step in range(1, 6):
        logger.write({"env_steps": step}, [])
    logger.close()
    assert "it does not answer" in capsys.readouterr().err
    Hanging.released.set()


def test_what_is_missing_is_named_before_anything_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(
        spo.ConfigError, match=r"--track mlflow needs: pip install 'simple-policy-optimization\[mlflow\]'"
    ):
        spo.train("CartPole-v1", **SETTINGS, track=("mlflow",), out=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def put_wandb(monkeypatch, login) -> None:
    fake = types.ModuleType("wandb")
    fake.login, fake.api = login, types.SimpleNamespace(api_key=None)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)


def refuse(prompt: bool, verify: bool) -> bool:
    raise ValueError("API key must have 40+ characters, has 5")


@pytest.mark.parametrize(
    ("login", "words"),
    [
        (lambda prompt, verify: prompt or verify, "has no credentials: run wandb login, or set WANDB_MODE=offline"),
        (lambda key=None: pytest.fail("it would ask"), "has no credentials: run wandb login"),
        (refuse, r"has no credentials \(API key must have 40\+ characters, has 5\): run wandb login"),
    ],
    ids=["none", "an earlier release", "a wrong one"],
)
def test_wandb_without_credentials_is_refused_unless_it_is_offline(login, words, monkeypatch):
    put_wandb(monkeypatch, login)
    with pytest.raises(spo.ConfigError, match=f"^--track wandb {words}"):
        check_trackers(("wandb",))
    monkeypatch.setenv("WANDB_MODE", "offline")
    check_trackers(("wandb", "tensorboard"))


def test_wandb_with_credentials_is_accepted(monkeypatch):
    put_wandb(monkeypatch, lambda prompt, verify: not prompt and not verify)
    check_trackers(("wandb",))


def test_a_run_of_a_sweep_is_in_its_group(tmp_path):
    (tmp_path / "study" / "runs" / "one").mkdir(parents=True)
    (tmp_path / "study" / "plan.json").write_text("{}")
    assert trackers._group_of(tmp_path / "study" / "runs" / "one") == "study"
    assert trackers._group_of(tmp_path) is None


def require(name: str) -> None:
    """Skip where the library is missing, unless its tests were asked for."""
    if find_spec(name) is None and os.environ.get("SPO_TEST_TRACKER") != name:
        pytest.skip(f"{name} is not installed; make test-trackers makes an environment for it")


def train_and_resume(name: str, out) -> None:
    """A run that stops after three of its four iterations, the third of them after its last checkpoint, and goes on."""
    spo.train("CartPole-v1", **SETTINGS, track=(name,), out=str(out), callback=lambda _, row: row["iteration"] < 3)
    spo.resume(out, quiet=True)


def test_mlflow_has_every_point_once_over_a_resume(monkeypatch, tmp_path, capsys):
    """With the library itself and a store of its own kind on this disk."""
    require("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    monkeypatch.setattr(trackers, "PATIENCE", 300.0)  # its database is made with many migrations
    train_and_resume("mlflow", tmp_path / "run")
    from mlflow import MlflowClient

    client, run = MlflowClient(), json.loads((tmp_path / "run/trackers.json").read_text())["mlflow"]["id"]
    rows = RunDirectory(tmp_path / "run").read_metrics()
    points = client.get_metric_history(run, "losses/kl")
    assert [(point.step, point.value) for point in points] == [(row["env_steps"], row["kl"]) for row in rows]
    known = client.get_run(run)
    assert known.info.status == "FINISHED" and known.data.params["env"] == "CartPole-v1"
    assert "warning" not in capsys.readouterr().err


def test_trackio_has_every_point_once_over_a_resume(monkeypatch, tmp_path, capsys):
    """With the library itself, which keeps its runs in SQLite; read without it."""
    require("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(trackers, "PATIENCE", 300.0)
    train_and_resume("trackio", tmp_path / "run")
    (store,) = (tmp_path / "trackio").rglob("*.db")
    with sqlite3.connect(store) as database:
        found = database.execute("select run_name, step from metrics order by step").fetchall()
    assert found == [("run", step) for step in (128, 256, 384, 512)]
    assert "warning" not in capsys.readouterr().err


def test_wandb_offline_has_every_point_once_over_a_resume(monkeypatch, tmp_path):
    """With the library itself: each point is handed to it once, and both parts are of one run."""
    require("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    steps, log = [], trackers.WandbTracker.log
    monkeypatch.setattr(trackers.WandbTracker, "log", lambda *given: log(*given) or steps.append(given[-1]))
    out = tmp_path / "run"
    train_and_resume("wandb", out)
    assert steps == [128, 256, 384, 512]
    assert len({path.stem for path in (tmp_path / "wandb").rglob("*.wandb")}) == 1
