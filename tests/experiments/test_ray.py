"""A sweep on a Ray cluster, whose processes take a minute to start: part of make test-rest."""

from importlib.util import find_spec

import pytest
from test_sweep import driver_of, tiny

from spo.experiments.executors.ray import extract_archive, run_on_node
from spo.experiments.plan import Cell
from spo.experiments.results import Results
from spo.experiments.sweep import Sweep
from spo.runtime.files import canonical_json
from waiting import PATIENCE

if find_spec("ray") is None:
    pytest.skip("needs the extra ray", allow_module_level=True)


def test_ray_gives_the_same_table(tmp_path):
    table, errors = driver_of(tmp_path / "ray", "two()", executor="ray").communicate(timeout=PATIENCE)
    again, _ = driver_of(tmp_path / "local", "two()").communicate(timeout=PATIENCE)
    assert "CartPole-v1" in table, errors
    assert table.replace(str(tmp_path / "ray"), "") == again.replace(str(tmp_path / "local"), "")
    results = [(tmp_path / name / "results.csv").read_bytes() for name in ("ray", "local")]
    assert results[0] == results[1]


def test_runs_are_brought_back_where_nothing_is_shared(tmp_path):
    """What a node does that does not see the sweep's directory."""
    sweep = Sweep.begin(tmp_path / "sweep", tiny(steps=64, seeds=1))
    cell = Cell("CartPole-v1", "spo", 1)
    code, content = run_on_node(str(tmp_path / "elsewhere"), canonical_json(sweep.plan.as_json()), tuple(cell))
    extract_archive(content, sweep.run(cell).path)
    assert code == 0 and Results(sweep).runs[cell].state == "finished"
