"""A run directory made by commit b6cba51, before settings and metrics had today's names, is read and resumed."""

import json
import shutil
from pathlib import Path

import pytest

import spo
from spo.runs.directory import RunDirectory
from spo.runs.record import RunRecord

EARLIER = Path(__file__).parent.parent / "golden" / "run-of-b6cba51"
"""Two of four iterations of PPO-Penalty on CartPole-v1, two environments, a layer of four; --seam-every 2."""


@pytest.fixture
def earlier(tmp_path) -> RunDirectory:
    shutil.copytree(EARLIER, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def test_the_record_has_the_old_names_and_is_read_by_the_new(earlier):
    assert json.loads(earlier.config.read_text())["settings"]["seam_every"] == 2
    record = RunRecord.read(earlier)
    assert record.settings["rebuild_every"] == 2 and record.resolved.rebuild_every is None
    assert "seam_every" not in record.settings


def test_its_metrics_have_todays_names(earlier):
    assert "ratio_max" in earlier.metrics.read_text() and "clip_fraction" not in earlier.metrics.read_text()
    rows = earlier.read_metrics()
    assert {"ratio_deviation_sample_max", "clip_fraction"} <= rows[0].keys()
    assert not {"ratio_max", "outside_fraction"} & rows[0].keys()


def test_its_policy_acts(earlier):
    assert spo.load(earlier.path).act([0.0, 0.0, 0.0, 0.0]) in (0, 1)


def test_it_is_resumed_from_its_checkpoint(earlier):
    """With the state of its optimiser, its β and its environments, under the names of then."""
    before = earlier.read_metrics()
    run = spo.resume(earlier.path, quiet=True)
    rows = earlier.read_metrics()
    assert [row["iteration"] for row in rows] == [1, 2, 3, 4] and run.summary["env_steps"] == 256
    assert [row["kl"] for row in rows[:2]] == [row["kl"] for row in before]
    assert rows[2]["beta"] < before[0]["beta"]  # it was halved before the checkpoint, and not begun anew
    assert earlier.read_status()["state"] == "finished"
