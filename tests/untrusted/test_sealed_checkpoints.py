"""Checkpoints whose checksums are right, and whose content is not."""

import struct
from pathlib import Path

import numpy as np

from hostile import Case, find_failures, needs_proc
from poisons import CHECKPOINT, REMOVED, make_crowded_header, reseal, set_array, set_value, write, write_sparse

pytestmark = needs_proc


def edit_manifest(**changes):
    return lambda run: reseal(run / CHECKPOINT, **changes)


def write_large_header(run: Path) -> None:
    write_sparse(run / CHECKPOINT / "state.safetensors", 100_000_000, struct.pack("<Q", 99_000_000))
    reseal(run / CHECKPOINT)


GENERATOR = ("collector", "generator")
MISFIT, DAMAGED = "checkpoint 2 does not fit this run", "checkpoint 00000002 is damaged"
STATES = [
    Case("no parameters", set_array("parameters", REMOVED), MISFIT),
    Case("one parameter for all", set_array("parameters", np.zeros(1, np.float32)), MISFIT),
    Case("too many parameters", set_array("parameters", np.zeros(10**6, np.float32)), MISFIT),
    Case("parameters of doubles", set_array("parameters", np.zeros(163, np.float64)), MISFIT),
    Case("an extra array", set_array("extra", np.zeros(1)), MISFIT),
    Case("an array as iteration", set_array("iteration", np.zeros(1)), DAMAGED),
    Case("an array as departures", set_array("departures", np.zeros(1)), DAMAGED),
    Case("an array in place of a table", set_array("collector", np.zeros(1)), DAMAGED),
    Case("an array below a number", set_array("iteration/x", np.zeros(1)), DAMAGED),
    Case("an array below nothing", set_array("a/b/c", np.zeros(1)), DAMAGED),
    Case("wide observations", set_array("collector/observation", np.zeros((2, 40), np.float32)), MISFIT),
    Case("many observations", set_array("collector/envs/observation", np.zeros((9, 4), np.float32)), MISFIT),
    Case("statistics for all", set_array("collector/observation_moments/mean", np.zeros((1, 1))), MISFIT),
    Case("wild actions", set_array("collector/envs/actions", np.full((99, 2), 10**9)), "FINE"),
    Case("actions for nobody", set_array("collector/envs/actions", np.zeros((99, 0), np.int64)), MISFIT),
    Case("endless episodes", set_array("collector/envs/totals/length", np.full(2, 2**62)), "than --replay-limit"),
    Case("negative episodes", set_array("collector/envs/episode", np.full(2, -(2**62))), MISFIT),
    Case("an iteration that is text", set_value(["iteration"], "x"), MISFIT),
    Case("no iteration", set_value(["iteration"], REMOVED), MISFIT),
    Case("a wall time of null", set_value(["wall_time"], None), MISFIT),
    Case("departures that are a number", set_value(["departures"], 5), MISFIT),
    Case("another generator", set_value([*GENERATOR, "bit_generator"], "poisoned"), MISFIT),
    Case("a generator of text", set_value([*GENERATOR, "state", "state"], "x"), MISFIT),
    Case("a generator of 1000 bits", set_value([*GENERATOR, "state", "state"], 2**1000), MISFIT),
    Case("a negative generator", set_value([*GENERATOR, "state", "inc"], -1), MISFIT),
    Case("a learning rate of 10⁴⁰⁰", set_value(["improve", "epochs", "learning_rate"], 10**400), MISFIT),
    Case("feedback that is a list", set_value(["improve", "fed_back"], []), MISFIT),
    Case("no collector", set_value(["collector"], REMOVED), DAMAGED),
    Case("a name twice", write(f"{CHECKPOINT}/state.json", b'{"a": 1, "a": 1}'), DAMAGED),
    Case("fifty thousand arrays", write(f"{CHECKPOINT}/state.safetensors", make_crowded_header()), "its header has"),
    Case("a header of 99 MB", write_large_header, "its header has"),
    Case("a log elsewhere", edit_manifest(logs={"../../marker": 0}), DAMAGED),
    Case("a log that is the config", edit_manifest(logs={"config.json": 0}), DAMAGED),
    Case("a log cut to -1 bytes", edit_manifest(logs={"metrics.jsonl": -1}), DAMAGED),
    Case("a log cut to 1.5 bytes", edit_manifest(logs={"metrics.jsonl": 1.5}), DAMAGED),
    Case("a log cut to true", edit_manifest(logs={"metrics.jsonl": True}), DAMAGED),
    Case("logs that are a list", edit_manifest(logs=["metrics.jsonl"]), DAMAGED),
    Case("files elsewhere", edit_manifest(files={"/etc/passwd": {"bytes": 1, "sha256": ""}}), DAMAGED),
    Case("files that are text", edit_manifest(files="/dev/zero"), DAMAGED),
    Case("another iteration", edit_manifest(iteration=7), DAMAGED),
    Case("another format", edit_manifest(format="poisoned:f"), DAMAGED),
]  # fmt: skip


def test_sealed_checkpoints(run, tmp_path, marker):
    def is_told(case: Case, opener: str, answer: str) -> bool:
        return opener != "resume" or case.expected in answer

    assert find_failures(run, tmp_path / "copy", STATES, ("doctor", "resume"), is_told) == {}
