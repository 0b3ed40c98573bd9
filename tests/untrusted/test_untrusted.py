"""Files from strangers: whatever they hold, opening them runs nothing, takes little, and ends in one sentence."""

import hashlib
import io
import json
import os
import pickle
import shutil
import socket
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from safetensors.numpy import load, save

import spo
from crash import SHORT
from hostile import OPENERS, heard, sandboxed
from spo import cli
from spo.cli.training import parse_train
from spo.models.normalization import ObservationNormalizer
from spo.models.policy import Policy, PolicySpec
from spo.models.policy_files import load_policy, save_policy
from spo.runs import checkpoint
from spo.runs.directory import RunDirectory
from spo.runtime import files
from spo.runtime.files import LARGEST_FILE, read_bounded
from spo.spaces import ObservationLayout

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="measures memory with /proc")
STEER = "\x1b]0;pwned\x07"
BRIEF = SHORT | {"steps": 32 * 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was stopped after two of its iterations: it has a policy, and can be resumed."""
    out = tmp_path_factory.mktemp("runs") / "run"
    spo.train("CartPole-v1", **BRIEF, out=str(out), callback=lambda training, _: training.iteration < 2)
    return out


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """A file that exists once any code of a stranger has run, be it unpickled or imported."""
    path, modules = tmp_path / "marker", tmp_path / "modules"
    modules.mkdir()
    (modules / "poisoned.py").write_text(f"open({str(path)!r}, 'w')\ndef f(ratio, advantage): return ratio\n")
    monkeypatch.syspath_prepend(modules)
    yield path
    assert not path.exists() and "poisoned" not in sys.modules


ALL = ("load", "doctor", "evaluate", "config", "resume")


def opened(run: Path, place: Path, poison, openers=ALL) -> dict[str, str]:
    """What each way to open a poisoned copy of a run says."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(run, place)
    poison(place)
    return {name: heard(OPENERS[name], place) for name in openers}


def told(run: Path, place: Path, cases: dict, openers=ALL) -> dict[str, dict[str, str]]:
    """For each case: what each opener says."""
    return sandboxed(lambda: {name: opened(run, place, poison, openers) for name, poison in cases.items()})


def broken(said: dict[str, dict[str, str]]) -> dict[str, str]:
    """The cases in which something broke: there must be none."""
    return {f"{case}, {name}": text for case, texts in said.items() for name, text in texts.items() if "BROKE" in text}


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def torch_file(marker: Path) -> bytes:
    file = io.BytesIO()
    torch.save(Payload(marker), file)
    return file.getvalue()


def bomb() -> bytes:
    return zipped("policy.json", b"0" * 10**7)


def sparse(path: Path, size: int, start: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(start)
        file.truncate(size)


# ---- policies: the description


def described(**changes):
    """A policy.json with other values."""

    def poison(run: Path) -> None:
        file = run / "policy" / "policy.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return poison


def observed(**space):
    return described(observation_space=space)


def acted(**space):
    return described(action_space=space)


def image(*shape, encoder):
    return described(observation_space={"type": "Box", "shape": shape, "dtype": "uint8"}, encoder=encoder)


def nested(kind: str, depth: int) -> dict:
    space = {"type": "Discrete", "n": 4, "start": 0}
    for _ in range(depth):
        space = {"type": kind, "spaces": [space] if kind == "Tuple" else [["a", space]]}
    return space


BOX, CHOICE = {"type": "Box", "dtype": "float32"}, {"type": "Discrete", "start": 0}
SMALL_IMAGE = {"type": "Box", "shape": [10, 10, 1], "dtype": "uint8"}
DESCRIPTIONS = {
    "two layers of 10⁹": described(hidden=[10**9, 10**9]),
    "two layers of 2²⁰": described(hidden=[2**20, 2**20]),
    "a million layers": described(hidden=[1] * 10**6),
    "900 layers": described(hidden=[1] * 900),
    "a layer of 2⁶³": described(critic_hidden=[2**63]),
    "a layer of -1": described(critic_hidden=[-1]),
    "a layer of true": described(hidden=[True, 8]),
    "a layer that is a list": described(hidden=[[8]]),
    "an image of 10⁴ × 10⁴, nature": image(10**4, 10**4, 3, encoder="nature"),
    "an image of 3000 × 3000, nature": image(3000, 3000, 1, encoder="nature"),
    "an image of 3000 × 3000, small": image(3000, 3000, 1, encoder="small"),
    "an image of 3000 × 3000, resnet18": image(3000, 3000, 1, encoder="resnet18"),
    "an image of 1 × 1": image(1, 1, 1, encoder="small"),
    "10⁸ numbers": observed(type="Box", shape=[10**8], dtype="float64"),
    "2⁶³ numbers": observed(**BOX, shape=[2**63]),
    "2³² × 2³² numbers": observed(**BOX, shape=[2**32, 2**32]),
    "-4 numbers": observed(**BOX, shape=[-4]),
    "-2 × -2 numbers": observed(**BOX, shape=[-2, -2]),
    "no numbers": observed(**BOX, shape=[0]),
    "no numbers × 10³⁰": observed(**BOX, shape=[0, 10**30]),
    "a list × 10⁹": observed(**BOX, shape=[[0], 10**9]),
    "a text × 10⁹": observed(**BOX, shape=["a", 10**9]),
    "a million axes": observed(**BOX, shape=[2] * 10**6),
    "4.0 numbers": observed(**BOX, shape=[4.0]),
    "a shape that is a number": observed(**BOX, shape=4),
    "objects": observed(type="Box", shape=[4], dtype="O"),
    "texts of 100 MB": observed(type="Box", shape=[4], dtype="S100000000"),
    "records": observed(type="Box", shape=[4], dtype="f8,f8"),
    "a record by fields": observed(type="Box", shape=[4], dtype={"names": ["a"], "formats": ["O"]}),
    "10¹⁵ choices": observed(**CHOICE, n=10**15),
    "2⁶⁴ choices": observed(**CHOICE, n=2**64),
    "no choices": observed(**CHOICE, n=0),
    "-1 choices": observed(**CHOICE, n=-1),
    "choices from a list": observed(**CHOICE, n=[4]),
    "choices from 2⁷⁰ on": observed(type="Discrete", n=4, start=2**70),
    "choices that wrap around to 4": observed(type="MultiDiscrete", nvec=[2**63 - 1, 2**63 - 1, 6], start=[0] * 3),
    "a million pairs of choices": observed(type="MultiDiscrete", nvec=[2] * 10**6, start=[0] * 10**6),
    "ragged choices": observed(type="MultiDiscrete", nvec=[[2], [2, 2]], start=[0, 0]),
    "choices of more than 64 bits": observed(type="MultiDiscrete", nvec=[2**70], start=[0]),
    "10⁵ × 10⁵ coins": observed(type="MultiBinary", shape=[10**5, 10**5]),
    "2⁴⁰ coins": observed(type="MultiBinary", shape=[2**40]),
    "-1 coins": observed(type="MultiBinary", shape=[-1]),
    "200 tables in each other": described(observation_space=nested("Dict", 200)),
    "240 tuples in each other": described(observation_space=nested("Tuple", 240)),
    "100 parts of 10⁷ numbers": observed(type="Tuple", spaces=[{**BOX, "shape": [10**7]}] * 100),
    "10⁵ parts": observed(type="Tuple", spaces=[{**CHOICE, "n": 2}] * 10**5),
    "2000 images": described(observation_space={"type": "Tuple", "spaces": [SMALL_IMAGE] * 2000}, encoder="resnet18"),
    "300 images": described(observation_space={"type": "Tuple", "spaces": [SMALL_IMAGE] * 300}, encoder="small"),
    "no parts": observed(type="Tuple", spaces=[]),
    "a table with a list as name": observed(type="Dict", spaces=[[["a"], {**CHOICE, "n": 4}]]),
    "a table without pairs": observed(type="Dict", spaces=[5]),
    "an unknown space": observed(type="os:system", shape=[4]),
    "10⁹ actions": acted(**CHOICE, n=10**9),
    "a Box of 10⁹ actions": acted(**BOX, shape=[10**9]),
    "a Box of actions without bounds": acted(**BOX, shape=[2]),
    "a table of actions": acted(type="Dict", spaces=[["a", {**CHOICE, "n": 2}]]),
    "2⁴⁰ coins as action": acted(type="MultiBinary", shape=[2**40]),
    "code as activation": described(activation="__import__('os').system('true')"),
    "a module as encoder": described(encoder="poisoned:f"),
    "a module as normaliser": described(normalize_observation="poisoned:f"),
    "a module as space": observed(type="poisoned:f"),
    "another format": described(format=2),
    "another checksum": described(sha256="0" * 64),
    "no checksum": described(sha256=None),
    "text that steers the terminal": described(activation=STEER),
    "a text of a million letters": described(activation="a" * 10**6),
}  # fmt: skip


def test_descriptions_of_policies(run, tmp_path, marker):
    said = told(run, tmp_path / "copy", DESCRIPTIONS, ("load",))
    assert len(said) == len(DESCRIPTIONS) > 60 and broken(said) == {}
    for case, texts in said.items():
        assert texts["load"].startswith("REFUSED the policy in") and "is damaged: " in texts["load"], (case, texts)
    few = {case: DESCRIPTIONS[case] for case in list(DESCRIPTIONS)[::8]}
    said = told(run, tmp_path / "copy", few, ("doctor", "evaluate"))
    assert broken(said) == {}
    for case, texts in said.items():
        assert texts["doctor"].endswith("PROBLEM") and "policy: the policy in" in texts["doctor"], (case, texts)
        assert texts["evaluate"].startswith("REFUSED the policy in"), (case, texts)


HARMLESS = {
    "a module as env": described(env="poisoned:X-v0"),
    "a module as objective": described(objective="poisoned:f"),
    "a name that nobody knows": described(comment={"a": [1, 2]}, __class__="os.system"),
    "900 spaces for nothing": lambda run: (run / "policy" / "policy.json").write_text(
        " " * 900 + (run / "policy" / "policy.json").read_text()
    ),
    "a link to another policy": lambda run: _linked(run / "policy" / "policy.json", run / "elsewhere.json"),
}


def _linked(file: Path, target: Path) -> None:
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


def paths(tree: dict, path: tuple = ()) -> list[tuple]:
    return [
        found
        for name, value in tree.items()
        for found in ([*paths(value, (*path, name)), (*path, name)] if isinstance(value, dict) else [(*path, name)])
    ]


def replaced(tree: dict, path: tuple, value: object) -> dict:
    inner = value if len(path) == 1 else replaced(tree[path[0]], path[1:], value)
    return tree | {path[0]: inner}


def acts_alike(directory: Path, observations: np.ndarray, expected: np.ndarray) -> bool:
    policy = load_policy(directory)
    return bool((policy.act(observations) == expected + policy.spec.action_space.start).all())


def fuzzed_loads(directory: Path) -> list[str]:
    """What goes wrong with every value of every field; a load that succeeds must give the same policy."""
    file, observations = directory / "policy.json", np.random.default_rng(2).normal(size=(20, 4))
    original, expected, wrong = json.loads(file.read_text()), load_policy(directory).act(observations), []
    for path in paths(original):
        for junk in JUNK:
            file.write_text(json.dumps(replaced(original, path, junk)))
            said = heard(lambda: acts_alike(directory, observations, expected))
            if not (said == "FINE" or said.startswith("REFUSED the policy in")):
                wrong.append(f"{path} = {junk!r:.40}: {said:.1000}")
    return wrong


def test_every_field_of_a_description(run, tmp_path, marker):
    shutil.copytree(run / "policy", tmp_path / "policy")
    assert len(paths(json.loads((run / "policy" / "policy.json").read_text()))) == 17
    assert sandboxed(fuzzed_loads, tmp_path / "policy") == []


# ---- policies: texts that are no description, and tensors


def texts(marker: Path) -> dict[str, bytes]:
    return {
        "100 000 brackets": b"[" * 100_000,
        "100 000 tables": b'{"a":' * 100_000,
        "balanced brackets": b"[" * 50_000 + b"]" * 50_000,
        "NaN": b'{"format": NaN}',
        "infinity": b'{"format": -Infinity}',
        "1e999": b'{"format": 1, "hidden": [1e999]}',
        "a name twice": b'{"format": 1, "format": 1}',
        "5000 digits": b'{"format": ' + b"9" * 5000 + b"}",
        "4000 digits": b'{"format": 1, "hidden": [' + b"9" * 4000 + b"]}",
        "garbage behind it": b'{"format": 1} os.system("true")',
        "UTF-16": '{"format": 1}'.encode("utf-16"),
        "no UTF-8": b'{"format": "\xff\xfe"}',
        "half a surrogate": b'{"format": "\\ud800"}',
        "nothing": b"",
        "a list": b"[1, 2]",
        "null": b"null",
        "a number": b"5",
        "a pickle": pickle.dumps(Payload(marker)),
        "a file of torch": torch_file(marker),
        "a zip": zipped("policy.json", b"{}"),
        "a zip slip": zipped("../../marker", b"pwned"),
        "a zip bomb": bomb(),
        "YAML that makes an object": f"!!python/object/apply:open ['{marker}', 'w']".encode(),
    }  # fmt: skip


def written(name: str, content: bytes):
    """A file with other content; the checksums that a stranger can recompute are right again."""

    def poison(run: Path) -> None:
        (run / name).write_bytes(content)
        if name == "policy/policy.safetensors":
            described(sha256=hashlib.sha256(content).hexdigest())(run)
        if name.startswith("checkpoints/"):
            resealed(run / Path(name).parent)

    return poison


CHECKPOINT = "checkpoints/00000002"
FILES = {
    "policy/policy.json": ("load", "doctor", "evaluate"),
    "policy/policy.safetensors": ("load", "doctor"),
    "config.json": ("doctor", "evaluate", "config"),
    "status.json": ("doctor",),
    "metrics.jsonl": ("doctor",),
    f"{CHECKPOINT}/manifest.json": ("doctor",),
    f"{CHECKPOINT}/state.safetensors": ("doctor",),
    f"{CHECKPOINT}/state.json": ("doctor",),
    f"{CHECKPOINT}/config.json": (),
}
"""The files of a run, and what reads them; resuming reads them all."""


CAN_BE = {"status.json": {"half a surrogate", "UTF-16", "4000 digits"}, "metrics.jsonl": {"4000 digits"}}
"""Texts that are as good as the file itself."""
HEALED = ("policy/policy.json", "policy/policy.safetensors", "status.json", f"{CHECKPOINT}/config.json")
"""What a resumed run writes again, or does not need."""


@pytest.mark.parametrize("name", FILES)
def test_texts_in_place_of_every_file(run, tmp_path, marker, name):
    cases = {text: written(name, content) for text, content in texts(marker).items()}
    said = told(run, tmp_path / "copy", cases, FILES[name])
    few = {text: cases[text] for text in ("100 000 brackets", "a pickle", "null")}
    resumed = told(run, tmp_path / "copy", few, ("resume",))
    assert len(cases) == 23 and broken(said) == broken(resumed) == {}
    for case, answers in said.items():
        for opener, text in answers.items():
            is_told = text.endswith("PROBLEM") if opener == "doctor" else text.startswith("REFUSED")
            assert is_told != (case in CAN_BE.get(name, ())), (case, opener, text)
    for case, answers in resumed.items():
        is_told = any(words in answers["resume"] for words in ("is damaged", "cannot be read"))
        assert answers["resume"] == "FINE" if name in HEALED else is_told, (case, answers)


def header(**tensors) -> bytes:
    """A safetensors file of a header alone, and 64 bytes of numbers."""
    text = json.dumps(tensors).encode()
    return struct.pack("<Q", len(text)) + text + bytes(64)


def entry(shape: list, offsets: list, dtype: str = "F32") -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def tensor_files(good: bytes) -> dict[str, bytes]:
    tensors = load(good)
    mean, weight = tensors["normalizer.mean"], tensors["actor.0.weight"]
    return {
        "a header of 2⁶³ bytes": struct.pack("<Q", 2**63) + good[8:],
        "a header of 2⁶⁴ - 1 bytes": b"\xff" * 8 + good[8:],
        "a header of 99 MB that is not there": struct.pack("<Q", 99_000_000) + good[8:],
        "a header of brackets": struct.pack("<Q", 100_000) + b"[" * 100_000,
        "a header that is no UTF-8": struct.pack("<Q", 2) + b"\xff\xfe",
        "a header that is a list": struct.pack("<Q", 2) + b"[]",
        "no header": struct.pack("<Q", 0),
        "seven bytes": good[:7],
        "a negative shape": header(a=entry([-4], [0, 16])),
        "a shape of 2⁶³": header(a=entry([2**63], [0, 16])),
        "a shape of 2⁶⁴": header(a=entry([2**64], [0, 16])),
        "a shape of 2³² × 2³²": header(a=entry([2**32, 2**32], [0, 64])),
        "offsets behind the end": header(a=entry([32], [0, 128])),
        "offsets of 2⁶³": header(a=entry([16], [2**63, 2**63 + 64])),
        "offsets that overlap": header(a=entry([16], [0, 64]), b=entry([16], [0, 64])),
        "offsets with a hole": header(a=entry([4], [0, 16]), b=entry([8], [32, 64])),
        "offsets in reverse": header(a=entry([16], [64, 0])),
        "an unknown type": header(a=entry([16], [0, 64], "OBJECT")),
        "a module as type": header(a=entry([16], [0, 64], "poisoned:f")),
        "bytes behind the end": good + bytes(8),
        "an extra tensor": save(tensors | {"extra": np.zeros(1)}),
        "a missing tensor": save({name: array for name, array in tensors.items() if name != "critic.0.bias"}),
        "a missing statistic": save({name: array for name, array in tensors.items() if name != "normalizer.mean"}),
        "another name": save({name.replace("actor.0", "actor.9"): array for name, array in tensors.items()}),
        "a transposed weight": save(tensors | {"actor.0.weight": np.ascontiguousarray(weight.T)}),
        "a flat weight": save(tensors | {"actor.0.weight": weight.ravel()}),
        "a weight of doubles": save(tensors | {"actor.0.weight": weight.astype(np.float64)}),
        "a weight of whole numbers": save(tensors | {"actor.0.weight": weight.astype(np.int32)}),
        "a weight of halves": save(tensors | {"actor.0.weight": weight.astype(np.float16)}),
        "a mean for all": save(tensors | {"normalizer.mean": mean[:, :1]}),
        "a mean of singles": save(tensors | {"normalizer.mean": mean.astype(np.float32)}),
        "bounds that nobody asked for": save(tensors | {"action.low": np.zeros(1), "action.high": np.ones(1)}),
    }  # fmt: skip


def test_tensors_of_policies(run, tmp_path, marker):
    good = (run / "policy" / "policy.safetensors").read_bytes()
    cases = {name: written("policy/policy.safetensors", content) for name, content in tensor_files(good).items()}
    said = told(run, tmp_path / "copy", cases, ("load", "doctor", "evaluate"))
    assert broken(said) == {}
    for case, answers in said.items():
        assert answers["load"].startswith("REFUSED the policy in"), (case, answers)
        assert "checksum" not in answers["load"], f"{case}: the checksum was meant to be right"


def crowded() -> bytes:
    """Fifty thousand tensors of nothing."""
    text = json.dumps({f"t{number}": entry([0], [0, 0]) for number in range(50_000)}).encode()
    return struct.pack("<Q", len(text)) + text


def test_a_header_is_small_even_where_the_file_may_be_large(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    described(hidden=[1024, 1024])(tmp_path / "copy")
    written("policy/policy.safetensors", crowded())(tmp_path / "copy")
    with pytest.raises(spo.SpoError, match="its header has 3,.* bytes; accepted are up to 1,048,576"):
        load_policy(tmp_path / "copy")


def continuous_policy(directory: Path) -> None:
    """A policy for a Box of actions, as a run saves it."""
    spaces = (gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(-2, 2, (2,), np.float32))
    spec = PolicySpec("Mine-v0", "spo", *spaces, (8,), (8,), "tanh", "auto")
    save_policy(Policy(spec, spec.network(), ObservationNormalizer("shared", 1, 3)), directory)


@pytest.mark.parametrize(
    "low, high",
    [
        ([np.nan, 0], [1, 1]),
        ([2, 2], [1, 1]),
        ([0, 0, 0], [1, 1, 1]),
        ([0], [1]),
        ([[0, 0]], [[1, 1]]),
    ],
)
def test_bounds_of_actions(low, high, tmp_path):
    continuous_policy(tmp_path / "policy")
    assert load_policy(tmp_path).spec.action_space == gym.spaces.Box(-2, 2, (2,), np.float32)
    tensors = load((tmp_path / "policy" / "policy.safetensors").read_bytes())
    bounds = {"action.low": np.array(low, np.float32), "action.high": np.array(high, np.float32)}
    written("policy/policy.safetensors", save(tensors | bounds))(tmp_path)
    with pytest.raises(spo.SpoError, match="the policy in .* is damaged"):
        load_policy(tmp_path)


# ---- what is no plain file, or no plain size


def swapped(name: str, make):
    def poison(run: Path) -> None:
        path = run / name
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        make(path)

    return poison


def bound_socket(path: Path) -> None:
    os.chdir(path.parent)  # because the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def link_to(target: str):
    return lambda path: path.symlink_to(target)


STRANGERS = {
    "a pipe": os.mkfifo,
    "a socket": bound_socket,
    "a link to /dev/zero": link_to("/dev/zero"),
    "a link to /dev/null": link_to("/dev/null"),
    "a link to /etc/passwd": link_to("/etc/passwd"),
    "a link to a page table": link_to("/proc/self/pagemap"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": link_to("/nonexistent/file"),
    "a link to the parent": link_to(".."),
}
OTHERS = {
    "a directory": lambda path: path.mkdir(),
    "a file of almost 2 GB": lambda path: sparse(path, LARGEST_FILE - 1),
}
PLACES = (*FILES, "episodes.jsonl", "lock", "policy", "checkpoints", CHECKPOINT)


def test_what_is_no_plain_file(run, tmp_path, marker):
    cases = {f"{kind} as {name}": swapped(name, make) for name in PLACES for kind, make in STRANGERS.items()}
    said = told(run, tmp_path / "copy", cases)
    assert len(cases) > 100 and broken(said) == {}
    for case, answers in said.items():
        assert answers["doctor"].endswith("PROBLEM"), (case, answers)
        for name in ("evaluate", "resume"):
            words = ("is not what a run leaves there", "is not a run directory: it has no config.json")
            assert any(word in answers[name] for word in words), (case, answers)


def test_what_is_no_plain_size(run, tmp_path, marker):
    cases = {f"{kind} as {name}": swapped(name, make) for name in PLACES for kind, make in OTHERS.items()}
    said = told(run, tmp_path / "copy", cases)
    assert broken(said) == {}
    for case, answers in said.items():
        if "policy" in case:
            assert answers["load"].startswith("REFUSED"), (case, answers)


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "lock", "status.json.tmp", "evaluation.json.tmp", "policy", "checkpoints"]
)
def test_nothing_is_written_through_a_link(run, tmp_path, name):
    """A run that is opened, or a directory that a run is trained into, may point at what is dear to its user."""
    dear = tmp_path / "dear"
    (dear / ".old-photographs").mkdir(parents=True)
    (dear / "letter").write_text("dear me")
    before = sorted((path, path.read_bytes() if path.is_file() else b"") for path in dear.rglob("*"))
    shutil.copytree(run, tmp_path / "copy")
    swapped(name, link_to(str(dear if "." not in name and name != "lock" else dear / "letter")))(tmp_path / "copy")
    with pytest.raises(spo.SpoError, match="is not what a run leaves there"):
        spo.resume(tmp_path / "copy", quiet=True)
    with pytest.raises(spo.SpoError, match="is not what a run leaves there"):
        spo.evaluate(tmp_path / "copy", episodes=1)
    (tmp_path / "new").mkdir()
    shutil.copy(tmp_path / "copy" / name, tmp_path / "new" / name, follow_symlinks=False)
    with pytest.raises(spo.SpoError, match="is not what a run leaves there|already holds a run"):
        spo.train("CartPole-v1", **SHORT, out=str(tmp_path / "new"))
    assert before == sorted((path, path.read_bytes() if path.is_file() else b"") for path in dear.rglob("*"))


def test_a_file_is_read_up_to_the_size_that_it_had(tmp_path):
    """What grows, or has no end though it has a size, cannot hold us up."""
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bounded(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="file has 5 bytes; accepted are up to 4"):
        read_bounded(tmp_path / "file", 4)
    sparse(tmp_path / "large", LARGEST_FILE + 1)
    with pytest.raises(ValueError, match="accepted are up to 2,147,483,648"):
        read_bounded(tmp_path / "large")
    with pytest.raises(ValueError, match="zero is not a plain file"):
        read_bounded(Path("/dev/zero"))
    assert read_bounded(Path("/proc/self/status")) == b""  # it has no size


# ---- config.json, with a seal that is right


def recorded(part: str = "settings", **changes):
    """A config.json with other values, sealed as if a run had written it."""

    def poison(run: Path) -> None:
        record = files.unsealed((run / "config.json").read_bytes())
        if changes:
            record[part] |= changes
        else:
            del record[part]
        (run / "config.json").write_bytes(checkpoint.canonical(files.sealed(record)))
        (run / CHECKPOINT / "config.json").write_bytes((run / "config.json").read_bytes())
        resealed(run / CHECKPOINT)

    return poison


def without(name: str):
    def poison(run: Path) -> None:
        record = files.unsealed((run / "config.json").read_bytes())
        del record["settings"][name]
        (run / "config.json").write_bytes(checkpoint.canonical(files.sealed(record)))
        shutil.rmtree(run / "checkpoints")

    return poison


def replaced_record(record: object):
    def poison(run: Path) -> None:
        (run / "config.json").write_bytes(checkpoint.canonical(record))
        shutil.rmtree(run / "checkpoints")

    return poison


RECORDS = {
    "a module as env": (recorded(env="poisoned:X-v0"), "repeat"),
    "a module as objective": (recorded(objective="poisoned:f"), "repeat --objective poisoned:f"),
    "os.system as objective": (recorded(objective="os:system"), "repeat --objective os:system"),
    "a module as argument": (recorded(env="GymV26Environment-v0", env_arg={"env_id": "poisoned:X"}), "repeat"),
    "a module deep in an argument": (recorded(env_arg={"make": [{"id": "poisoned:X"}]}), "repeat"),
    "a table as argument": (recorded(env_arg={"a": {"b": 1}}), "unexpected keyword argument 'a'"),
    "an env that is a number": (recorded(env=5), "--env 5"),
    "no env": (recorded(env=None), "--env None"),
    "an unknown env": (recorded(env="Nope-v9"), "environment 'Nope-v9'"),
    "an env that steers the terminal": (recorded(env=STEER), "\\x1b"),
    "half a surrogate as env": (recorded(env="\ud800"), "\\ud800"),
    "an argument of ours": (recorded(env_arg={"disable_env_checker": True}), "cannot be made: TypeError"),
    "another argument of ours": (recorded(env_arg={"make": 1}), "cannot be made: TypeError"),
    "arguments that are a list": (recorded(env_arg=[1]), "--env-arg"),
    "layers of 10⁶": (recorded(hidden=[10**6] * 3), "parameters is not accepted"),
    "layers of 10⁹": (recorded(hidden=[10**9]), "--hidden 1000000000"),
    "10⁵ layers": (recorded(hidden=[1] * 10**5), "--hidden 1 1"),
    "10⁹ environments": (recorded(envs=10**9), "--envs 1000000000"),
    "a batch of 2³⁶": (recorded(envs=2**16, horizon=2**20), "--horizon 1048576"),
    "a rate of 10⁴⁰⁰": (recorded(learning_rate=10**400), "--learning-rate 1000"),
    "a rate of 1e300": (recorded(learning_rate=1e300), "--learning-rate 1e+300"),
    "a timeout of 1e30": (recorded(env_timeout=1e30), "--env-timeout 1e+30"),
    "a limit of 10³⁰": (recorded(replay_limit=10**30), "--replay-limit 1000"),
    "a device without numbers": (recorded(device="meta"), "--device meta cannot be used"),
    "a device that is none": (recorded(device="poisoned:0"), "--device poisoned:0 cannot be used"),
    "an unknown setting": (recorded(wings=2), "setting 'wings' is unknown"),
    "a missing setting": (without("hidden"), "setting 'hidden' is missing"),
    "no settings": (recorded("settings"), "its settings are missing"),
    "no choices": (recorded("resolved"), "its resolved are missing"),
    "no versions": (recorded("versions"), "its versions are missing"),
    "no machine": (recorded("machine"), "its machine are missing"),
    "4096 threads": (recorded("resolved", threads=4096), "--threads 4096"),
    "threads that are text": (recorded("resolved", threads="all"), "its threads is 'all'"),
    "no backend": (recorded("resolved", backend=None), "its backend is None"),
    "an unknown backend": (recorded("resolved", backend="poisoned:f"), "--backend 'poisoned:f'"),
    "an update that is a list": (recorded("resolved", update=[]), "its update is []"),
    "a version that steers the terminal": (recorded("versions", torch=STEER), "\\x1b"),
    "a list": (replaced_record([1]), "its own checksum"),
    "an empty table": (replaced_record(files.sealed({})), "its settings are missing"),
    "a table of lists": (replaced_record(files.sealed({"settings": [1]})), "its settings are missing"),
    "no seal": (replaced_record({"settings": {"env": "CartPole-v1"}}), "its own checksum"),
}  # fmt: skip


def test_sealed_configs(run, tmp_path, marker):
    cases = {case: poison for case, (poison, _) in RECORDS.items()}
    said = told(run, tmp_path / "copy", cases, ("doctor", "evaluate", "config", "resume"))
    assert broken(said) == {}
    for case, (_, words) in RECORDS.items():
        assert words in said[case]["resume"], (case, said[case])


def test_a_module_is_imported_once_the_user_repeats_it(run, tmp_path, monkeypatch):
    """The counterpart: with the same files, the user's word is enough."""
    (tmp_path / "friendly.py").write_text("def f(ratio, advantage):\n    return ratio * advantage\n")
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(run, tmp_path / "copy")
    recorded(objective="friendly:f")(tmp_path / "copy")
    file = ["--config", str(tmp_path / "copy" / "config.json")]
    with pytest.raises(spo.SpoError, match="names a module: repeat --objective friendly:f to import it"):
        parse_train(["CartPole-v1", *file])
    assert "friendly" not in sys.modules
    assert parse_train(["CartPole-v1", *file, "--objective", "spo"]).objective == "spo"
    assert parse_train(["CartPole-v1", *file, "--objective", "friendly:f"]).resolved_objective
    assert spo.resume(tmp_path / "copy", objective="friendly:f", quiet=True).summary["env_steps"] == BRIEF["steps"]


# ---- checkpoints, with checksums that are right


def resealed(path: Path, **changes) -> None:
    """Recomputes what a manifest says of its files."""
    file = path / "manifest.json"
    try:
        manifest = files.unsealed(file.read_bytes())
    except Exception:
        return  # the manifest itself is what was spoilt
    for name in manifest["files"]:
        content = (path / name).read_bytes()
        manifest["files"][name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    file.write_bytes(checkpoint.canonical(files.sealed(manifest | changes)))


def arrays(**changes):
    """Other arrays in a checkpoint; None removes one. A slash is written as two underscores."""

    def poison(run: Path) -> None:
        file = run / CHECKPOINT / "state.safetensors"
        changed = load(file.read_bytes()) | {name.replace("__", "/"): array for name, array in changes.items()}
        file.write_bytes(save({name: array for name, array in changed.items() if array is not None}))
        resealed(file.parent)

    return poison


def values(*path: str, value: object):
    """Another value in a checkpoint; ... removes it."""

    def poison(run: Path) -> None:
        file = run / CHECKPOINT / "state.json"
        tree = json.loads(file.read_text())
        place = tree
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        if value is ...:
            del place[path[-1]]
        file.write_text(json.dumps(tree))
        resealed(file.parent)

    return poison


def manifested(**changes):
    return lambda run: resealed(run / CHECKPOINT, **changes)


def large_header(run: Path) -> None:
    sparse(run / CHECKPOINT / "state.safetensors", 100_000_000, struct.pack("<Q", 99_000_000))
    resealed(run / CHECKPOINT)


GENERATOR = ("collector", "generator")
MISFIT, DAMAGED = "checkpoint 2 does not fit this run", "checkpoint 00000002 is damaged"
STATES = {
    "no parameters": (arrays(parameters=None), MISFIT),
    "one parameter for all": (arrays(parameters=np.zeros(1, np.float32)), MISFIT),
    "too many parameters": (arrays(parameters=np.zeros(10**6, np.float32)), MISFIT),
    "parameters of doubles": (arrays(parameters=np.zeros(163, np.float64)), MISFIT),
    "an extra array": (arrays(extra=np.zeros(1)), MISFIT),
    "an array as iteration": (arrays(iteration=np.zeros(1)), DAMAGED),
    "an array as departures": (arrays(departures=np.zeros(1)), DAMAGED),
    "an array in place of a table": (arrays(collector=np.zeros(1)), DAMAGED),
    "an array below a number": (arrays(iteration__x=np.zeros(1)), DAMAGED),
    "an array below nothing": (arrays(a__b__c=np.zeros(1)), DAMAGED),
    "wide observations": (arrays(collector__observation=np.zeros((2, 40), np.float32)), MISFIT),
    "many observations": (arrays(collector__envs__observation=np.zeros((9, 4), np.float32)), MISFIT),
    "statistics for all": (arrays(collector__observation_moments__mean=np.zeros((1, 1))), MISFIT),
    "wild actions": (arrays(collector__envs__actions=np.full((99, 2), 10**9)), "FINE"),
    "actions for nobody": (arrays(collector__envs__actions=np.zeros((99, 0), np.int64)), MISFIT),
    "endless episodes": (arrays(collector__envs__totals__length=np.full(2, 2**62)), "longer than --replay-limit"),
    "negative episodes": (arrays(collector__envs__episode=np.full(2, -(2**62))), MISFIT),
    "an iteration that is text": (values("iteration", value="x"), MISFIT),
    "no iteration": (values("iteration", value=...), MISFIT),
    "a wall time of null": (values("wall_time", value=None), MISFIT),
    "departures that are a number": (values("departures", value=5), MISFIT),
    "another generator": (values(*GENERATOR, "bit_generator", value="poisoned"), MISFIT),
    "a generator of text": (values(*GENERATOR, "state", "state", value="x"), MISFIT),
    "a generator of 1000 bits": (values(*GENERATOR, "state", "state", value=2**1000), MISFIT),
    "a negative generator": (values(*GENERATOR, "state", "inc", value=-1), MISFIT),
    "a learning rate of 10⁴⁰⁰": (values("improve", "epochs", "learning_rate", value=10**400), MISFIT),
    "feedback that is a list": (values("improve", "fed_back", value=[]), MISFIT),
    "no collector": (values("collector", value=...), DAMAGED),
    "a name twice": (written(f"{CHECKPOINT}/state.json", b'{"a": 1, "a": 1}'), DAMAGED),
    "fifty thousand arrays": (written(f"{CHECKPOINT}/state.safetensors", crowded()), "its header has"),
    "a header of 99 MB": (large_header, "its header has"),
    "a log elsewhere": (manifested(logs={"../../marker": 0}), DAMAGED),
    "a log that is the config": (manifested(logs={"config.json": 0}), DAMAGED),
    "a log cut to -1 bytes": (manifested(logs={"metrics.jsonl": -1}), DAMAGED),
    "a log cut to 1.5 bytes": (manifested(logs={"metrics.jsonl": 1.5}), DAMAGED),
    "a log cut to true": (manifested(logs={"metrics.jsonl": True}), DAMAGED),
    "logs that are a list": (manifested(logs=["metrics.jsonl"]), DAMAGED),
    "files elsewhere": (manifested(files={"/etc/passwd": {"bytes": 1, "sha256": ""}}), DAMAGED),
    "files that are text": (manifested(files="/dev/zero"), DAMAGED),
    "another iteration": (manifested(iteration=7), DAMAGED),
    "another format": (manifested(format="poisoned:f"), DAMAGED),
}  # fmt: skip


def test_sealed_checkpoints(run, tmp_path, marker):
    said = told(run, tmp_path / "copy", {case: poison for case, (poison, _) in STATES.items()}, ("doctor", "resume"))
    assert broken(said) == {}
    for case, (_, words) in STATES.items():
        assert words in said[case]["resume"], (case, said[case])


def test_texts_do_not_steer_the_terminal(run, tmp_path, marker):
    def poison(place: Path) -> None:
        values("departures", value=[STEER])(place)
        recorded(preset=STEER)(place)
        (place / "status.json").write_text(
            json.dumps({"state": "failed", "reason": STEER, "exact": False, "departures": [STEER]})
        )

    said = told(run, tmp_path / "copy", {"steering": poison}, ("doctor", "loud"))["steering"]
    assert broken({"steering": said}) == {} and "\\x1b" in said["doctor"] and "preset \\x1b" in said["loud"]


ROWS = ["[]", "5", '"x"', "{", '{"env_steps": "many"}', '{"return": null, "env_steps": 1}', "[" * 9999, "\x00" * 99]
ROWS += ['{"wall_time": 0, "env_steps": 1, "ratio_deviation_max": 1}', '{"ratio_deviation_max": "poisoned:f"}']


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl"])
def test_rows_of_strangers(run, tmp_path, marker, name):
    """Told before the training goes on, not after its last iteration."""

    def row(text: str):
        def poison(place: Path) -> None:
            (place / name).write_text((place / name).read_text() + text + "\n")
            logs = {file: (place / file).stat().st_size for file in ("metrics.jsonl", "episodes.jsonl")}
            resealed(place / CHECKPOINT, logs=logs)

        return poison

    said = told(run, tmp_path / "copy", {text[:50]: row(text) for text in ROWS}, ("doctor", "resume"))
    assert broken(said) == {}
    assert (tmp_path / "copy" / name).read_text().endswith(ROWS[-1] + "\n")  # no iteration was made
    for text, answers in said.items():
        assert "REFUSED" in answers["resume"] and ("logs of" in answers["resume"] or name in answers["resume"]), text


@pytest.mark.parametrize(
    "status", ["[]", "{", '{"state": "running"}', '{"exact": false, "departures": 5}', '{"state": 5}']
)
def test_statuses_of_strangers(run, tmp_path, status):
    said = told(run, tmp_path / "copy", {status: lambda place: (place / "status.json").write_text(status)})
    assert broken(said) == {} and said[status]["resume"].endswith("FINE")


# ---- --config FILE


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


def test_configuration_files(tmp_path, marker):
    def all_told() -> dict[str, dict[str, str]]:
        said = {}
        for name, (content, _) in SETTINGS.items():
            (tmp_path / name).write_bytes(content)
            command = ["CartPole-v1", "--config", str(tmp_path / name)]
            said[name] = {"command": heard(parse_train, command)}
        for kind, make in (STRANGERS | OTHERS).items():
            make(tmp_path / "mine.toml")
            said[kind] = {"command": heard(parse_train, ["X-v0", "--config", str(tmp_path / "mine.toml")])}
            swapped("mine.toml", lambda path: None)(tmp_path)
        return said

    said = sandboxed(all_told)
    assert broken(said) == {}
    for name, answers in said.items():
        if name == "a link to a page table":
            continue  # it has no size, so nothing of it is read
        words = SETTINGS[name][1] if name in SETTINGS else "mine.toml cannot be read as TOML or JSON"
        assert "REFUSED" in answers["command"] and words in answers["command"], (name, answers)


def test_a_run_that_cannot_be_locked(tmp_path):
    with pytest.raises(spo.SpoError, match="gone cannot be written to: No such file"):
        RunDirectory(tmp_path / "gone").locked().__enter__()


def test_an_evaluation_that_cannot_be_written(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / "evaluation.json.tmp").mkdir()
    with pytest.raises(spo.SpoError, match="evaluation.json cannot be written to: Is a directory"):
        spo.evaluate(tmp_path / "copy", episodes=1)


def test_a_space_that_could_not_be_loaded_is_not_trained_on():
    with pytest.raises(spo.SpoError, match="it holds 100,000,000 numbers; accepted are up to 10,000,000"):
        ObservationLayout(gym.spaces.Discrete(10**8))


# ---- the directory that a command is called in


IMPOSTORS = ("torch", "numpy", "gymnasium", "safetensors", "rich", "tyro", "matplotlib", "json", "poisoned")


def test_a_command_imports_nothing_from_where_it_is_called(run, tmp_path):
    """Called inside a downloaded directory, `spo` takes no file of it for an installed package."""
    shutil.copytree(run, tmp_path / "run")
    for name in IMPOSTORS:
        (tmp_path / "run" / f"{name}.py").write_text(f"open({str(tmp_path / 'marker')!r}, 'w')\n")
    script = tmp_path / "bin" / "spo"
    script.parent.mkdir()
    script.write_text("from spo.cli import main\nmain()\n")

    def called(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, script, *arguments], cwd=tmp_path / "run", capture_output=True, text=True
        )

    done = called("eval", ".", "--env", "gymnasium:CartPole-v1", "--episodes", "1")
    assert done.returncode == 0 and done.stdout.startswith("return "), done
    assert not (tmp_path / "marker").exists()
    named = called("train", "CartPole-v1", "--objective", "poisoned:f")
    assert named.returncode == 2 and (tmp_path / "marker").exists()  # the user's word still finds a module here


@pytest.mark.parametrize("arguments, is_searched", [(["eval", "."], False), (["train", "mine:X-v0"], True)])
def test_the_current_directory_is_searched_only_for_a_module_that_is_named(arguments, is_searched, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["spo", *arguments])
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    monkeypatch.setattr(cli, "dispatch", lambda _: None)
    cli.main()
    assert sys.path == ["/elsewhere", os.curdir][: 1 + is_searched]


def test_jobs_import_nothing_from_where_they_are_started(monkeypatch, tmp_path):
    from spo.experiments.executors import local
    from spo.experiments.plan import Cell, read_suite
    from spo.experiments.sweep import Sweep

    commands = []
    monkeypatch.setattr(local.subprocess, "Popen", lambda command, **_: commands.append(command))
    local.Local(Sweep(tmp_path, read_suite("smoke")), 1).start(Cell("CartPole-v1", "spo", 1))
    assert commands[0][1:4] == ["-P", "-m", "spo.experiments.worker"]


def test_a_run_starts_no_swarm_of_processes(monkeypatch):
    """However many environments a config asks for."""
    from spo.config.sources import make_config
    from spo.envs import factory

    asked = []
    monkeypatch.setattr(factory, "SubprocVecEnv", lambda maker, envs, seed, workers, *_: asked.append(workers))
    config = make_config("CartPole-v1", envs=2**16, horizon=1, minibatches=1, steps=2**16)
    factory.make_envs(config, None, "process", 1)
    assert asked == [256]
