"""Tensors of policies, policy.safetensors: headers that lie, shapes and types that do not fit, bounds that are none."""

import shutil
import struct
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from safetensors.numpy import load, save

import spo
from hostile import Case, find_failures, needs_proc
from poisons import describe, make_crowded_header, make_entry, make_header, write
from spo.models.normalization import ObservationNormalizer
from spo.models.policy import Policy, PolicySpec
from spo.models.policy_files import load_policy, save_policy

pytestmark = needs_proc


def make_tensor_files(good: bytes) -> dict[str, bytes]:
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
        "a negative shape": make_header(a=make_entry([-4], [0, 16])),
        "a shape of 2⁶³": make_header(a=make_entry([2**63], [0, 16])),
        "a shape of 2⁶⁴": make_header(a=make_entry([2**64], [0, 16])),
        "a shape of 2³² × 2³²": make_header(a=make_entry([2**32, 2**32], [0, 64])),
        "offsets behind the end": make_header(a=make_entry([32], [0, 128])),
        "offsets of 2⁶³": make_header(a=make_entry([16], [2**63, 2**63 + 64])),
        "offsets that overlap": make_header(a=make_entry([16], [0, 64]), b=make_entry([16], [0, 64])),
        "offsets with a hole": make_header(a=make_entry([4], [0, 16]), b=make_entry([8], [32, 64])),
        "offsets in reverse": make_header(a=make_entry([16], [64, 0])),
        "an unknown type": make_header(a=make_entry([16], [0, 64], "OBJECT")),
        "a module as type": make_header(a=make_entry([16], [0, 64], "poisoned:f")),
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


def is_told(case: Case, opener: str, answer: str) -> bool:
    """Of a file whose checksum is right."""
    return opener != "load" or (answer.startswith("REFUSED the policy in") and "checksum" not in answer)


def test_tensors_of_policies(run, tmp_path, marker):
    good = (run / "policy" / "policy.safetensors").read_bytes()
    cases = [
        Case(name, write("policy/policy.safetensors", content)) for name, content in make_tensor_files(good).items()
    ]
    assert find_failures(run, tmp_path / "copy", cases, ("load", "doctor", "evaluate"), is_told) == {}


def test_a_header_is_small_even_where_the_file_may_be_large(run, tmp_path):
    shutil.copytree(run, tmp_path / "copy")
    describe(hidden=[1024, 1024])(tmp_path / "copy")
    write("policy/policy.safetensors", make_crowded_header())(tmp_path / "copy")
    with pytest.raises(spo.SpoError, match="its header has 3,.* bytes; accepted are up to 1,048,576"):
        load_policy(tmp_path / "copy")


def save_continuous_policy(directory: Path) -> None:
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
    save_continuous_policy(tmp_path / "policy")
    assert load_policy(tmp_path).spec.action_space == gym.spaces.Box(-2, 2, (2,), np.float32)
    tensors = load((tmp_path / "policy" / "policy.safetensors").read_bytes())
    bounds = {"action.low": np.array(low, np.float32), "action.high": np.array(high, np.float32)}
    write("policy/policy.safetensors", save(tensors | bounds))(tmp_path)
    with pytest.raises(spo.SpoError, match="the policy in .* is damaged"):
        load_policy(tmp_path)
