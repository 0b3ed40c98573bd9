"""The command line as a user meets it: one sentence, exit code 2, no traceback, nothing overwritten."""

import json
import os
import re
import subprocess
import sys

import gymnasium as gym
import pytest

from spo import cli
from spo.cli.training import parse_train
from spo.errors import SpoError
from spo.experiments.plan import suite_names
from spo.runs.console import announce
from waiting import PATIENCE


def refusal(*arguments: str) -> str:
    with pytest.raises(SpoError) as refused:
        cli.dispatch(list(arguments))
    message = str(refused.value)
    assert "\n" not in message
    return message


class Sturdier(gym.Env):
    """An environment of a user's module."""


TRAIN = ("train", "CartPole-v1")

BAD_INPUT = [
    (("fly",), "command 'fly' is unknown; accepted: train, resume"),
    (("train",), "ENV is missing"),
    (("train", "--steps", "3"), "ENV is missing"),
    (("train", "Nope-v3"), "environment 'Nope-v3' is not a registered Gymnasium id"),
    (("train", "nomodule:Nope-v3"), "environment 'nomodule:Nope-v3' cannot be made: No module named 'nomodule'"),
    ((*TRAIN, "--objective", "pp0"), "--objective pp0 is unknown; accepted: spo, ppo-clip, ppo-penalty, spu"),
    (
        (*TRAIN, "--preset", "gold"),
        "--preset gold is unknown; accepted: atari, atari-resnet, atari-resnet-fixed, classic",
    ),
    ((*TRAIN, "--wings", "2"), "Unrecognized options: --wings"),
    ((*TRAIN, "--minibatches", "7"), "--minibatches 7 does not divide the batch of 1024 samples"),
    ((*TRAIN, "--epsilon", "1"), "--epsilon 1.0 is not accepted: it must be a number above 0 and below 1"),
    ((*TRAIN, "--epsilon", "nan"), "--epsilon nan is not accepted"),
    ((*TRAIN, "--epsilon", "wide"), "--epsilon"),
    ((*TRAIN, "--threads", "0"), "--threads 0 is not accepted: it must be a whole number from 1 to"),
    ((*TRAIN, "--threads", "100000"), "--threads 100000 is not accepted"),
    ((*TRAIN, "--steps", "lots"), "--steps lots is not a number of steps; accepted are forms such as"),
    ((*TRAIN, "--steps", "inf"), "--steps inf is not a number of steps"),
    ((*TRAIN, "--steps", "100"), "--steps 100 is less than one iteration of 1024 steps"),
    ((*TRAIN, "--lr-schedule", "cosine"), "--lr-schedule"),
    ((*TRAIN, "--learning-rate", "-1"), "--learning-rate -1.0 is not accepted: it must be a number above 0"),
    ((*TRAIN, "--learning-rate", "inf"), "--learning-rate inf is not accepted"),
    ((*TRAIN, "--gamma", "1.5"), "--gamma 1.5 is not accepted: it must be a number from 0 to 1"),
    ((*TRAIN, "--hidden", "64", "0"), "--hidden 64 0 is not accepted"),
    ((*TRAIN, "--seed", "-1"), "--seed -1 is not accepted"),
    ((*TRAIN, "--value-clip", "maybe"), "--value-clip"),
    ((*TRAIN, "--device", "abacus"), "--device abacus cannot be used here"),
    ((*TRAIN, "--env-arg", "gravity"), "gravity is not accepted: --env-arg and --objective-arg take key=value"),
    ((*TRAIN, "--env-arg", "gravity=9"), "environment 'CartPole-v1' cannot be made: TypeError"),
    ((*TRAIN, "--config", "missing.toml"), "--config missing.toml cannot be read"),
    ((*TRAIN, "--init-from", "nowhere"), "nowhere holds no policy"),
    (("eval",), "RUN is missing (see spo eval --help)"),
    (("bench",), "SUITE is missing (see spo bench --help)"),
    (("tune",), "ENV is missing (see spo tune --help)"),
    (("export", "run"), "FILE is missing (see spo export --help)"),
    (("push",), "RUN is missing (see spo push --help)"),
    (("push", "run"), "NAME is missing (see spo push --help)"),
    (("eval", "nowhere"), "nowhere is not a run directory: there is nothing of that name"),
    (("compare", "CartPole-v1", "--objectives", "spo", "pp0"), "--objective pp0 is unknown"),
    (("compare", "CartPole-v1", "--wings", "2"), "Unrecognized options: --wings"),
    (("compare", "CartPole-v1", "--epsilon", "0.1", "0.2"), "--vary epsilon=0.1,0.2 compares them"),
    (("compare", "CartPole-v1", "--objectives", "spo", "--objectives", "spo"), "--objectives spo spo is not accepted"),
    (
        ("compare", "CartPole-v1", "--vary", "lam=0.9", "epsilon=0.1", "--vary", "epsilon=0.3"),
        "--vary epsilon=0.1 is not accepted: it must be the only one of its setting; --vary epsilon=0.1,0.3 has all",
    ),
    (
        ("compare", "CartPole-v1", "--vary", "epsilon=0.1,0.10", "--objectives", "spo"),
        "--vary is not accepted: epsilon 0.1 and epsilon 0.10 are the same; it must have each value once",
    ),
    (("compare", "CartPole-v1", "--threads", "2"), "--threads is not accepted here: each run has one thread"),
    (("compare", "CartPole-v1", "--threads=2"), "--threads=2 is not accepted here: each run has one thread"),
    (("compare", "CartPole-v1", "--no-quiet"), "--no-quiet is not accepted here: each run prints into an output.txt"),
    (("compare", "CartPole-v1", "--seed", "3"), "--seed is not accepted here: --seeds says how many there are"),
    (("compare", "CartPole-v1", "--objective", "spo"), "--objective is not accepted here: --objectives names those"),
    (("train", "PointMass-v0"), "is named with its module: my_module:PointMass-v0"),
    (
        ("train", f"{__name__}:Sturdy"),
        f"an id that {__name__} registers, or one of its classes: Sturdier",
    ),
    ((*TRAIN, "--hidden", "64,64"), "--hidden: '64,64' are not whole numbers with spaces between them"),
]


@pytest.mark.parametrize("arguments, words", BAD_INPUT, ids=[" ".join(case[0]) for case in BAD_INPUT])
def test_bad_input_is_told_in_a_sentence(arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in refusal(*arguments)
    assert list(tmp_path.iterdir()) == []  # nothing left behind


def test_the_process_exits_with_two_and_no_traceback():
    done = subprocess.run([sys.executable, "-m", "spo", *TRAIN, "--epsilon", "3"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "error: --epsilon 3.0 is not accepted: it must be a number above 0 and below 1\n"


def test_a_directory_that_holds_a_run_is_left_alone(tmp_path):
    out = str(tmp_path / "run")
    cli.dispatch([*TRAIN, "--preset", "classic", "--steps", "1100", "--quiet", "--out", out])
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert "already holds a run" in refusal(*TRAIN, "--preset", "classic", "--steps", "1100", "--out", out)
    assert before == {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    cli.dispatch(["eval", out, "--episodes", "2"])
    assert json.loads((tmp_path / "run/evaluation.json").read_text())["deterministic"] is True


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written to" in refusal(
        *TRAIN, "--preset", "classic", "--steps", "1100", "--out", str(tmp_path / "file/run")
    )


@pytest.mark.parametrize("flag", ["-h", "--help", "--help-all"])
def test_every_setting_is_in_the_help(flag, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.dispatch(["train", flag])
    assert ended.value.code == 0
    help_text = capsys.readouterr().out
    for flag in """objective epsilon steps seed hidden critic-hidden activation envs horizon epochs minibatches
        learning-rate lr-schedule gamma lam value-coef entropy-coef max-grad-norm value-clip adam-eps target-kl
        normalize-advantage truncation normalize-observation normalize-reward paper eval-every config init-from env-arg
        compile threads device quiet out preset tensorboard""".split():
        assert f"--{flag}" in help_text


def test_the_help_is_short_and_leads_to_the_rest(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.dispatch(["train", "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 66 and "spo train --help-all explains" in "\n".join(lines)
    assert "Discount factor" not in "\n".join(lines) and "(default: )" not in read_help(capsys)


def read_help(capsys, *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.dispatch(["train", *arguments, "--help-all"])
    assert ended.value.code == 0
    return " ".join(re.sub(r"[│╭╰─╮╯]", " ", capsys.readouterr().out).split())


@pytest.mark.parametrize("words", [["train", "--help"], ["train", "CartPole-v1", "--step", "3"]])
def test_help_and_refusals_of_training_do_not_wait_for_torch(words):
    code = f"""import sys
from spo import cli
try:
    cli.dispatch({words})
except (SystemExit, cli.SpoError):
    print("torch" in sys.modules)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_help_of_bench_names_every_suite(capsys):
    with pytest.raises(SystemExit):
        cli.dispatch(["bench", "--help"])
    printed = capsys.readouterr().out
    assert [name for name in suite_names() if not re.search(rf"\b{name}\b", printed)] == []


@pytest.mark.parametrize("words, told", [(["CartPole-v1", "--hidden"], "linear"), (["Breakout"], "nature"),
    (["CartPole-v1", "--hidden", "8", "9"], "8-9"), (["X-v0", "--hidden", "--encoder", "small"], "small"),
])  # fmt: skip
def test_a_policy_without_layers_is_linear_or_an_encoders(words, told, capsys):
    announce(parse_train(words))
    assert f"· policy {told} · seed 1" in capsys.readouterr().err


def test_the_help_tells_the_true_defaults(capsys):
    usual = read_help(capsys)
    for words in ("--steps", "(default: 10000000)", "per iteration. (default: 256)", "at the start). (default: 0.2)"):
        assert words in usual
    assert "preset mujoco" in usual and "--cg-steps" not in usual and usual.index("--seed") < usual.index("--gamma")
    classic = read_help(capsys, "CartPole-v1", "--gamma", "0.5", "--objective", "trpo")
    for words in (
        "CartPole-v1 with preset classic",
        "(default: 100000)",
        "Discount factor. (default: 0.5)",
        "--cg-steps",
    ):
        assert words in classic
    assert "--epsilon " not in classic
    assert "How images are read" in classic and "(default: nature)" in read_help(capsys, "Breakout")


@pytest.mark.parametrize(
    "words, meant",
    [
        (("train", "X-v0", "--lr", "3"), "(did you mean --learning-rate?)"),
        (("train", "X-v0", "--step", "20k"), "(did you mean --steps?)"),
        (("train", "X-v0", "--num-envs=4"), "(did you mean --envs?)"),
        (("train", "--env-id", "X-v0"), "(ENV stands by itself, without a flag before it)"),
        (("train", "--env", "X-v0"), "(ENV stands by itself, without a flag before it)"),
        (("train", "X-v0", "--clip-vloss"), "(did you mean --value-clip?)"),
        (("train", "X-v0", "--track"), "--track names no tracker: say which, as in --track wandb"),
        (("trian", "X-v0"), "(did you mean train?)"),
        (("bench", "smoke", "--dry"), "(did you mean --dry-run?)"),
        (("bench", "smoek"), "(did you mean smoke?)"),
    ],
)
def test_a_slip_is_answered_with_the_nearest_right_name(words, meant):
    assert meant in refusal(*words)


def test_the_environment_may_stand_anywhere():
    assert settings_of("--seed", "3", "Hopper-v4", "--quiet") == settings_of("Hopper-v4", "--quiet", "--seed", "3")


def test_a_list_that_is_named_again_goes_on():
    """And ends with the next flag; of what is one value, also of several numbers, the last counts."""
    from spo.cli.command import parse
    from spo.cli.experiments import BenchArguments, CompareArguments

    words = "--vary a b --seeds 2 --vary=c --objectives x --wings 3 --objectives y z --seeds 4".split()
    given, unknown = parse(CompareArguments, words, "spo compare", return_unknown_args=True)
    assert (given.vary, given.objectives) == (("a", "b", "c"), ("x", "y", "z"))
    assert (given.seeds, unknown) == (4, ["--wings", "3"])
    given = parse(BenchArguments, "--tasks A --variants v --tasks B -- smoke".split(), "spo bench")
    assert (given.suite, given.tasks, given.variants) == ("smoke", ("A", "B"), ("v",))
    words = "Hopper-v4 --env_arg a=1 --hidden 8 --env-arg b=2 a=3 --hidden 4 4 --wrapper m:A --wrapper m:B k=1".split()
    config = settings_of(*words)
    assert config.env_arg == {"a": 3, "b": 2} and config.hidden == (4, 4) and config.wrapper == ("m:A", "m:B", "k=1")


EXTRAS = {
    "atari": "train Breakout --backend gymnasium",
    "envpool": "train Hopper-v4 --backend envpool",
    "mujoco": "train Hopper-v4 --backend gymnasium",
    "report": "figures objectives",
}
BARE = """
import sys
sys.modules |= dict.fromkeys(["ale_py", "envpool", "mujoco", "matplotlib"])
from spo.cli import main
for words in sys.argv[1:]:
    sys.argv[1:] = words.split()
    try:
        main()
    except SystemExit as end:
        print(f"exit {end.code}", file=sys.stderr)
"""


def test_a_missing_extra_is_named_with_its_install(tmp_path):
    """In a process of its own, where none of their packages can be imported."""
    command = [sys.executable, "-c", BARE, *EXTRAS.values()]
    told = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE).stderr
    answers = told.split("exit 2\n")
    assert len(answers) == len(EXTRAS) + 1 and "Traceback" not in told, told
    for extra, answer in zip(EXTRAS, answers):
        assert f"pip install 'simple-policy-optimization[{extra}]'" in answer
    assert list(tmp_path.iterdir()) == []


def ask_for_ray() -> None:
    from spo.experiments.executors.ray import connect

    connect(None, 1)


def ask_for_tensorboard() -> None:
    from spo.runs.loggers import TensorBoardLogger

    TensorBoardLogger(None)


def ask_for_watch() -> None:
    cli.dispatch(["watch", "."])


def ask_for_video() -> None:
    from spo.evaluation import check_video

    check_video("film.mp4")


@pytest.mark.parametrize(
    "missing, extra, ask",
    [
        ("ray", "ray", ask_for_ray),
        ("torch.utils.tensorboard", "tensorboard", ask_for_tensorboard),
        ("spo.watch.server", "watch", ask_for_watch),
        ("imageio_ffmpeg", "video", ask_for_video),
    ],
)
def test_every_other_extra_is_named_too(missing, extra, ask, monkeypatch):
    """In this process: what asks for them imports them late."""
    monkeypatch.setattr("os.environ", dict(os.environ))
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(SpoError, match=rf"needs: pip install 'simple-policy-optimization\[{extra}\]'"):
        ask()


def settings_of(*arguments: str):
    return parse_train(list(arguments))


def test_steps_are_written_in_many_ways():
    for text, steps in {"1e6": 10**6, "1M": 10**6, "200k": 200_000, "1.5m": 1_500_000, "4096": 4096}.items():
        assert settings_of("Hopper-v4", "--steps", text).steps == steps
    assert settings_of("Hopper-v4", "--steps", "10_000").total_steps == 8192


def test_sources_of_settings_in_their_order(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('preset = "classic"\nenvs = 4\ngamma = 0.5\ntruncation = "bootstrap"\n')
    config = settings_of("Hopper-v4", "--config", str(file), "--gamma", "0.7", "--paper")
    assert (config.preset, config.horizon) == ("classic", 128)  # the preset that the file names
    assert config.envs == 4 and config.gamma == 0.7  # the file over the preset, the flag over the file
    assert config.truncation == "bootstrap" and config.normalize_reward == "per-env"  # explicit over --paper
    assert settings_of("Hopper-v4", "--paper", "--truncation", "bootstrap").truncation == "bootstrap"
    assert settings_of("Hopper-v4", "--paper", "--no-paper").truncation == "bootstrap"


def test_a_runs_config_serves_as_a_configuration_file(tmp_path):
    out = tmp_path / "run"
    cli.dispatch([*TRAIN, "--preset", "classic", "--steps", "1100", "--gamma", "0.9", "--quiet", "--out", str(out)])
    again = settings_of("CartPole-v1", "--config", str(out / "config.json"))
    assert again.gamma == 0.9 and again.preset == "classic" and again.out is None


@pytest.mark.parametrize(
    "text, words",
    [
        ("wings = 2", "setting 'wings' is unknown"),
        ('envs = "many"', "--envs 'many' is not accepted: it must be a whole number from 1 to 65536"),
        ("envs = true", "--envs True is not accepted"),
        ("hidden = 64", "--hidden 64 is not accepted"),
        ('lr_schedule = "cosine"', "--lr-schedule 'cosine' is not accepted: it must be one of linear, constant"),
        ("gamma = ", "cannot be read as TOML or JSON"),
    ],
)
def test_a_bad_configuration_file(tmp_path, text, words):
    file = tmp_path / "bad.toml"
    file.write_text(text)
    assert words in refusal(*TRAIN, "--config", str(file))


def test_the_objectives_are_listed(capsys):
    cli.dispatch(["objectives"])
    listed = capsys.readouterr().out
    assert "spo" in listed and "r·A − |A|·(r − 1)² / 2ε" in listed and "--epsilon 0.2" in listed


def test_version_and_overview(capsys):
    cli.dispatch(["--version"])
    cli.dispatch([])
    printed = capsys.readouterr().out
    assert printed.startswith("0.") and "spo train ENV" in printed


def test_progress_and_summary_without_a_terminal(capfd, tmp_path, monkeypatch):
    from spo.runs.loggers import ProgressLogger

    monkeypatch.setattr(ProgressLogger, "SECONDS_BETWEEN_LINES", 0.0)
    cli.dispatch([*TRAIN, "--preset", "classic", "--steps", "2100", "--out", str(tmp_path / "run")])
    printed = capfd.readouterr()
    for words in ("2,048 of 2,048 steps", "steps/s", "0:00 left", "return", "ratio deviation", "KL"):
        assert words in printed.err.splitlines()[-1]
    assert "update eager (80 gradient steps; compiling pays from" in printed.err
    for words in ("return over the last 10 %", "maximum ratio deviation", "steps per second", str(tmp_path / "run")):
        assert words in printed.out


def test_the_live_line_tells_a_width_that_is_adapted():
    from spo.runs.loggers import ProgressLogger

    row = {"env_steps": 1024, "wall_time": 1.0, "ratio_deviation": 0.1, "kl": 0.01}
    assert ProgressLogger(2048)._line(row).endswith("KL 0.01")
    assert ProgressLogger(2048)._line(row | {"epsilon": 0.3456}).endswith("KL 0.01 · ε 0.346")


def test_comparing_objectives(capfd, tmp_path):
    settings = ["--preset", "classic", "--steps", "2100", "--out", str(tmp_path / "all")]
    cli.dispatch(["compare", "CartPole-v1", "--objectives", "spo", "ppo-clip", "--seeds", "1", *settings])
    printed = capfd.readouterr().out
    assert "CartPole-v1: spo, ppo-clip" in printed and "maximum ratio deviation" in printed
    for name in ("spo", "ppo-clip"):
        status = tmp_path / "all" / "runs" / "CartPole-v1" / name / "1" / "status.json"
        assert json.loads(status.read_text())["state"] == "finished"


def test_a_terminal_shows_that_torch_is_loading():
    """It takes seconds; what is refused without it is refused at once, and a run is announced before it."""
    assert show_on_terminal("resume", "nowhere").startswith("error: nowhere is not a run directory")
    *lines, last = show_on_terminal("train", "Nowhere-v0", "--steps", "1M").rstrip().split("\r\n")
    assert " ".join(lines).startswith("Nowhere-v0 · spo epsilon 0.2 · preset mujoco")
    assert last.startswith("loading PyTorch …\r\x1b[Kerror: environment 'Nowhere-v0' is not")
    assert len(lines) > 1 and max(map(len, lines)) <= 80  # broken between words
    assert " ".join(lines).endswith("· policy 64-64 · seed 1 · 999,424 steps")


def show_on_terminal(*words: str) -> str:
    script = f"import pty, sys; pty.spawn([sys.executable, '-m', 'spo', *{words}])"
    terminal = {**os.environ, "COLUMNS": "80", "TERM": "xterm"}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, env=terminal).stdout.decode()
