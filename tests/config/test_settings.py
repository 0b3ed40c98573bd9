"""Settings: each has one home, and one way leads from all sources to a Config."""

import dataclasses
import json

import numpy as np
import pytest

import spo
from crash import SHORT
from spo.cli.training import parse_train
from spo.config.config import OBJECTIVE_SETTINGS, Config
from spo.config.fields import NAMES_ELSEWHERE, interval
from spo.config.sources import make_config
from spo.config.validation import FIELDS, RANGES
from spo.errors import ConfigError, EnvError, suggest
from spo.objectives import OBJECTIVES, SETTINGS
from spo.runs.start import Run

INTERVALS = {
    "(0, 1)": ("a number above 0 and below 1", [1e-9, 0.999], [0, 1, -1, float("nan")]),
    "[0, 1]": ("a number from 0 to 1", [0, 0.5, 1], [-1e-9, 1.001, float("nan")]),
    "(0, 9]": ("a number above 0, of at most 9", [1, 9], [0, 9.1]),
    "(1, ∞)": ("a number above 1", [1.1, 1e300], [1, float("inf"), float("nan")]),
    "[0, ∞)": ("a number of at least 0", [0, 5], [-1e-9]),
    "(0, ∞) or off": ("a number above 0, or off", [0.1, "off"], [0, "on", ""]),
}


@pytest.mark.parametrize("text", INTERVALS)
def test_an_interval_accepts_what_mathematics_says(text):
    words, inside, outside = INTERVALS[text]
    assert interval(text).words == words
    assert [interval(text).accepts(value) for value in inside] == [True] * len(inside)
    assert [interval(text).accepts(value) for value in outside] == [False] * len(outside)


def test_every_setting_of_an_objective_has_a_help_and_a_range_and_nothing_else_has():
    used = {name for objective in OBJECTIVES.values() for name in objective.settings}
    assert SETTINGS.keys() == used == OBJECTIVE_SETTINGS.keys() <= RANGES.keys()
    for objective in OBJECTIVES.values():
        for name, value in objective.settings.items():
            assert RANGES[name].accepts(value), (objective.name, name, value)


def test_the_essential_settings_come_first():
    assert list(FIELDS)[:4] == ["env", "steps", "seed", "objective"]


@pytest.mark.parametrize(
    "words, settings",
    [
        (["Hopper-v4"], {}),
        (["Hopper-v4", "--hidden", "8", "8", "--paper"], {"hidden": (8, 8), "paper": True}),
        (["Hopper-v4", "--steps", "1M"], {"steps": 10**6}),
        (["Hopper-v4", "--objective", "trpo", "--cg-steps", "3"], {"objective": "trpo", "cg_steps": 3}),
        (["Hopper-v4", "--preset", "classic", "--seam-every", "3"], {"preset": "classic", "rebuild_every": 3}),
        (["--seed", "3", "Hopper-v4", "--value-clip", "off"], {"seed": 3, "value_clip": "off"}),
    ],
)  # fmt: skip
def test_the_command_line_and_python_make_the_same_config(words, settings):
    assert parse_train(words) == make_config("Hopper-v4", **settings) == spo.make_config("Hopper-v4", **settings)


@pytest.mark.parametrize(
    "env, preset",
    [("CartPole-v1", "classic"), ("FrozenLake-v1", "classic"), ("Hopper-v4", "mujoco"), ("Breakout", "atari"),
     ("LunarLander-v3", "mujoco"), ("BreakoutNoFrameskip-v4", "atari"), ("unknown:Env-v0", "mujoco")],
)  # fmt: skip
def test_an_environment_chooses_its_preset(env, preset):
    assert make_config(env).preset == preset


def test_a_name_without_a_version_is_answered_with_the_versions():
    for name in ("Hopper", "hopper"):
        with pytest.raises(EnvError, match=f"environment '{name}' has no version; accepted: Hopper-v5, Hopper-v4"):
            make_config(name)


def test_a_game_in_small_letters_is_answered_with_its_name():
    with pytest.raises(EnvError, match=r"'breakout' is not known \(did you mean Breakout\?\)"):
        make_config("breakout")
    with pytest.raises(EnvError, match=r"\(did you mean SpaceInvaders\?\)"):
        make_config("space_invaders")


@pytest.mark.parametrize("name, meant", [("ppo", "ppo-clip"), ("spo", "spo"), ("ppo-clip", "ppo-clip")])
def test_an_objective_in_the_place_of_the_environment_is_told_as_such(name, meant):
    with pytest.raises(EnvError, match=f"'{name}' names an objective; .* --objective {meant}$"):
        make_config(name)


def test_names_of_other_libraries_lead_to_ours():
    assert set(NAMES_ELSEWHERE.values()) <= FIELDS.keys()
    assert not NAMES_ELSEWHERE.keys() & FIELDS.keys()
    for theirs, ours in {"lr": "learning_rate", "learnig_rate": "learning_rate", "num_envs": "envs"}.items():
        with pytest.raises(ConfigError, match=rf"setting '{theirs}' is unknown \(did you mean {ours}\?\)"):
            make_config("CartPole-v1", **{theirs: 1})
    with pytest.raises(ConfigError, match=r"did you mean ppo-clip\?"):
        make_config("CartPole-v1", objective="ppo")


def test_nothing_is_suggested_where_nothing_is_near():
    assert suggest("wings", FIELDS) == "" and suggest("x" * 10**6, FIELDS) == ""


def cautious(ratio, advantage, *, width: float = 0.3):
    return ratio * advantage - width * (ratio - 1) ** 2


def test_an_objective_may_be_a_function():
    config = make_config("CartPole-v1", objective=cautious, objective_arg={"width": 0.5})
    assert config.objective == f"{__name__}:cautious" and config.objective_settings == {"width": 0.5}
    with pytest.raises(ConfigError, match="it must be a function at the top of a module, or text"):
        make_config("CartPole-v1", objective=lambda ratio, advantage: ratio)


def test_a_whole_number_where_any_is_accepted_is_taken_as_such():
    """The compiled update is made for one type, which a penalty that begins with 1 must not change."""
    config = make_config("CartPole-v1", objective="ppo-penalty", beta=1)
    assert type(config.beta) is float and type(config.objective_settings["beta"]) is float


def test_paths_and_numbers_of_numpy_become_text_and_numbers_of_python(tmp_path):
    numpy = {"seed": np.int64(3), "epsilon": np.float64(0.3), "paper": np.bool_(True), "steps": np.int32(4096)}
    numpy |= {"hidden": [np.int64(8), 8], "env_arg": {"gravity": np.float32(9.5), "file": tmp_path}}
    plain = {"seed": 3, "epsilon": 0.3, "paper": True, "steps": 4096, "hidden": (8, 8)}
    plain |= {"env_arg": {"gravity": 9.5, "file": str(tmp_path)}}
    config = make_config("CartPole-v1", **numpy, out=tmp_path / "run", init_from=Run(tmp_path, None, {}))
    assert config == make_config("CartPole-v1", **plain, out=str(tmp_path / "run"), init_from=str(tmp_path))
    assert config == make_config(make_config("CartPole-v1", **plain, init_from=tmp_path), out=tmp_path / "run")
    assert json.loads(json.dumps(dataclasses.asdict(config)))["seed"] == 3


def test_a_config_stays_flat_and_frozen():
    config = make_config("CartPole-v1")
    assert dataclasses.asdict(config).keys() == FIELDS.keys() and isinstance(config, Config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 3


def test_a_config_is_changed_in_what_is_given_alone():
    config = make_config("CartPole-v1", gamma=0.5, seed=3)
    assert make_config(config, seed=4) == make_config("CartPole-v1", gamma=0.5, seed=4)
    with pytest.raises(ConfigError, match="--gamma 2.0 is not accepted"):
        make_config(config, gamma=2)
    with pytest.raises(ConfigError, match="preset='mujoco' is not accepted beside a Config"):
        make_config(config, preset="mujoco")


def test_a_config_trains(tmp_path):
    config = make_config("CartPole-v1", **SHORT | {"steps": 64}, out=str(tmp_path / "a"))
    first, second = spo.train(config), spo.train("CartPole-v1", **SHORT | {"steps": 64}, out=str(tmp_path / "b"))
    tensors = [run.directory / "policy" / "policy.safetensors" for run in (first, second)]
    assert tensors[0].read_bytes() == tensors[1].read_bytes()
