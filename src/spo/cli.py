"""The command line: parsing and nothing else."""

from spo import libraries

libraries.prepare()

import contextlib
import io
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import tyro

from spo import __version__, flags
from spo.errors import Refusal

if TYPE_CHECKING:
    from spo.config import Config

Settings = TypeVar("Settings")

OVERVIEW = """\
usage: spo COMMAND [...]

  spo train ENV         train a policy (spo train --help lists every setting)
  spo resume RUN        continue a run that was stopped, to the bit as if it never was
  spo doctor RUN        check a run directory, and say what can be done
  spo eval RUN          play episodes with a trained policy
  spo bench SUITE       run a table or figure of the paper (spo bench --help lists them)
  spo compare ENV       train several objectives side by side
  spo pack DIR          make a sweep's results small enough to publish
  spo objectives        list the policy objectives
  spo figures NAME      draw a figure of the paper (spo figures --help lists them)
  spo report DIR        make one page of a sweep's results (spo bench and spo compare make sweeps)
  spo watch [DIR ...]   show runs and their trust region live in the browser
  spo theory            check the paper's theorems on small random MDPs
  spo --version         print the version

Simple Policy Optimization (Xie et al., ICML 2025)."""


def main() -> None:
    """Runs a command; a refusal is one sentence on standard error and exit code 2."""
    if any(":" in argument for argument in sys.argv[1:]):
        # A module is named, and may lie here. It comes last: a file here must not pass for an installed package.
        sys.path.append(os.curdir)
    try:
        dispatch(sys.argv[1:])
    except Refusal as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        sys.exit(getattr(interrupt, "code", 130))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dispatch(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(OVERVIEW)
    elif arguments[0] == "--version":
        print(__version__)
    elif arguments[0] in COMMANDS:
        COMMANDS[arguments[0]](arguments[1:])
    else:
        raise Refusal(f"command {arguments[0]!r} is unknown; accepted: {', '.join(COMMANDS)}, --version, --help")


def train_command(arguments: list[str]) -> None:
    from spo.envs.backends import env_maker
    from spo.trainer import run_training

    config = parse_train(arguments)
    run_training(config, env_maker(config))


def parse_train(arguments: list[str]) -> "Config":
    """The settings of `spo train`: what decides the defaults is looked at first, then every flag wins over them."""
    from spo.checks import checked
    from spo.config import Config
    from spo.presets import unchecked_config

    if {"-h", "--help"} & set(arguments):  # tyro prints it, with the paper's settings as defaults
        return parse(Config, arguments, "spo train", unchecked_config("ENV", None, None, None, None))
    if not arguments or arguments[0].startswith("-"):
        raise Refusal("ENV is missing: name an environment first, as in spo train HalfCheetah-v4")
    paper = {"--paper": True, "--no-paper": False}
    asked = next((paper[argument] for argument in reversed(arguments) if argument in paper), None)
    preset, config, objective = (_value_of(flag, arguments) for flag in ("--preset", "--config", "--objective"))
    defaults = unchecked_config(arguments[0], preset, config, asked, objective)
    return checked(parse(Config, arguments, "spo train", defaults))


def resume_command(arguments: list[str]) -> None:
    from spo.trainer import resume

    given = parse(ResumeArguments, arguments, "spo resume")
    resume(given.run, env=given.env, objective=given.objective, steps=given.steps, quiet=given.quiet)


def doctor_command(arguments: list[str]) -> None:
    from spo.doctor import examine

    given = parse(DoctorArguments, arguments, "spo doctor")
    if not examine(given.run):
        sys.exit(1)


def eval_command(arguments: list[str]) -> None:
    from spo.api import evaluate

    given = parse(EvalArguments, arguments, "spo eval")
    result = evaluate(
        given.run,
        given.env,
        episodes=given.episodes,
        seed=given.seed,
        deterministic=not given.stochastic,
        video=given.video,
    )
    kind = "stochastic" if given.stochastic else "deterministic"
    print(f"return {result.return_mean:.1f} ± {result.return_std:.1f} over {given.episodes} {kind} episodes")
    if given.video:
        print(f"video {given.video}")


def bench_command(arguments: list[str]) -> None:
    from pathlib import Path

    from spo.bench.suites import narrowed, read_suite
    from spo.bench.sweep import bench

    given = parse(BenchArguments, arguments, "spo bench")
    plan = narrowed(read_suite(given.suite), given.scale, given.steps, given.seeds, given.tasks, given.variants)
    out = Path(given.out or f"runs/{given.suite}")
    bench(plan, out, given.jobs, given.executor, given.ray_address, given.retry_failed, given.dry_run)


def compare_command(arguments: list[str]) -> None:
    from pathlib import Path

    from spo.bench.compare import check, default_directory, plan_of
    from spo.bench.sweep import bench

    given, settings = parse(CompareArguments, arguments, "spo compare", return_unknown_args=True)
    check(given.objectives, given.seeds, settings)
    configs = {name: parse_train([given.env, "--objective", name, *settings]) for name in given.objectives}
    out = Path(given.out) if given.out else default_directory(given.env)
    bench(plan_of(configs, given.seeds), out, given.jobs, given.executor, given.ray_address, given.retry_failed)


def pack_command(arguments: list[str]) -> None:
    from spo.bench.pack import pack_as_asked

    given = parse(PackArguments, arguments, "spo pack")
    print(pack_as_asked(given.sweep, given.out, given.into, given.rows))


def objectives_command(arguments: list[str]) -> None:
    from spo.checks import flag
    from spo.metrics import show
    from spo.objectives import OBJECTIVES

    parse(NoArguments, arguments, "spo objectives")
    for name, objective in OBJECTIVES.items():
        settings = ", ".join(f"{flag(key)} {show(value)}" for key, value in objective.settings.items())
        label = "" if objective.is_of_the_paper else " [beyond the paper]"
        print(f"{name}{label}\n    {objective.description}\n    {settings or 'no settings'} ({objective.source})")


def figures_command(arguments: list[str]) -> None:
    from spo.bench.figures import FigureArguments, make_figure, overview

    for path in make_figure(parse(FigureArguments, arguments, "spo figures", description=overview())):
        print(path)


def report_command(arguments: list[str]) -> None:
    from pathlib import Path

    from spo.bench.report import make_report

    given = parse(ReportArguments, arguments, "spo report")
    for path in make_report(Path(given.directory), Path(given.out) if given.out else None):
        print(path)


def watch_command(arguments: list[str]) -> None:
    from spo.watch.command import WatchArguments, watch

    watch(parse(WatchArguments, arguments, "spo watch"))


def theory_command(arguments: list[str]) -> None:
    from pathlib import Path

    from spo.bench.theory import report

    given = parse(TheoryArguments, arguments, "spo theory")
    if not report(given.mdps, given.states, given.actions, given.seed, Path(given.out)):
        sys.exit(1)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "train": train_command,
    "resume": resume_command,
    "doctor": doctor_command,
    "eval": eval_command,
    "bench": bench_command,
    "compare": compare_command,
    "pack": pack_command,
    "objectives": objectives_command,
    "figures": figures_command,
    "report": report_command,
    "watch": watch_command,
    "theory": theory_command,
}


@dataclass(frozen=True)
class ResumeArguments:
    """Continues a run from its newest good checkpoint with the path that it was started with."""

    run: Annotated[str, tyro.conf.Positional]
    """A run directory."""
    steps: flags.OptionalText = None
    """A new length for the run; the learning rate follows it."""
    env: flags.OptionalText = None
    """The run's environment, if it names a module of yours."""
    objective: flags.OptionalText = None
    """The run's objective, if it names a module of yours."""
    quiet: bool = False
    """Prints nothing but errors."""


@dataclass(frozen=True)
class DoctorArguments:
    """Checks every file of a run directory; changes nothing. Exit code 1 if something is wrong."""

    run: Annotated[str, tyro.conf.Positional]
    """A run directory."""


@dataclass(frozen=True)
class EvalArguments:
    """Plays episodes with the frozen policy and statistics of a run, and writes evaluation.json into it."""

    run: Annotated[str, tyro.conf.Positional]
    """A run directory."""
    episodes: int = 10
    """How many episodes to play."""
    seed: int = 0
    """Seeds the episodes and the stochastic policy."""
    stochastic: bool = False
    """Samples actions instead of taking the most likely."""
    video: flags.OptionalText = None
    """Records the episodes into this .mp4 file."""
    env: flags.OptionalText = None
    """The environment, if not the run's own; needed for ids that name a module."""


@dataclass(frozen=True)
class Execution:
    """Where and how many runs are carried out."""

    out: flags.OptionalText = None
    """The directory of the runs; what is done in it is not done again."""
    jobs: flags.OptionalCount = None
    """Runs at once (unset: one per core)."""
    executor: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    ray_address: flags.OptionalText = None
    """A running Ray cluster (unset: one on this machine is started)."""
    retry_failed: bool = False
    """Tries failed runs again."""


@dataclass(frozen=True)
class BenchArguments(Execution):
    """Runs a suite: fig1, table1 (also Fig. 5), fig4, fig6, atari35 (App. A), layers-minibatches and atari-resnet
    (App. C), or smoke (minutes). What this call names is run: what is done is skipped, what was stopped is resumed."""

    suite: Annotated[str, tyro.conf.Positional] = ""
    """Which suite."""
    scale: flags.OptionalNumber = None
    """A share of the suite's steps, such as 0.1."""
    steps: flags.OptionalText = None
    """Steps of each run, such as 1M."""
    seeds: flags.OptionalCount = None
    """How many seeds, from 1."""
    tasks: tuple[str, ...] = ()
    """Only these tasks."""
    variants: tuple[str, ...] = ()
    """Only these variants."""
    dry_run: bool = False
    """Prints the plan and how long it would take, and runs nothing."""


@dataclass(frozen=True)
class CompareArguments(Execution):
    """Trains several objectives side by side, one run per core; every setting of `spo train` may follow."""

    env: Annotated[str, tyro.conf.Positional] = ""
    """A registered Gymnasium id."""
    objectives: tuple[str, ...] = ("spo", "ppo-clip")
    """The objectives to compare."""
    seeds: int = 1
    """How many seeds each, from 1."""


@dataclass(frozen=True)
class PackArguments:
    """Keeps of a sweep's finished runs what tables, figures and reports need: settings, numbers, and binned curves."""

    sweep: Annotated[str, tyro.conf.Positional]
    """The directory of a sweep."""
    out: flags.OptionalText = None
    """A new directory."""
    into: flags.OptionalText = None
    """A packed sweep, to which runs that finished since are added."""
    rows: bool = False
    """Keeps all rows of metrics and episodes, compressed, instead of curves."""


@dataclass(frozen=True)
class ReportArguments:
    """Makes a page of a sweep's results that needs nothing but itself, and results.csv beside it."""

    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A directory that spo bench or spo compare made."""
    out: Annotated[flags.OptionalText, tyro.conf.arg(aliases=["-o"])] = None
    """The page (unset: report.html in the directory)."""


@dataclass(frozen=True)
class TheoryArguments:
    """Checks the paper's theorems on small random MDPs that are solved exactly, and draws an example of each."""

    mdps: int = 200
    """How many random MDPs, each with an old policy and eight new ones."""
    states: int = 6
    """States of each MDP."""
    actions: int = 4
    """Actions of each MDP; Theorem 4.1 needs three."""
    seed: int = 0
    """Seeds the MDPs and policies."""
    out: str = "figures"
    """Where to write the figure."""


@dataclass(frozen=True)
class NoArguments:
    """Lists the policy objectives with their formulas and settings."""


def parse(kind: type[Settings], arguments: list[str], program: str, default: Settings | None = None, **options):
    """Parses with tyro; its error box becomes one sentence."""
    box = io.StringIO()
    if default is not None:
        options["default"] = default
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(kind, args=arguments, prog=program, **options)
    except SystemExit as ending:
        if ending.code:
            raise Refusal(f"{_sentence(box.getvalue())} (see {program} --help)")
        raise


def _sentence(box: str) -> str:
    """The text of tyro's error box, up to its first rule, without the colours of a terminal."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│ ") for line in box.splitlines()[1:]]
    told = dropwhile(_is_rule, lines)
    text = " ".join(takewhile(lambda line: not _is_rule(line), told))
    for pattern, words in PLAIN.items():
        text = re.sub(pattern, words, text)
    return text


def _is_rule(line: str) -> bool:
    return set(line) <= set("─╰╯-")


PLAIN = {
    r"could not convert string to float: (.*)": r"\1 is not a number",
    r"invalid literal for int\(\) with base 10: (.*)": r"\1 is not a whole number",
    r"Could not find valid parse for arguments: \[(.*)\]": r"\1 are not whole numbers",
    r"Exceeds the limit \(\d+ digits\).*": r"a number of so many digits is not accepted",
}
"""What Python says of a value, and what a user should read."""


def _value_of(flag: str, arguments: list[str]) -> str | None:
    """The value of a flag that decides the defaults of all others; the last one counts."""
    found = None
    for position, argument in enumerate(arguments):
        if argument.startswith(flag + "="):
            found = argument.removeprefix(flag + "=")
        elif argument == flag and position + 1 < len(arguments):
            found = arguments[position + 1]
    return found
