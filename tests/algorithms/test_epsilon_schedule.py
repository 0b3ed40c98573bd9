"""--epsilon-schedule linear: the widths of every iteration, who sees them, and with what it goes."""

import pytest
import torch

from probes import iterate, training
from spo.config.sources import make_config
from spo.errors import ConfigError
from spo.objectives import OBJECTIVES

SHORT = {"envs": 4, "horizon": 32, "steps": 4 * 128, "epochs": 4, "learning_rate": 0.01}
WITH_EPSILON = {name for name, objective in OBJECTIVES.items() if "epsilon" in objective.settings} - {"spo-adaptive"}


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_every_objective_follows_the_schedule_or_refuses_it(objective):
    settings = SHORT | {"objective": objective, "epsilon_schedule": "linear"}
    if objective not in WITH_EPSILON:
        why = "adapts epsilon by itself" if objective == "spo-adaptive" else "has no epsilon"
        told = f"^--epsilon-schedule linear does not go with objective {objective}, which {why}: it must be constant$"
        with pytest.raises(ConfigError, match=told):
            make_config("CartPole-v1", **settings)
        return
    start = OBJECTIVES[objective].settings["epsilon"]
    rows = iterate(training("CartPole-v1", **settings), 4)
    assert [row["epsilon"] for row in rows] == pytest.approx([start, 0.75 * start, 0.5 * start, 0.25 * start])


def test_every_width_of_an_objective_is_on_the_schedule():
    config = make_config("CartPole-v1", **SHORT, objective="clip-higher", epsilon_schedule="linear", epsilon_high=0.4)
    assert config.widths_at(2) == pytest.approx({"epsilon": 0.1, "epsilon_high": 0.2})
    config = make_config("CartPole-v1", **SHORT, objective="rpo-reflective", epsilon_schedule="linear")
    assert config.widths_at(1) == pytest.approx({"epsilon": 0.15, "epsilon_next": 0.075})


def test_an_iteration_is_that_of_its_width_to_the_bit():
    """The objective and the clip fraction see the width in force; the value clip stays at the start's."""
    scheduled = training("CartPole-v1", **SHORT, epsilon_schedule="linear", lr_schedule="constant")
    iterate(scheduled, 2)
    fixed = training("CartPole-v1", **SHORT, epsilon=0.1, value_clip=0.2, lr_schedule="constant")
    fixed.restore(scheduled.state())
    row, expected = iterate(scheduled, 1)[0], iterate(fixed, 1)[0]
    assert row == expected | {"epsilon": 0.1}
    assert torch.equal(scheduled.parameters.vector, fixed.parameters.vector)
    wide = training("CartPole-v1", **SHORT, epsilon=0.2, lr_schedule="constant")
    iterate(wide, 2)
    assert iterate(wide, 1)[0]["clip_fraction"] != row["clip_fraction"]


def test_a_constant_width_is_no_metric():
    assert "epsilon" not in iterate(training("CartPole-v1", **SHORT), 1)[0]
