"""--schedule-steps: a run that is the start of a longer one."""

import pytest
import torch

from probes import iterate, training
from spo.config.sources import make_config
from spo.errors import ConfigError

LONG = {"envs": 4, "horizon": 32, "steps": 8 * 128, "epochs": 2, "epsilon_schedule": "linear"}
START = {"steps": 3 * 128, "schedule_steps": 8 * 128}


def test_a_short_run_on_a_long_schedule_is_the_start_of_the_long_run_to_the_bit():
    whole, start = training("CartPole-v1", **LONG), training("CartPole-v1", **LONG | START)
    rows = iterate(start, 3)
    assert rows == iterate(whole, 3)
    assert torch.equal(start.parameters.vector, whole.parameters.vector)
    assert rows[2]["learning_rate"] == pytest.approx(start.config.learning_rate * 6 / 8)
    assert rows[2]["epsilon"] == pytest.approx(0.2 * 6 / 8)


def test_unset_it_is_the_length_of_the_run():
    short = make_config("CartPole-v1", **LONG | {"steps": 4 * 128})
    assert short.learning_rate_at(3) == pytest.approx(short.learning_rate / 4)
    assert make_config("CartPole-v1", **LONG, schedule_steps="2k") == make_config(
        "CartPole-v1", **LONG, schedule_steps=2000.0
    )


def test_a_schedule_that_ends_before_the_run_is_refused():
    told = "^--schedule-steps 1023 is not accepted: it must be a whole number of at least 1024 \\(--steps\\)$"
    with pytest.raises(ConfigError, match=told):
        make_config("CartPole-v1", **LONG, schedule_steps=1023)
