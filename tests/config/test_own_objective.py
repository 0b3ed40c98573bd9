"""Objectives of users: found by import path, checked before training."""

import math
import sys
import types

import pytest
import torch

import spo
from probes import iterate, training
from spo.config.sources import make_config
from spo.errors import SpoError


def cautious(ratio, advantage, kl, *, width=0.5, epsilon=0.3):
    """r·A minus a penalty of the user's own."""
    return ratio * advantage - width * kl - 0 * epsilon


def weighted(ratio, advantage, old_log_prob, *, width=1.0):
    """A penalty weighted by the old density, whose scale the user knows."""
    return ratio * advantage - width * old_log_prob.exp() * (ratio - 1).square()


def wrong_names(ratio, gain):
    return ratio * gain


def no_star(ratio, advantage, kl=0.0, width=0.5, *, epsilon: float = 0.2):
    return ratio * advantage


def two_slips(ratio, gain, width=0.5):
    return ratio * gain


def nothing():
    return 0


def no_default(ratio, advantage, *, width):
    return ratio * advantage


def open_ended(ratio, advantage, **anything):
    return ratio * advantage


def wrong_shape(ratio, advantage):
    return (ratio * advantage).unsqueeze(-1)


def averaged(ratio, advantage):
    return (ratio * advantage).mean()


def infinite(ratio, advantage):
    return ratio * advantage / torch.zeros_like(ratio)


def detached(ratio, advantage):
    return (ratio * advantage).detach()


def raising(ratio, advantage):
    raise KeyError("lost")


def not_a_tensor(ratio, advantage):
    return math.pi


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    module = types.ModuleType("my_objectives")
    vars(module).update({name: thing for name, thing in globals().items() if callable(thing)}, number=3)
    monkeypatch.setitem(sys.modules, "my_objectives", module)


def test_a_function_of_ones_own_trains():
    settings = {"objective": "my_objectives:cautious", "objective_arg": {"width": 2.0}}
    run = training("CartPole-v1", **settings)
    assert run.config.objective_settings == {"width": 2.0, "epsilon": 0.3}
    assert run.config.clip_range == 0.3
    assert iterate(run, 2)[1]["kl"] > 0
    assert training("CartPole-v1", objective="my_objectives:cautious", epsilon=0.1).config.clip_range == 0.1


def test_probabilities_are_not_densities(tmp_path):
    """DRPO is refused for Box actions before anything is written; a function of one's own may know what it does."""
    settings = {"objective": "drpo", "out": str(tmp_path / "run"), "steps": 2048}
    with pytest.raises(SpoError, match="--objective drpo is not accepted for Box actions: .* a density has no scale; "):
        spo.train("Pendulum-v1", **settings)
    assert list(tmp_path.iterdir()) == []
    assert iterate(training("CartPole-v1", objective="drpo"), 1)[0]["kl"] > 0
    assert iterate(training("Pendulum-v1", objective="my_objectives:weighted"), 1)[0]["kl"] > 0


CONFIG_FAULTS = {
    "wrong_names": "asks for gain; it can ask for ratio, log_ratio, advantage, kl, kl_reverse, next_ratio",
    "no_star": r"asks for width; .*, old_log_prob; settings stand behind a \*: "
    r"\(ratio, advantage, kl, \*, width=0.5, epsilon=0.2\)$",
    "two_slips": "asks for gain, width; it can ask for .*, old_log_prob$",
    "nothing": "asks for nothing; it can ask for ratio",
    "no_default": "has a setting 'width' without a number as default",
    "open_ended": "takes \\*\\*anything; accepted are named data and keyword-only settings",
    "missing": "cannot be imported: AttributeError",
    "number": "is a int; accepted is a function",
}


@pytest.mark.parametrize("name", CONFIG_FAULTS)
def test_a_wrong_signature(name):
    with pytest.raises(SpoError, match=f"--objective my_objectives:{name} {CONFIG_FAULTS[name]}"):
        make_config("CartPole-v1", objective=f"my_objectives:{name}")


RESULT_FAULTS = {
    "wrong_shape": r"returned shape \(6, 1\) for 6 samples; accepted is \(6,\)",
    "averaged": r"returned shape \(\) for 6 samples",
    "infinite": "returned a value that is not finite",
    "detached": "returned a value without a gradient: it must depend on the ratio or log_ratio",
    "raising": "failed on a sample: KeyError: 'lost'",
    "not_a_tensor": "failed on a sample: AttributeError",
}


@pytest.mark.parametrize("name", RESULT_FAULTS)
def test_a_wrong_result(name):
    with pytest.raises(SpoError, match=f"--objective my_objectives:{name} {RESULT_FAULTS[name]}"):
        training("CartPole-v1", objective=f"my_objectives:{name}")


def test_a_module_that_is_not_there():
    with pytest.raises(SpoError, match="--objective nowhere:f cannot be imported: ModuleNotFoundError"):
        make_config("CartPole-v1", objective="nowhere:f")


def test_a_setting_that_the_objective_does_not_have():
    with pytest.raises(SpoError, match="--beta does not belong to objective spo; its settings: --epsilon"):
        make_config("CartPole-v1", beta=2.0)
    with pytest.raises(SpoError, match="--epsilon does not belong to objective tr-ppo; its settings: --delta"):
        make_config("CartPole-v1", objective="tr-ppo", epsilon=0.1)
    with pytest.raises(SpoError, match="--objective-arg width=1.0 does not belong to objective spo"):
        make_config("CartPole-v1", objective_arg={"width": 1.0})
    with pytest.raises(SpoError, match="--objective-arg width=far is not accepted: it must be a number"):
        make_config("CartPole-v1", objective="my_objectives:cautious", objective_arg={"width": "far"})


@pytest.mark.parametrize(
    "objective, setting, bad",
    [
        ("spo", "epsilon", 0.0),
        ("ppo-penalty", "beta", 0.0),
        ("ppo-penalty", "kl_target", -0.1),
        ("spu", "temperature", 0.0),
        ("spu", "state_delta", 0.0),
        ("ppo-rb", "alpha", -0.1),
        ("tr-ppo", "delta", 0.0),
        ("rpo-reflective", "epsilon_next", 1.0),
        ("rpo-reflective", "reflection", -1.0),
        ("trpo", "damping", -1.0),
        ("trpo", "cg_steps", 0),
        ("trpo", "backtrack", 1.0),
        ("trpo", "backtrack_steps", 0),
        ("ppo-dual-clip", "dual_clip", 1.0),
        ("clip-higher", "epsilon_high", 0.0),
        ("espo", "deviation_limit", 0.0),
        ("spo-adaptive", "deviation_target", 0.0),
        ("spo-adaptive", "epsilon_min", 0.0),
        ("spo-adaptive", "epsilon_max", 1.0),
        ("spo-adaptive", "epsilon_gain", 1.5),
        ("spo-adaptive", "epsilon", 0.01),
        ("spo-adaptive", "epsilon", 0.995),
        ("spo-power", "power", 1.0),
        ("drpo", "delta", 0.0),
        ("truly-ppo", "delta", 0.0),
        ("truly-ppo", "alpha", -1.0),
    ],
)
def test_a_setting_out_of_its_range(objective, setting, bad):
    flag = setting.replace("_", "-")
    with pytest.raises(SpoError, match=f"--{flag} {bad} is not accepted: it must be a"):
        make_config("CartPole-v1", objective=objective, **{setting: bad})


def test_a_width_starts_within_its_bounds():
    with pytest.raises(SpoError) as refusal:
        make_config("CartPole-v1", objective="spo-adaptive", epsilon_min=0.3)
    bounds = "a number from 0.3 (--epsilon-min) to 0.99 (--epsilon-max)"
    assert str(refusal.value) == f"--epsilon 0.2 is not accepted: it must be {bounds}"
    assert make_config("CartPole-v1", objective="spo-adaptive", epsilon_min=0.2).clip_range == 0.2
