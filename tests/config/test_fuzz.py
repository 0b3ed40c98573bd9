"""Thousands of command lines and settings that nobody should write: each is obeyed or refused in one sentence."""

import contextlib
import importlib
import io
import json
import math
import random
import shutil
import signal
import sys
import traceback
import types
import typing
from pathlib import Path

import pytest
from matplotlib.transforms import Bbox

import spo
from crash import SHORT
from spo import cli
from spo.cli.training import parse_train
from spo.config.fields import parse_key_values
from spo.config.sources import make_config
from spo.config.validation import FIELDS, HINTS, RANGES, flag
from spo.errors import SpoError, printable
from waiting import PATIENCE

SEED = 20261117
ENVS = ("CartPole-v1", "Pendulum-v1", "Hopper-v4", "Breakout", "MountainCar-v0")

GOOD = {
    "--objective": ["spo", "ppo-clip", "ppo-penalty", "trpo", "spo-adaptive"], "--seed": ["0", "7", "2147483647"],
    "--steps": ["1M", "200k", "1e6", "50_000"], "--envs": ["1", "8", "64"], "--horizon": ["128", "2048"],
    "--epochs": ["1", "10"], "--minibatches": ["1", "4", "32"], "--learning-rate": ["3e-4", "1"],
    "--lr-schedule": ["linear", "constant", "adaptive-kl"], "--gamma": ["0", "0.99", "1"], "--lam": ["0.95"],
    "--epsilon": ["0.1", "0.9"], "--value-clip": ["off", "0.2"], "--kl-target": ["off", "0.01"], "--delta": ["0.01"],
    "--hidden": ["64", "256"], "--critic-hidden": ["8"], "--activation": ["tanh", "relu"], "--encoder": ["auto", "mlp"],
    "--backend": ["auto", "gymnasium"], "--env-arg": ["render_mode=rgb_array", "gravity=9.8", "a=(1,"],
    "--objective-arg": ["epsilon=0.1", "width=2"], "--threads": ["1"], "--out": ["out", "deep/er/out"],
    "--preset": ["mujoco", "atari", "classic"], "--normalize-observation": ["shared", "per-env", "off"],
    "--device": ["cpu"], "--eval-every": ["0", "5"], "--env-timeout": ["60"], "--target-kl": ["0.02"],
    "--paper": [], "--no-paper": [], "--quiet": [], "--tensorboard": [],
}  # fmt: skip
"""Flags of `spo train` with values that may do."""
NUMBERS = [
    "", " ", "nan", "inf", "-inf", "1e999", "1e300", "1e-400", "-1", "0", "-0.0", "1.5", "9" * 12, "9" * 40,
    "9" * 400, "9" * 5000, "1_0", "0x10", "１２", "½", "1e", "k", "-k", "1e400k", "true", "None", "[1, 2]", "1j",
    "off", "1,5", "+1",
]  # fmt: skip
PAIRS = [
    "a", "a=", "=1", "a==1", "a b=1", "a={1}", "a={[]: 1}", "a=1e999", "a=[[[[", "a=" + "(" * 5000, "a=1j",
    "a=b'c'", "a=...", "a=nan", "epsilon=nan", "epsilon=1e999", "epsilon=-1", "epsilon=True", "epsilon=[1]",
    "disable_env_checker=1", "make=2", "name=3", "id=4", "env=5", "full_games=1", "self=1", "render_mode=7",
    "max_episode_steps=-5", "é=1", "a=" + "9" * 5000,
]  # fmt: skip
NAMES = [
    "", " ", "nowhere", "file", "file/x", "a/b/c", "~", "*", "x" * 10_000, "run/config.json", "a\nb", "\t",
    "\x1b]0;pwned\x07", "\udcff", "é", "日本語", "🦊", "\ufeff", "a:b", "os:system", ".:x", ":", "a:", "math:pi",
    "json:loads", "types:SimpleNamespace", "%s%n", "$(true)", "@file", "null", "meta", "cuda:99", "cpu:-1",
    "MUJOCO", "spo ", "../../etc/passwd", "con\x00trol",
]  # fmt: skip
JUNK = [
    *NUMBERS,
    *PAIRS,
    *NAMES,
    "'",
    '"',
    "\\",
    "-",
    "--",
    "---",
    "--=",
    "=",
    "--wings",
    "--wings=2",
    "--gamma",
    "-x",
    "{}",
]
FITTING = {"--env-arg": PAIRS, "--objective-arg": PAIRS} | {
    flag: NAMES for flag in "--out --config --preset --objective --objectives --device --video --env".split()
}
"""What goes wrong with a flag in particular; numbers otherwise."""
OWN = {
    "train": [*GOOD, "--config", "--init-from", "--replay-limit", "--keep", "--adam-eps"],
    "resume": ["--steps", "--env", "--objective"],
    "eval": ["--episodes", "--seed", "--video", "--env"],
    "compare": ["--objectives", "--seeds", "--out", "--objective", "--seed", "--config", "--envs"],
    "figures": ["--out", "--runs", "--iteration", "--sweep"],
    "bench": ["--scale", "--steps", "--seeds", "--tasks", "--variants", "--out", "--jobs", "--executor"],
    "report": ["--out", "-o"],
    "pack": ["--out"],
    "theory": ["--mdps", "--states", "--actions", "--seed", "--out"],
}
"""The flags of each command."""


class Reached(Exception):
    """A command line that was accepted in full: from here on work would begin."""


class Hang(BaseException):
    pass


def reach(*_, **__):
    raise Reached


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "run"
    spo.train("CartPole-v1", **SHORT | {"steps": 32}, out=str(out))
    return out


@pytest.fixture
def shell(tmp_path, monkeypatch, finished):
    """A directory with a run, in which commands are understood and nothing is carried out."""
    deep = tmp_path / "so" / "deep" / "that" / "nothing" / "climbs out"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    shutil.copytree(finished, "run")
    Path("file").write_text("no directory")
    monkeypatch.setattr("spo.runs.start.carry_out", lambda config, make_env: make_env().close())
    monkeypatch.setattr("spo.runs.resume.Trainer", reach)
    monkeypatch.setattr("spo.runs.evaluate.evaluate_policy", lambda policy, make_env, *_: (make_env().close(), reach()))
    monkeypatch.setattr("spo.experiments.run_sweep.run_here", reach)
    monkeypatch.setattr(
        "spo.experiments.figure_data.objective_curves.objective_curves",
        lambda: types.SimpleNamespace(curves={"spo": {}}),
    )
    monkeypatch.setattr("spo.experiments.figures.objectives.draw_objectives", lambda *_: Drawing())
    monkeypatch.setattr("spo.theory.command.all_findings", reach)
    importlib.import_module("spo.experiments.report.page")  # which draws with the true one, whoever imports it first
    monkeypatch.setattr(
        "spo.experiments.figures.style.pyplot", lambda: types.SimpleNamespace(close=lambda figure: None)
    )
    return deep


class Drawing:
    def set_dpi(self, _: float) -> None:
        pass

    def get_tightbbox(self) -> Bbox:
        return Bbox.unit()

    def savefig(self, path: Path, **_) -> None:
        path.write_text("a figure")


def answer(function, *arguments, **keywords) -> str | None:
    """The refusal's sentence, None if there was none; whatever else a user could meet fails with its traceback."""
    signal.signal(signal.SIGALRM, _hang)
    signal.alarm(int(PATIENCE))
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            function(*arguments, **keywords)
    except SpoError as refusal:
        return str(refusal)
    except Reached:
        return None
    except SystemExit as ending:
        assert ending.code in (None, 0, 1), ending.code
    finally:
        signal.alarm(0)
    return None


def _hang(*_) -> None:
    raise Hang


def is_sentence(message: str) -> bool:
    return message == printable(message) and len(message) < 2100 and message.strip() != ""


def valid(draw: random.Random) -> list[str]:
    """A command line without malice."""
    run = draw.choice(["run", "run", "run", "nowhere", "file", "."])
    env = draw.choice(ENVS)
    command = draw.choice(["train"] * 6 + ["eval"] + list(cli.COMMANDS))
    own = {
        "train": flags(draw, draw.randint(0, 5)),
        "resume": [["--steps", "1M"], ["--env", "CartPole-v1"], ["--objective", "spo"], ["--quiet"]],
        "eval": [
            ["--episodes", "2"],
            ["--seed", "3"],
            ["--stochastic"],
            ["--env", "CartPole-v1"],
            ["--video", "a.mp4"],
        ],
        "compare": [["--objectives", "spo", "ppo-clip"], ["--seeds", "2"], ["--out", "new"], *flags(draw, 1)],
        "figures": [["--out", "drawn"]],
        "bench": [["--scale", "0.1"], ["--seeds", "2"], ["--tasks", "CartPole-v1"], ["--jobs", "3"], ["--dry-run"]],
        "report": [["--out", "page.html"]],
        "pack": [["--out", "packed"]],
        "theory": [["--mdps", "2"], ["--states", "3"], ["--seed", "5"]],
    }
    suites = ["smoke", "table1", "fig4", "atari35"]
    first = {"figures": ["objectives"], "train": [env], "compare": [env], "bench": [draw.choice(suites)]}
    first = [] if command in ("objectives", "theory") else first.get(command, [run])
    chosen = [part for part in own.get(command, []) if draw.random() < 0.7]
    return [command, *first, *(text for part in chosen for text in part)]


def flags(draw: random.Random, count: int) -> list[list[str]]:
    return [[name, *draw.sample(GOOD[name], min(1, len(GOOD[name])))] for name in draw.sample(list(GOOD), count)]


def mutated(draw: random.Random, line: list[str]) -> list[str]:
    """With one thing wrong: most often a value, else something dropped, doubled, swapped, added, glued or cut."""
    line = list(line)
    position, other = (draw.randrange(draw.random() > 0.1 and len(line) > 1, len(line)) for _ in range(2))
    kind = draw.choice(
        ["value"] * 8 + ["first"] * 2 + ["drop", "double", "swap", "insert", "glue", "flag", "case", "cut"]
    )
    if kind == "value":
        name = draw.choice(OWN.get(line[0], ["--wings"]))
        line += [name, draw.choice(FITTING.get(name, NUMBERS if draw.random() < 0.8 else JUNK))]
    elif kind == "first":
        line[1:2] = [draw.choice(NAMES)]
    elif kind == "drop":
        del line[position]
    elif kind == "double":
        line.insert(other, line[position])
    elif kind == "swap":
        line[position], line[other] = line[other], line[position]
    elif kind == "insert":
        line.insert(position + 1, draw.choice(JUNK))
    elif kind == "glue":
        line[position : position + 2] = ["=".join(line[position : position + 2])]
    elif kind == "flag":
        line.insert(position + 1, draw.choice(list(GOOD)))
    elif kind == "case":
        line[position] = draw.choice([line[position].upper(), line[position].replace("-", "_"), line[position][:-1]])
    elif kind == "cut":
        line = line[: position + 1]
    return line or [""]


def test_command_lines(shell, amount, capsys):
    draw, refused, count = random.Random(SEED), 0, amount(80, 3000)
    for number in range(count):
        line = valid(draw)
        for _ in range(draw.choice([0, 1, 1, 1, 2, 4])):
            line = mutated(draw, line)
        try:
            message = answer(cli.dispatch, line)
        except BaseException:
            pytest.fail(f"seed {SEED}, line {number}: {[text[:60] for text in line]}\n{traceback.format_exc()}")
        if message is not None:
            assert is_sentence(message), f"seed {SEED}, line {number}: {line}: {message!r}"
        refused += message is not None
        shutil.rmtree("out", ignore_errors=True)
    assert count * 0.4 < refused < count * 0.95  # neither deaf nor mute
    with capsys.disabled():
        print(f"\n{count} command lines, {refused} refused, seed {SEED}")


# ---- values that are known to be wrong: the sentence names the flag, the value, and what is accepted


COUNTS = ["0", "-3", "1.5", "many", "99999999999", "nan", ""]
POSITIVE = ["0", "-1", "nan", "inf", "-inf", "1e39", "wide", ""]
CHOICES = ["cosine", "", "OFF"]
BAD = {
    **dict.fromkeys(("envs", "horizon", "epochs", "minibatches", "keep", "replay_limit"), COUNTS),
    **dict.fromkeys(("threads", "rebuild_every", "cg_steps", "backtrack_steps"), COUNTS),
    **dict.fromkeys(("checkpoint_every", "eval_every", "seed", "watch_ratios"), ["-1", "1.5", "many", "99999999999"]),
    **dict.fromkeys(("learning_rate", "adam_eps", "max_grad_norm", "lr_kl_target", "target_kl", "beta"), POSITIVE),
    **dict.fromkeys(("temperature", "state_delta", "delta", "deviation_limit", "deviation_target"), POSITIVE),
    "epsilon_high": POSITIVE,
    **dict.fromkeys(("kl_target", "value_clip"), [*POSITIVE, "OFF", "none"]),
    **dict.fromkeys(("gamma", "lam", "epsilon_gain"), ["-0.1", "1.5", "nan", "inf", "wide", ""]),
    **dict.fromkeys(("epsilon", "epsilon_next", "backtrack"), ["0", "1", "-0.1", "nan", "wide", ""]),
    **dict.fromkeys(("epsilon_min", "epsilon_max"), ["0", "1", "-0.1", "nan", "wide", ""]),
    **dict.fromkeys(("reflection", "alpha", "damping", "value_coef", "entropy_coef"), ["-1", "nan", "1e39", "wide"]),
    **dict.fromkeys(("lr_schedule", "normalize_advantage", "truncation", "activation", "encoder"), CHOICES),
    "epsilon_schedule": CHOICES,
    "stop_at": ["nan", "inf", "1e39", "high", ""],
    **dict.fromkeys(("distribution", "action_scale", "on_env_error"), CHOICES),
    "wrapper": ["FrameStack", "stack_size=4", ""],
    **dict.fromkeys(("normalize_observation", "normalize_reward", "clip_reward", "backend", "compile"), CHOICES),
    **dict.fromkeys(("hidden", "critic_hidden"), ["0", "-1", "1.5", "x", "99999999", ""]),
    "record_ratios": ["0", "-1", "1.5", "many", "99999999999"],
    "track": ["paper", "1", "WANDB"],
    **dict.fromkeys(("dual_clip", "power"), ["1", "0.5", "nan", "wide"]),
    "atari_wrappers": CHOICES,
    "env_timeout": ["0", "-1", "nan", "inf", "1e7", "soon"],
    "schedule_steps": ["0", "-5", "1", "lots", "nan", "1e30", ""],
    "steps": ["0", "-5", "lots", "nan", "inf", "1e30", "k", ""],
    "preset": ["gold", "", "MUJOCO", "../mujoco"],
    "objective": ["pp0", "", "SPO", "nowhere:f", "math:pi", "json:loads", ":", "a:b:c"],
    "config": ["missing.toml", "", ".", "file", "missing.json"],
    "objective_arg": ["epsilon", "epsilon=wide", "epsilon=1e999", "epsilon=-1", "wings=2", "=1"],
    "env_arg": ["gravity", "=1", "a b=1"],
}  # fmt: skip
"""Every setting that can be wrong on its own, as it is written on a command line."""
FREE = {"env", "device", "out", "init_from"}
"""Settings whose fault shows only when they are used."""
FLAGS = {"paper", "tensorboard", "quiet", "profile", "verbose", "overwrite", "keep_best"}
ACCEPTED = ("must be", "accepted", "a number", "whole number", "Expected", "cannot be", "its settings", "can ask")


def names(message: str, value: str) -> bool:
    """Whether a sentence shows the value as it was written, or as the number that it is."""
    key, _, value = value.rpartition("=")
    shown = {value}
    with contextlib.suppress(ValueError):
        shown.add(repr(float(value)))
    with contextlib.suppress(ValueError, OverflowError):
        shown.add(repr(int(float(value))))
    return key in message and any(text in message for text in shown)


def test_a_wrong_flag_is_named_with_its_value(shell, amount):
    pairs = [(name, value) for name, values in BAD.items() for value in values]
    for name, value in random.Random(SEED).sample(pairs, amount(70, len(pairs))):
        message = answer(cli.dispatch, ["train", "CartPole-v1", flag(name), value])
        assert message and is_sentence(message), (name, value, message)
        assert flag(name) in message and names(message, value), (name, value, message)
        assert any(words in message for words in ACCEPTED), (name, value, message)


def test_every_setting_is_either_wrong_or_free():
    assert BAD.keys() | FREE | FLAGS == FIELDS.keys()
    numbers = {name for name, hint in HINTS.items() if {int, float} & {hint, *typing.get_args(hint)}}
    assert numbers == RANGES.keys() - {"encoder", "wrapper"}  # whose ranges are of text


WRONG = [
    (None, "None"), ([], "()"), ({}, "{}"), ({"a": 1}, "{'a': 1}"), (True, "True"), (-1, "-1"), (-0.5, "-0.5"),
    (-(2**40), "-1099511627776"), (10**400, "1000"), (10**5000, "digits"), (math.nan, "nan"), (math.inf, "inf"),
    ("", "''"), ("poisoned:f", "poisoned:f"), ("x" * 10**5, "xxx"), ("\x1b]0;pwned", "x1b"), ("\udcff", "udcff"),
    ([1, "a"], "(1, 'a')"), ([[8]], "([8],)"), (1j, "1j"), (object, "object"), ({1: 2}, "{1: 2}"),
    ({"a": {1, 2}}, "{'a': {1, 2}}"), ({"a": math.nan}, "nan"), (b"bytes", "b'bytes'"),
]  # fmt: skip
"""Values of types that no command line has, and how a sentence shows them."""


def test_settings_of_programs(shell, amount):
    """`make_config` with up to four settings, wrong or not: a Config, or a sentence that names one of them."""
    draw = random.Random(SEED)
    for number in range(amount(1000, 10_000)):
        chosen = draw.sample(sorted(FIELDS.keys() - {"env"}), draw.randint(1, 4))
        settings = {name: draw.choice(WRONG)[0] for name in chosen}
        try:
            message = answer(make_config, draw.choice(ENVS), **settings)
        except BaseException:
            pytest.fail(f"seed {SEED}, {number}: {chosen}\n{traceback.format_exc()}")
        if message is not None:
            known = [text for name in chosen for text in (flag(name), *chosen)]
            assert is_sentence(message) and any(text in message for text in known), (number, settings, message)


def is_typed_right(name: str, value: object) -> bool:
    """Whether a value of WRONG is right for this setting after all, or can only be wrong when it is used."""
    texts = {"objective", "preset", "config"} | FREE
    if name in FLAGS:
        return value is True
    if name in ("objective_arg", "env_arg"):
        return value in ({}, {"a": 1})  # any name may belong to an environment; one of an objective is shown apart
    if value is None:
        return name == "preset" or FIELDS[name].default is None
    if name in texts:
        return isinstance(value, str) and name in FREE
    if name in ("hidden", "critic_hidden", "record_ratios", "track", "wrapper"):
        return value == []
    if name == "stop_at":
        return value in (-1, -0.5, -(2**40)) and value is not True
    if name == "encoder":
        return value == "poisoned:f"  # which is imported when a network is made
    return name in ("steps", "schedule_steps") and value == -0.5  # which is rounded first


def test_a_wrong_setting_is_named_with_its_value(shell):
    for name in sorted(FIELDS.keys() - {"env"}):
        for value, shown in WRONG:
            if not is_typed_right(name, value):
                message = answer(make_config, "CartPole-v1", **{name: value})
                assert message and is_sentence(message), (name, shown, message)
                assert flag(name) in message and shown.strip("'") in message, (name, shown, message)


# ---- configuration files


def written(draw: random.Random, settings: dict) -> Path:
    """The settings as a file: JSON, a run's JSON, or TOML."""
    kind = draw.choice(["json", "run", "toml"])
    path = Path("mine.toml" if kind == "toml" else "mine.json")
    if kind == "toml":
        path.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in settings.items()), errors="replace")
    else:
        path.write_text(json.dumps({"settings": settings} if kind == "run" else settings, default=str, skipkeys=True))
    return path


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(name))} = {_toml(inner)}" for name, inner in value.items()) + "}"
    return str(value) if isinstance(value, float) else json.dumps(value, default=str, skipkeys=True)


def test_configuration_files(shell, amount):
    """Good settings, wrong ones, unknown names, and bytes out of place."""
    draw, writable = random.Random(SEED), [value for value, _ in WRONG if value is not None and value != 10**5000]
    for number in range(amount(400, 4000)):
        chosen = draw.sample([*FIELDS, "wings", "settings", "__class__", "é", ""], draw.randint(0, 4))
        path = written(draw, {name: draw.choice([*writable, "spo", 8, 0.5]) for name in chosen})
        content = bytearray(path.read_bytes())
        for _ in range(draw.choice([0, 0, 1, 3])):
            content[draw.randrange(len(content) + 1) :][:1] = draw.randbytes(1)
            content.insert(draw.randrange(len(content) + 1), draw.randrange(256))
        path.write_bytes(content)
        try:
            message = answer(make_config, "CartPole-v1", config=str(path))
        except BaseException:
            pytest.fail(f"seed {SEED}, {number}: {bytes(content)[:300]!r}\n{traceback.format_exc()}")
        assert message is None or is_sentence(message), (number, content, message)


@pytest.mark.parametrize("kind", ["toml", "json"])
def test_a_wrong_setting_in_a_file_is_named(kind, shell):
    for name in sorted(BAD.keys() - {"config"}):
        for value in BAD[name]:
            text = f"{name} = {json.dumps(value)}" if kind == "toml" else json.dumps({name: value})
            Path(f"mine.{kind}").write_text(text)
            message = answer(make_config, "CartPole-v1", config=f"mine.{kind}")
            assert message and is_sentence(message), (name, value, message)
            assert flag(name) in message and names(message, value), (name, value, message)


# ---- single promises


def test_exit_codes(shell, monkeypatch, capsys):
    cases = {
        ("--version",): 0, ("--help",): 0, ("train", "--help"): 0, ("objectives",): 0, ("doctor", "run"): 0,
        ("fly",): 2, ("train", "CartPole-v1", "--gamma", "2"): 2, ("train", "CartPole-v1", "--gamma"): 2, ("eval",): 2,
        ("doctor", "nowhere"): 2, ("doctor", "."): 1, ("resume", "file"): 2, ("compare", "X-v0", "--seeds", "0"): 2,
    }  # fmt: skip
    for arguments, code in cases.items():
        monkeypatch.setattr(sys, "argv", ["spo", *arguments])
        try:
            cli.main()
            ended = 0
        except SystemExit as ending:
            ended = ending.code or 0
        error = capsys.readouterr().err
        assert ended == code, (arguments, ended, error)
        assert (error.startswith("error: ") and error.count("\n") == 1) == (code == 2), (arguments, error)


@pytest.mark.parametrize(
    "encoding, is_terminal", [("utf-8", True), ("ascii", False), ("ascii", True), ("utf-8", False)]
)
def test_the_sentence_is_plain_on_any_terminal(encoding, is_terminal, monkeypatch, shell):
    """tyro draws a box for what standard output is, in colours on a terminal; only its sentence may remain."""
    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    screen.isatty = lambda: is_terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", screen)
    with pytest.raises(SpoError) as refused:
        cli.dispatch(["train", "CartPole-v1", "--epsilon", "wide"])
    assert str(refused.value) == "Error parsing --epsilon: 'wide' is not a number (see spo train --help)"
    with pytest.raises(SpoError, match="^Unrecognized options: --wings, 2 .see spo train --help.$"):
        cli.dispatch(["train", "CartPole-v1", "--wings", "2"])


def test_sentences_cannot_steer_a_terminal_or_fill_it():
    assert str(SpoError("a\nb\tc \x1b[31m\x07 \udcff é 日本")) == "a b c \\x1b[31m\\x07 \\udcff é 日本"
    long = str(SpoError("start " + "x" * 10**6 + " end"))
    assert len(str(SpoError("\x1b" * 10**6))) < 2100
    assert len(long) < 2100 and long.startswith("start x") and long.endswith("x end") and " … " in long


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--seeds", "0"), "--seeds 0 is not accepted: it must be a whole number from 1 to 10000"),
        (("--seeds", "9" * 40), "is not accepted: it must be a whole number from 1 to 10000"),
        (("--objectives",), "--objectives  is not accepted: it must be one or more, each once"),
        (("--objectives", "spo", "spo"), "--objectives spo spo is not accepted"),
        (("--objective", "trpo"), "--objective is not accepted here: --objectives names those to compare"),
        (("--seed=3",), "--seed=3 is not accepted here"),
        (("--out", "file"), "--out file cannot be written to: Not a directory"),
        (("--out", "run"), "--out run is not empty and holds no plan.json; name a new directory"),
        (("--out", "x" * 999), "cannot be written to: File name too long"),
    ],
)
def test_comparisons_that_cannot_be(arguments, words, shell):
    assert words in answer(cli.dispatch, ["compare", "CartPole-v1", *arguments])


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("figures", "objectives", "--out", "file"), "--out file cannot be written to: File exists"),
        (("figures", "objectives", "--out", "file/x"), "--out file/x cannot be written to: Not a directory"),
        (("doctor", "x" * 9999), "is not a directory; accepted is the directory of a run"),
        (("resume", "x" * 9999), "is not a run directory"),
        (("eval", "run", "--seed", "-1"), "--seed -1 is not accepted: it must be a whole number from 0"),
        (("eval", "run", "--env", ""), "environment '' is not a registered"),
        (("train", "CartPole-v1", "--env-arg", "disable_env_checker=1"), "'CartPole-v1' cannot be made: TypeError"),
        (("train", "CartPole-v1", "--env-arg", "make=1"), "'CartPole-v1' cannot be made: TypeError"),
        (("train", "CartPole-v1", "--env-arg", "a={1}"), "--env-arg {'a': {1}} is not accepted: it must be names with"),
        (("train", "CartPole-v1", "--hidden", *["1"] * 1001), "it must be up to 1000 whole numbers from 1 to 1048576"),
        (("train", "CartPole-v1", "--envs", "65536", "--horizon", "1048576"), "it must have up to 67,108,864"),
        (
            ("train", "CartPole-v1", "--objective-arg", "epsilon=5"),
            "--objective-arg epsilon=5 is not accepted",
        ),
    ],
)
def test_lines_that_once_broke(arguments, words, shell):
    message = answer(cli.dispatch, list(arguments))
    assert message and words in message, message


def test_what_is_no_literal_is_text():
    texts = ["{[]: 1}", "(" * 5000, "9" * 5000, "os.system('true')", "1+", "\x00"]
    for text in texts:
        assert parse_key_values([f"a={text}"]) == {"a": text}


def test_a_name_that_is_too_long_holds_no_policy():
    with pytest.raises(SpoError, match="holds no policy: there is no policy.json in it"):
        spo.load("x" * 9999)


def test_the_last_of_a_doubled_flag_decides(shell):
    """Also for the flags that decide the defaults of all others."""
    config = parse_train(["CartPole-v1", "--preset", "atari", "--preset", "classic"])
    assert config.preset == "classic" and config.horizon == 128 and config.clip_reward == "off"


@pytest.mark.parametrize("device", ["meta", "cuda:99", "abacus", ""])
def test_devices_that_cannot_be_had(device, tmp_path):
    with pytest.raises(SpoError, match=f"--device {device} cannot be used here"):
        spo.train("CartPole-v1", **SHORT, device=device, out=str(tmp_path / "run"))


def test_a_network_that_would_not_fit(tmp_path):
    with pytest.raises(SpoError, match="a network of 2,.* parameters is not accepted: it must have up to 134,217,728"):
        spo.train("CartPole-v1", **SHORT | {"hidden": (2**20, 2**10, 2**20)}, out=str(tmp_path / "run"))
