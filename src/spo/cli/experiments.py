"""The commands around many runs: bench, compare, pack, figures, report, theory."""

import sys
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Literal

import tyro

from spo.cli.command import command, parse
from spo.cli.training import parse_train
from spo.config import fields


@dataclass(frozen=True, kw_only=True)
class Execution:
    """Where and how many runs are carried out."""

    out: fields.OptionalText = None
    """The directory of the runs; what is done in it is not done again."""
    jobs: fields.OptionalCount = None
    """Runs at once (unset: one per core)."""
    executor: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster."""
    ray_address: fields.OptionalText = None
    """A running Ray cluster (unset: one on this machine is started)."""
    retry_failed: bool = False
    """Tries failed runs again."""
    dry_run: bool = False
    """Prints the plan and how long it would take, and runs nothing."""


@dataclass(frozen=True, kw_only=True)
class BenchArguments(Execution):
    """Runs a suite: fig1, table1 (also Fig. 5), fig4, fig6, atari35 (App. A), layers-minibatches and atari-resnet
    (App. C), width (beyond the paper), or smoke (minutes). What this call names is run: what is done is skipped, what
    was stopped is resumed."""

    suite: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")]
    """Which suite, or a TOML file of one's own."""
    scale: fields.OptionalNumber = None
    """A share of the suite's steps, such as 0.1."""
    steps: fields.OptionalText = None
    """Steps of each run, such as 1M."""
    seeds: fields.OptionalCount = None
    """How many seeds, from 1."""
    tasks: tuple[str, ...] = ()
    """Only these tasks."""
    variants: tuple[str, ...] = ()
    """Only these variants."""


@command("bench SUITE", "run a table or figure of the paper (spo bench --help lists them)", BenchArguments)
def bench(given: BenchArguments) -> None:
    from spo.experiments.plan import read_suite, restrict
    from spo.experiments.run_sweep import bench

    plan = restrict(read_suite(given.suite), given.scale, given.steps, given.seeds, given.tasks, given.variants)
    out = Path(given.out or f"runs/{plan.suite}")
    bench(plan, out, given.jobs, given.executor, given.ray_address, given.retry_failed, given.dry_run)


@dataclass(frozen=True)
class CompareArguments(Execution):
    """Trains objectives and settings side by side on one or several environments, which are named first, one run per
    core; every setting of `spo train` may follow."""

    objectives: tuple[str, ...] = ("spo", "ppo-clip")
    """The objectives to compare."""
    vary: tuple[str, ...] = ()
    """Settings and their values, such as epsilon=0.1,0.2,0.3 or hidden="64 64,256 256"; several make a grid."""
    seeds: int = 1
    """How many seeds each, from 1."""


@command("compare ENV...", "train objectives and settings side by side")
def compare(words: list[str]) -> None:
    from spo.experiments.compare import check, critic_note, default_directory, plan_comparison, read_variations
    from spo.experiments.run_sweep import bench

    envs = list(takewhile(lambda word: not word.startswith("-"), words))
    given, settings = parse(CompareArguments, words[len(envs) :], "spo compare", return_unknown_args=True)
    check(envs, given.objectives, given.seeds, settings)
    variations = read_variations(given.vary)
    plan = plan_comparison(envs, given.objectives, variations, given.seeds, settings, parse_train)
    if note := critic_note(plan, variations):
        print(note, file=sys.stderr)
    out = Path(given.out) if given.out else default_directory(envs)
    bench(plan, out, given.jobs, given.executor, given.ray_address, given.retry_failed, given.dry_run)


@dataclass(frozen=True)
class TuneArguments:
    """Searches the settings that follow from none of your flags: the width of the ratio bound, learning rate, epochs,
    minibatches, horizon, entropy and depth. Every setting of `spo train` may follow, and is then fixed."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """A registered Gymnasium id."""
    trials: int = 50
    """How many sets of settings are tried."""
    seeds: int = 1
    """Runs of each; the median of their returns counts."""
    jobs: fields.OptionalCount = None
    """Trials at once (unset: one per core)."""
    executor: Literal["local", "ray"] = "local"
    """Processes of this machine, or a Ray cluster whose nodes see the search's directory."""
    ray_address: fields.OptionalText = None
    """A running Ray cluster (unset: one on this machine is started)."""
    out: fields.OptionalPath = None
    """The directory of the search; what is done in it is not done again (unset: runs/tune-ENV-OBJECTIVE)."""


@command("tune ENV", "search settings with Optuna")
def tune(words: list[str]) -> None:
    from spo.experiments.tune import tune

    given, settings = parse(TuneArguments, words, "spo tune", return_unknown_args=True)
    config = parse_train([given.env, *settings])
    place = (given.executor, given.ray_address)
    tune(config, settings, given.out, given.trials, given.seeds, given.jobs, *place)


@dataclass(frozen=True)
class PackArguments:
    """Keeps of a sweep's finished runs what tables, figures and reports need: settings, numbers, and binned curves.
    Of a single run it keeps the policy too, which spo eval plays and spo.load loads."""

    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """The directory of a sweep, or of one run."""
    out: fields.OptionalText = None
    """A new directory."""
    into: fields.OptionalText = None
    """A packed sweep, to which runs that finished since are added."""
    rows: bool = False
    """Keeps all rows of metrics and episodes, compressed, instead of curves."""


@command("pack DIR", "make a sweep's results, or one run and its policy, small enough to publish", PackArguments)
def pack(given: PackArguments) -> None:
    from spo.experiments.pack import pack_named

    print(pack_named(given.directory, given.out, given.into, given.rows))


@command("figures NAME", "draw a figure of the paper (spo figures --help lists them)")
def figures(words: list[str]) -> None:
    from spo.experiments.figures import FigureArguments, make_figure, overview

    for path in make_figure(parse(FigureArguments, words, "spo figures", description=overview())):
        print(path)


@dataclass(frozen=True)
class ReportArguments:
    """Prints the table of a directory's runs and the answer that it gives, and makes a page of all results that needs
    nothing but itself, and results.csv and curves.csv beside it."""

    directory: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DIR")]
    """A directory that spo bench or spo compare made, or that of one run."""
    out: Annotated[fields.OptionalText, tyro.conf.arg(aliases=["-o"])] = None
    """The page (unset: report.html in the directory)."""


@command("report DIR", "make one page of a sweep's results, or of one run", ReportArguments)
def report(given: ReportArguments) -> None:
    from spo.experiments.console import print_results
    from spo.experiments.report.page import read_for_report, write_report

    out = Path(given.out) if given.out else Path(given.directory) / "report.html"
    results = read_for_report(Path(given.directory), out)
    print_results(results)
    for path in write_report(results, out):
        print(path)


@dataclass(frozen=True)
class WatchArguments:
    """Shows runs and sweeps as they are written: in the browser, or in the terminal."""

    directories: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[DIR ...]")] = ("runs",)
    """Directories of runs and sweeps, or runs themselves."""
    port: int = 5006
    """The port to serve at (0: any that is free)."""
    address: str = "127.0.0.1"
    """The address to serve at. Any but this machine's own needs the token that is printed."""
    browser: bool = True
    """Opens the page in the browser."""
    text: bool = False
    """Draws a table in the terminal instead."""


@command("watch [DIR ...]", "show runs and their trust region live, in the browser or the terminal", WatchArguments)
def watch(given: WatchArguments) -> None:
    from spo.watch.command import watch_runs

    roots = [Path(directory) for directory in given.directories or ("runs",)]
    watch_runs(roots, given.address, given.port, given.browser, given.text)


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


@command("theory", "check the paper's theorems on small random MDPs", TheoryArguments)
def theory(given: TheoryArguments) -> None:
    from spo.theory.command import report

    if not report(given.mdps, given.states, given.actions, given.seed, Path(given.out)):
        sys.exit(1)
