"""Files of settings, --config FILE: each is refused in a sentence that names what is wrong."""

import json
from pathlib import Path

import gymnasium as gym
import pytest

import spo
from hostile import heard, needs_proc, sandboxed
from poisons import OTHERS, STRANGERS, swap
from spo.cli.training import parse_train
from spo.spaces import ObservationLayout

pytestmark = needs_proc


SETTINGS = {
    "deep.json": (b"[" * 100_000, "cannot be read"),
    "deep.toml": (b"a = " + b"[" * 10_000, "cannot be read"),
    "dots.toml": (b".".join([b"a"] * 100_000) + b" = 1", "accepted are up to 16,384"),
    "slow.toml": (b".".join([b"a"] * 8_000) + b" = 1", "setting 'a' is unknown"),
    "digits.toml": (b"seed = " + b"9" * 5000, "cannot be read"),
    "digits.json": (b'{"seed": ' + b"9" * 4000 + b"}", "--seed 999"),
    "nan.json": (b'{"gamma": NaN}', "NaN is not a finite number"),
    "huge.json": (b'{"gamma": 1e999}', "1e999 is not a finite number"),
    "nan.toml": (b"gamma = nan", "--gamma nan is not accepted"),
    "inf.toml": (b"learning_rate = inf", "--learning-rate inf is not accepted"),
    "twice.json": (b'{"gamma": 0.5, "gamma": 0.6}', "a name stands twice"),
    "twice.toml": (b"gamma = 0.5\ngamma = 0.6", "cannot be read"),
    "list.json": (b"[1]", "holds a list"),
    "list.toml": (b"settings = [1]", "holds a list"),
    "text.json": (b'{"settings": "poisoned:f"}', "holds a str"),
    "objective.toml": (b'objective = "poisoned:f"', "repeat --objective poisoned:f to import it"),
    "system.json": (b'{"objective": "os:system"}', "repeat --objective os:system to import it"),
    "kind.json": (b'{"objective": ["poisoned:f"]}', "--objective ('poisoned:f',) is not accepted: it must be text"),
    "paper.json": (b'{"paper": "no"}', "--paper 'no' is not accepted: it must be true or false"),
    "preset.json": (b'{"preset": "../../etc/passwd"}', "--preset ../../etc/passwd is unknown"),
    "presets.json": (b'{"preset": ["mujoco"]}', "--preset ('mujoco',) is not accepted: it must be text"),
    "date.toml": (b"[env_arg]\nday = 1979-05-27", "--env-arg"),
    "nested.toml": (b"[env_arg]\nmass = nan", "--env-arg"),
    "envs.json": (b'{"envs": 1000000000}', "--envs 1000000000 is not accepted"),
    "layers.json": (json.dumps({"hidden": [1] * 10**5}).encode(), "--hidden 1 1"),
    "rate.json": (b'{"learning_rate": 1' + b"0" * 400 + b"}", "--learning-rate 1000"),
    "latin.toml": (b'device = "\xff"', "cannot be read"),
    "steer.toml": (b'activation = "\\u001b]0;pwned\\u0007"', "\\x1b"),
    "steer.json": (b'{"\\u001b]0;pwned": 1}', "\\x1b"),
    "nothing.json": (b"", "cannot be read"),
    "null.json": (b"null", "holds a NoneType"),
}  # fmt: skip


def ask(file: Path) -> str:
    return heard(parse_train, ["CartPole-v1", "--config", str(file)])


def find_wrong_answers(place: Path) -> dict[str, str]:
    """Each answer that is no refusal with the right words, by the name of its file."""
    wrong = {}
    for name, (content, words) in SETTINGS.items():
        (place / name).write_bytes(content)
        answer = ask(place / name)
        if "BROKE" in answer or "REFUSED" not in answer or words not in answer:
            wrong[name] = answer
    return wrong


def test_configuration_files(tmp_path, marker):
    assert sandboxed(find_wrong_answers, tmp_path) == {}


def find_wrong_answers_to_special_files(place: Path) -> dict[str, str]:
    wrong, file = {}, place / "mine.toml"
    for kind, make in (STRANGERS | OTHERS).items():
        make(file)
        answer = ask(file)
        is_empty = kind == "a link to a page table"  # it has no size, so nothing of it is read
        if "BROKE" in answer or not (is_empty or "mine.toml cannot be read as TOML or JSON" in answer):
            wrong[kind] = answer
        swap(file.name, lambda path: None)(place)
    return wrong


def test_configuration_files_that_are_none(tmp_path, marker):
    assert sandboxed(find_wrong_answers_to_special_files, tmp_path) == {}


def test_a_space_that_could_not_be_loaded_is_not_trained_on():
    with pytest.raises(spo.SpoError, match="it holds 100,000,000 numbers; accepted are up to 10,000,000"):
        ObservationLayout(gym.spaces.Discrete(10**8))
