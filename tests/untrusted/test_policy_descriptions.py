"""Descriptions of policies, policy.json: refused where they ask for too much, harmless where they only label."""

import json
import shutil
from pathlib import Path

import numpy as np

from hostile import Case, find_failures, heard, needs_proc, sandboxed
from poisons import STEER, Poison, describe
from spo.models.policy_files import load_policy

pytestmark = needs_proc


def observe(**space) -> Poison:
    return describe(observation_space=space)


def act(**space) -> Poison:
    return describe(action_space=space)


def show(*shape: int, encoder: str) -> Poison:
    return describe(observation_space={"type": "Box", "shape": shape, "dtype": "uint8"}, encoder=encoder)


def show_many(images: int, encoder: str) -> Poison:
    small = {"type": "Box", "shape": [10, 10, 1], "dtype": "uint8"}
    return describe(observation_space={"type": "Tuple", "spaces": [small] * images}, encoder=encoder)


def nest(kind: str, depth: int) -> dict:
    space = {"type": "Discrete", "n": 4, "start": 0}
    for _ in range(depth):
        space = {"type": kind, "spaces": [space] if kind == "Tuple" else [["a", space]]}
    return space


BOX, CHOICE = {"type": "Box", "dtype": "float32"}, {"type": "Discrete", "start": 0}
DESCRIPTIONS = [
    Case("two layers of 10⁹", describe(hidden=[10**9, 10**9])),
    Case("two layers of 2²⁰", describe(hidden=[2**20, 2**20])),
    Case("a million layers", describe(hidden=[1] * 10**6)),
    Case("900 layers", describe(hidden=[1] * 900)),
    Case("a layer of 2⁶³", describe(critic_hidden=[2**63])),
    Case("a layer of -1", describe(critic_hidden=[-1])),
    Case("a layer of true", describe(hidden=[True, 8])),
    Case("a layer that is a list", describe(hidden=[[8]])),
    Case("an image of 10⁴ × 10⁴, nature", show(10**4, 10**4, 3, encoder="nature")),
    Case("an image of 3000 × 3000, nature", show(3000, 3000, 1, encoder="nature")),
    Case("an image of 3000 × 3000, small", show(3000, 3000, 1, encoder="small")),
    Case("an image of 3000 × 3000, resnet18", show(3000, 3000, 1, encoder="resnet18")),
    Case("an image of 1 × 1", show(1, 1, 1, encoder="small")),
    Case("10⁸ numbers", observe(type="Box", shape=[10**8], dtype="float64")),
    Case("2⁶³ numbers", observe(**BOX, shape=[2**63])),
    Case("2³² × 2³² numbers", observe(**BOX, shape=[2**32, 2**32])),
    Case("-4 numbers", observe(**BOX, shape=[-4])),
    Case("-2 × -2 numbers", observe(**BOX, shape=[-2, -2])),
    Case("no numbers", observe(**BOX, shape=[0])),
    Case("no numbers × 10³⁰", observe(**BOX, shape=[0, 10**30])),
    Case("a list × 10⁹", observe(**BOX, shape=[[0], 10**9])),
    Case("a text × 10⁹", observe(**BOX, shape=["a", 10**9])),
    Case("a million axes", observe(**BOX, shape=[2] * 10**6)),
    Case("4.0 numbers", observe(**BOX, shape=[4.0])),
    Case("a shape that is a number", observe(**BOX, shape=4)),
    Case("objects", observe(type="Box", shape=[4], dtype="O")),
    Case("texts of 100 MB", observe(type="Box", shape=[4], dtype="S100000000")),
    Case("records", observe(type="Box", shape=[4], dtype="f8,f8")),
    Case("a record by fields", observe(type="Box", shape=[4], dtype={"names": ["a"], "formats": ["O"]})),
    Case("10¹⁵ choices", observe(**CHOICE, n=10**15)),
    Case("2⁶⁴ choices", observe(**CHOICE, n=2**64)),
    Case("no choices", observe(**CHOICE, n=0)),
    Case("-1 choices", observe(**CHOICE, n=-1)),
    Case("choices from a list", observe(**CHOICE, n=[4])),
    Case("choices from 2⁷⁰ on", observe(type="Discrete", n=4, start=2**70)),
    Case("choices that wrap around to 4", observe(type="MultiDiscrete", nvec=[2**63 - 1, 2**63 - 1, 6], start=[0] * 3)),
    Case("a million pairs of choices", observe(type="MultiDiscrete", nvec=[2] * 10**6, start=[0] * 10**6)),
    Case("ragged choices", observe(type="MultiDiscrete", nvec=[[2], [2, 2]], start=[0, 0])),
    Case("choices of more than 64 bits", observe(type="MultiDiscrete", nvec=[2**70], start=[0])),
    Case("10⁵ × 10⁵ coins", observe(type="MultiBinary", shape=[10**5, 10**5])),
    Case("2⁴⁰ coins", observe(type="MultiBinary", shape=[2**40])),
    Case("-1 coins", observe(type="MultiBinary", shape=[-1])),
    Case("200 tables in each other", describe(observation_space=nest("Dict", 200))),
    Case("240 tuples in each other", describe(observation_space=nest("Tuple", 240))),
    Case("100 parts of 10⁷ numbers", observe(type="Tuple", spaces=[{**BOX, "shape": [10**7]}] * 100)),
    Case("10⁵ parts", observe(type="Tuple", spaces=[{**CHOICE, "n": 2}] * 10**5)),
    Case("2000 images", show_many(2000, encoder="resnet18")),
    Case("300 images", show_many(300, encoder="small")),
    Case("no parts", observe(type="Tuple", spaces=[])),
    Case("a table with a list as name", observe(type="Dict", spaces=[[["a"], {**CHOICE, "n": 4}]])),
    Case("a table without pairs", observe(type="Dict", spaces=[5])),
    Case("an unknown space", observe(type="os:system", shape=[4])),
    Case("10⁹ actions", act(**CHOICE, n=10**9)),
    Case("a Box of 10⁹ actions", act(**BOX, shape=[10**9])),
    Case("a Box of actions without bounds", act(**BOX, shape=[2])),
    Case("a table of actions", act(type="Dict", spaces=[["a", {**CHOICE, "n": 2}]])),
    Case("2⁴⁰ coins as action", act(type="MultiBinary", shape=[2**40])),
    Case("code as activation", describe(activation="__import__('os').system('true')")),
    Case("a module as normaliser", describe(normalize_observation="poisoned:f")),
    Case("a module as space", observe(type="poisoned:f")),
    Case("another format", describe(format=2)),
    Case("another checksum", describe(sha256="0" * 64)),
    Case("no checksum", describe(sha256=None)),
    Case("text that steers the terminal", describe(activation=STEER)),
    Case("a text of a million letters", describe(activation="a" * 10**6)),
]  # fmt: skip


def is_told(case: Case, opener: str, answer: str) -> bool:
    if opener == "doctor":
        return answer.endswith("PROBLEM") and "policy: the policy in" in answer
    return answer.startswith("REFUSED the policy in") and "is damaged: " in answer


def test_descriptions_of_policies(run, tmp_path, marker):
    assert find_failures(run, tmp_path / "copy", DESCRIPTIONS, ("load",), is_told) == {}


def test_a_module_as_encoder_is_imported_only_at_the_users_word(run, tmp_path, marker):
    cases = [Case("a module as encoder", describe(encoder="poisoned:f"))]

    def asks(case: Case, opener: str, answer: str) -> bool:
        return answer.startswith("REFUSED the policy in") and "repeat --encoder poisoned:f to import it" in answer

    assert find_failures(run, tmp_path / "copy", cases, ("load",), asks) == {}


def test_whoever_opens_a_run_tells_what_is_wrong_with_its_policy(run, tmp_path, marker):
    assert find_failures(run, tmp_path / "copy", DESCRIPTIONS[::8], ("doctor", "evaluate"), is_told) == {}


HARMLESS = {
    "a module as env": describe(env="poisoned:X-v0"),
    "a module as objective": describe(objective="poisoned:f"),
    "a name that nobody knows": describe(comment={"a": [1, 2]}, __class__="os.system"),
    "900 spaces for nothing": lambda run: (run / "policy" / "policy.json").write_text(
        " " * 900 + (run / "policy" / "policy.json").read_text()
    ),
    "a link to another policy": lambda run: _link(run / "policy" / "policy.json", run / "elsewhere.json"),
}


def _link(file: Path, target: Path) -> None:
    file.rename(target)
    file.symlink_to(target)


def test_what_is_harmless_loads_exactly(run, tmp_path, marker):
    """Strangers may name what they like in text that only labels: nothing is imported for it."""
    observations = np.random.default_rng(1).normal(size=(50, 4))
    expected = load_policy(run).act(observations)
    for poison in HARMLESS.values():
        shutil.copytree(run, tmp_path / "copy")
        poison(tmp_path / "copy")
        assert (load_policy(tmp_path / "copy").act(observations) == expected).all()
        shutil.rmtree(tmp_path / "copy")


JUNK = [None, [], {}, True, -1, 0.5, 2**70, "", "a" * 10**6, "poisoned:f"]
JUNK += [[[[]]], [None], {"type": "Box"}, ["poisoned:f"] * 9]


def list_paths(tree: dict, path: tuple = ()) -> list[tuple]:
    return [
        found
        for name, value in tree.items()
        for found in (
            [*list_paths(value, (*path, name)), (*path, name)] if isinstance(value, dict) else [(*path, name)]
        )
    ]


def replace_at(tree: dict, path: tuple, value: object) -> dict:
    inner = value if len(path) == 1 else replace_at(tree[path[0]], path[1:], value)
    return tree | {path[0]: inner}


def acts_alike(directory: Path, observations: np.ndarray, expected: np.ndarray) -> bool:
    policy = load_policy(directory)
    return bool((policy.act(observations) == expected + policy.spec.action_space.start).all())


def find_wrong_loads(directory: Path) -> list[str]:
    """What goes wrong with every value of every field; a load that succeeds must give the same policy."""
    file, observations = directory / "policy.json", np.random.default_rng(2).normal(size=(20, 4))
    original, expected, wrong = json.loads(file.read_text()), load_policy(directory).act(observations), []
    for path in list_paths(original):
        for junk in JUNK:
            file.write_text(json.dumps(replace_at(original, path, junk)))
            said = heard(lambda: acts_alike(directory, observations, expected))
            if not (said == "FINE" or said.startswith("REFUSED the policy in")):
                wrong.append(f"{path} = {junk!r:.40}: {said:.1000}")
    return wrong


def test_every_field_of_a_description(run, tmp_path, marker):
    shutil.copytree(run / "policy", tmp_path / "policy")
    assert {("hidden",), ("observation_space", "shape")} < set(
        list_paths(json.loads((run / "policy" / "policy.json").read_text()))
    )
    assert sandboxed(find_wrong_loads, tmp_path / "policy") == []
