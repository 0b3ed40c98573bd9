"""Texts in place of every file of a run, in its rows and in its status: none is believed, none steers the terminal."""

import json
import pickle
from pathlib import Path

import pytest

from hostile import ALL, Case, find_failures, needs_proc
from poisons import (
    CHECKPOINT,
    FILES,
    STEER,
    Payload,
    make_torch_file,
    make_zip,
    make_zip_bomb,
    record,
    reseal,
    set_value,
    write,
)

pytestmark = needs_proc


def make_texts(marker: Path) -> dict[str, bytes]:
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
        "a file of torch": make_torch_file(marker),
        "a zip": make_zip("policy.json", b"{}"),
        "a zip slip": make_zip("../../marker", b"pwned"),
        "a zip bomb": make_zip_bomb(),
        "YAML that makes an object": f"!!python/object/apply:open ['{marker}', 'w']".encode(),
    }  # fmt: skip


CAN_BE = {"status.json": {"half a surrogate", "UTF-16", "4000 digits"}, "metrics.jsonl": {"4000 digits"}}
"""Texts that are as good as the file itself."""
HEALED = ("policy/policy.json", "policy/policy.safetensors", "status.json", f"{CHECKPOINT}/config.json")
"""What a resumed run writes again, or does not need."""


@pytest.mark.parametrize("name", FILES)
def test_texts_in_place_of_every_file(run, tmp_path, marker, name):
    def is_told(case: Case, opener: str, answer: str) -> bool:
        told = answer.endswith("PROBLEM") if opener == "doctor" else answer.startswith("REFUSED")
        return told != (case.name in CAN_BE.get(name, ()))

    cases = [Case(text, write(name, content)) for text, content in make_texts(marker).items()]
    assert find_failures(run, tmp_path / "copy", cases, FILES[name], is_told) == {}


@pytest.mark.parametrize("name", FILES)
def test_a_run_with_a_text_in_place_of_a_file_is_healed_or_refused(run, tmp_path, marker, name):
    def is_told(case: Case, opener: str, answer: str) -> bool:
        refusals = "is damaged", "cannot be read", "no checkpoint of"
        return answer == "FINE" if name in HEALED else any(words in answer for words in refusals)

    texts = make_texts(marker)
    cases = [Case(text, write(name, texts[text])) for text in ("100 000 brackets", "a pickle", "null")]
    assert find_failures(run, tmp_path / "copy", cases, ("resume",), is_told) == {}


def test_texts_do_not_steer_the_terminal(run, tmp_path, marker):
    def poison(place: Path) -> None:
        set_value(["departures"], [STEER])(place)
        record(preset=STEER)(place)
        status = {"state": "failed", "reason": STEER, "exact": False, "departures": [STEER]}
        (place / "status.json").write_text(json.dumps(status))

    def is_visible(case: Case, opener: str, answer: str) -> bool:
        return ("\\x1b" if opener == "doctor" else "preset \\x1b") in answer

    assert find_failures(run, tmp_path / "copy", [Case("steering", poison)], ("doctor", "loud"), is_visible) == {}


ROWS = ["[]", "5", '"x"', "{", '{"env_steps": "many"}', '{"return": null, "env_steps": 1}', "[" * 9999, "\x00" * 99]
ROWS += ['{"wall_time": 0, "env_steps": 1, "ratio_deviation_max": 1}', '{"ratio_deviation_max": "poisoned:f"}']


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl"])
def test_rows_of_strangers(run, tmp_path, marker, name):
    """Told before the training goes on, not after its last iteration."""

    def add(text: str):
        def poison(place: Path) -> None:
            (place / name).write_text((place / name).read_text() + text + "\n")
            logs = {file: (place / file).stat().st_size for file in ("metrics.jsonl", "episodes.jsonl")}
            reseal(place / CHECKPOINT, logs=logs)

        return poison

    def is_told(case: Case, opener: str, answer: str) -> bool:
        return opener == "doctor" or ("REFUSED" in answer and ("logs of" in answer or name in answer))

    cases = [Case(text[:50], add(text)) for text in ROWS]
    assert find_failures(run, tmp_path / "copy", cases, ("doctor", "resume"), is_told) == {}
    assert (tmp_path / "copy" / name).read_text().endswith(ROWS[-1] + "\n")  # no iteration was made


STATUSES = ["[]", "{", '{"state": "running"}', '{"exact": false, "departures": 5}', '{"state": 5}']


def test_statuses_of_strangers(run, tmp_path):
    cases = [Case(text, write("status.json", text.encode())) for text in STATUSES]
    is_fine = lambda case, opener, answer: opener != "resume" or answer.endswith("FINE")  # noqa: E731
    assert find_failures(run, tmp_path / "copy", cases, ALL, is_fine) == {}
