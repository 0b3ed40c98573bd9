"""Records of runs, config.json, with a seal that is right: they import no module, and no setting is obeyed blindly."""

import shutil
import sys
from pathlib import Path

import pytest

import spo
from hostile import BRIEF, Case, find_failures, needs_proc
from poisons import STEER, record
from spo.cli.training import parse_train
from spo.runs import checkpoint
from spo.runtime import files

pytestmark = needs_proc


def drop_setting(name: str):
    def poison(run: Path) -> None:
        record = files.verify_checksum((run / "config.json").read_bytes())
        del record["settings"][name]
        (run / "config.json").write_bytes(checkpoint.canonical_json(files.add_checksum(record)))
        shutil.rmtree(run / "checkpoints")

    return poison


def replace_record(record: object):
    def poison(run: Path) -> None:
        (run / "config.json").write_bytes(checkpoint.canonical_json(record))
        shutil.rmtree(run / "checkpoints")

    return poison


RECORDS = [
    Case("a module as env", record(env="poisoned:X-v0"), "repeat"),
    Case("a module as objective", record(objective="poisoned:f"), "repeat --objective poisoned:f"),
    Case("os.system as objective", record(objective="os:system"), "repeat --objective os:system"),
    Case("a module as argument", record(env="GymV26Environment-v0", env_arg={"env_id": "poisoned:X"}), "repeat"),
    Case("a module deep in an argument", record(env_arg={"make": [{"id": "poisoned:X"}]}), "repeat"),
    Case("a table as argument", record(env_arg={"a": {"b": 1}}), "unexpected keyword argument 'a'"),
    Case("an env that is a number", record(env=5), "--env 5"),
    Case("no env", record(env=None), "--env None"),
    Case("an unknown env", record(env="Nope-v9"), "environment 'Nope-v9'"),
    Case("an env that steers the terminal", record(env=STEER), "\\x1b"),
    Case("half a surrogate as env", record(env="\ud800"), "\\ud800"),
    Case("an argument of ours", record(env_arg={"disable_env_checker": True}), "cannot be made: TypeError"),
    Case("another argument of ours", record(env_arg={"make": 1}), "cannot be made: TypeError"),
    Case("arguments that are a list", record(env_arg=[1]), "--env-arg"),
    Case("layers of 10⁶", record(hidden=[10**6] * 3), "parameters is not accepted"),
    Case("layers of 10⁹", record(hidden=[10**9]), "--hidden 1000000000"),
    Case("10⁵ layers", record(hidden=[1] * 10**5), "--hidden 1 1"),
    Case("10⁹ environments", record(envs=10**9), "--envs 1000000000"),
    Case("a batch of 2³⁶", record(envs=2**16, horizon=2**20), "--horizon 1048576"),
    Case("a rate of 10⁴⁰⁰", record(learning_rate=10**400), "--learning-rate 1000"),
    Case("a rate of 1e300", record(learning_rate=1e300), "--learning-rate 1e+300"),
    Case("a timeout of 1e30", record(env_timeout=1e30), "--env-timeout 1e+30"),
    Case("a limit of 10³⁰", record(replay_limit=10**30), "--replay-limit 1000"),
    Case("a device without numbers", record(device="meta"), "--device meta cannot be used"),
    Case("a device that is none", record(device="poisoned:0"), "--device poisoned:0 cannot be used"),
    Case("an unknown setting", record(wings=2), "setting 'wings' is unknown"),
    Case("a missing setting", drop_setting("hidden"), "setting 'hidden' is missing"),
    Case("no settings", record("settings"), "its settings are missing"),
    Case("no choices", record("resolved"), "its resolved are missing"),
    Case("no versions", record("versions"), "its versions are missing"),
    Case("no machine", record("machine"), "its machine are missing"),
    Case("threads that are text", record("resolved", threads="all"), "its threads is 'all'"),
    Case("no backend", record("resolved", backend=None), "its backend is None"),
    Case("an unknown backend", record("resolved", backend="poisoned:f"), "--backend 'poisoned:f'"),
    Case("an update that is a list", record("resolved", update=[]), "its update is []"),
    Case("a version that steers the terminal", record("versions", torch=STEER), "\\x1b"),
    Case("a list", replace_record([1]), "its own checksum"),
    Case("an empty table", replace_record(files.add_checksum({})), "its settings are missing"),
    Case("a table of lists", replace_record(files.add_checksum({"settings": [1]})), "its settings are missing"),
    Case("no seal", replace_record({"settings": {"env": "CartPole-v1"}}), "its own checksum"),
]  # fmt: skip


def test_sealed_configs(run, tmp_path, marker):
    def is_told(case: Case, opener: str, answer: str) -> bool:
        return opener != "resume" or case.expected in answer

    openers = ("doctor", "evaluate", "config", "resume")
    assert find_failures(run, tmp_path / "copy", RECORDS, openers, is_told) == {}


def test_a_module_is_imported_once_the_user_repeats_it(run, tmp_path, monkeypatch):
    """The counterpart: with the same files, the user's word is enough."""
    (tmp_path / "friendly.py").write_text("def f(ratio, advantage):\n    return ratio * advantage\n")
    monkeypatch.syspath_prepend(tmp_path)
    shutil.copytree(run, tmp_path / "copy")
    record(objective="friendly:f")(tmp_path / "copy")
    file = ["--config", str(tmp_path / "copy" / "config.json")]
    with pytest.raises(spo.SpoError, match="names a module: repeat --objective friendly:f to import it"):
        parse_train(["CartPole-v1", *file])
    assert "friendly" not in sys.modules
    assert parse_train(["CartPole-v1", *file, "--objective", "spo"]).objective == "spo"
    assert parse_train(["CartPole-v1", *file, "--objective", "friendly:f"]).resolved_objective
    assert spo.resume(tmp_path / "copy", objective="friendly:f", quiet=True).summary["env_steps"] == BRIEF["steps"]
