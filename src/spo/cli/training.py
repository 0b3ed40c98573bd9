"""The commands around one run: train, resume, eval, doctor, objectives."""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from spo.cli.command import command, load_torch
from spo.config import fields
from spo.errors import ConfigError

if TYPE_CHECKING:
    from spo.config.config import Config

HELP = {"-h", "--help", "--help-all"}


@command("train ENV", "train a policy (spo train --help-all explains every setting)")
def train(words: list[str]) -> None:
    from spo.runs.console import announce_training

    config = parse_train(words)
    announce_training(config)  # before torch is imported: help, refusals and the first line come at once
    load_torch()
    from spo.envs.factory import env_maker
    from spo.runs.start import carry_out

    carry_out(config, env_maker(config))


def parse_train(words: list[str]) -> "Config":
    """Parse the settings of `spo train`; they win over those of files and presets, as in Python."""
    from spo.cli.settings import parse_settings, print_help
    from spo.config.sources import make_config

    given = parse_settings([word for word in words if word not in HELP], "spo train")
    if set(words) & HELP:
        print_help(given, is_whole="--help-all" in words)
    if "env" not in given:
        raise ConfigError("ENV is missing: name an environment, as in spo train HalfCheetah-v4")
    return make_config(**given)


@dataclass(frozen=True)
class ResumeArguments:
    """Continues a run from its newest good checkpoint with the path that it was started with."""

    run: fields.RunDirectory
    """A run directory."""
    steps: fields.OptionalText = None
    """A new length for the run; the learning rate follows it."""
    env: fields.OptionalText = None
    """The run's environment, if it names a module of yours."""
    objective: fields.OptionalText = None
    """The run's objective, if it names a module of yours."""
    encoder: fields.OptionalText = None
    """The run's encoder, if it is a module of yours."""
    wrapper: tuple[str, ...] = ()
    """The run's wrappers, if it has any, word by word."""
    quiet: bool = False
    """Prints nothing but errors."""


@command("resume RUN", "continue a run that was stopped, to the bit as if it never was", ResumeArguments)
def resume(given: ResumeArguments) -> None:
    from spo.runs.directory import RunDirectory

    RunDirectory.open(given.run)  # a slip of the name is told before torch is imported
    load_torch()
    from spo.runs.resume import resume

    resume(**vars(given))


@dataclass(frozen=True)
class ExportArguments:
    """Writes a run's policy as one file that needs neither this package nor its environment."""

    run: fields.RunDirectory
    """A run directory."""
    file: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
    """Where to: a name that ends in .onnx, or in .pt2 (torch.export)."""
    action_mask: bool = False
    """Whether the file takes a mask of the actions that are allowed."""
    best: bool = False
    """Takes the policy with the best evaluation, which --keep-best kept, instead of the last one."""
    encoder: fields.OptionalText = None
    """The policy's encoder, if it is a module of yours."""


@command("export RUN FILE", "write a policy as one ONNX or torch.export file", ExportArguments)
def export(given: ExportArguments) -> None:
    from spo.models.export import export_policy, input_names
    from spo.runs.evaluate import load

    policy = load(given.run, given.encoder, given.best)
    path = export_policy(policy, given.file, given.action_mask)
    names = ", ".join(input_names(policy, given.action_mask))
    print(f"{path}: {names} in, action out ({path.stat().st_size / 2**10:,.0f} KB)")


@dataclass(frozen=True)
class DoctorArguments:
    """Checks every file of a run directory; changes nothing. Exit code 1 if something is wrong."""

    run: fields.RunDirectory
    """A run directory."""


@command("doctor RUN", "check a run directory, and say what can be done", DoctorArguments)
def doctor(given: DoctorArguments) -> None:
    from spo.runs.doctor import examine

    if not examine(given.run):
        sys.exit(1)


@dataclass(frozen=True)
class EvalArguments:
    """Plays episodes with the frozen policy and statistics of a run, and writes evaluation.json into it."""

    run: fields.RunDirectory
    """A run directory."""
    episodes: int = 10
    """How many episodes to play."""
    seed: int = 0
    """Seeds the episodes and the stochastic policy."""
    stochastic: bool = False
    """Samples actions instead of taking the most likely."""
    max_steps: fields.OptionalCount = None
    """Ends an episode after so many steps (unset: when the environment ends it)."""
    video: fields.OptionalText = None
    """Records the episodes into this .mp4 file."""
    render: bool = False
    """Shows the episodes in a window."""
    best: bool = False
    """Plays the policy with the best evaluation, which --keep-best kept, instead of the last one."""
    env: fields.OptionalText = None
    """The environment, if not the run's own; needed for ids that name a module."""
    encoder: fields.OptionalText = None
    """The policy's encoder, if it is a module of yours."""
    wrapper: tuple[str, ...] = ()
    """The run's wrappers, if it has any, word by word."""


@command("eval RUN", "play episodes with a trained policy", EvalArguments)
def evaluate(given: EvalArguments) -> None:
    from contextlib import closing

    from spo.runs.directory import RunDirectory

    RunDirectory.open(given.run)  # a slip of the name is told before torch is imported
    load_torch()
    from spo.evaluation import EvaluationProgress
    from spo.runs.evaluate import evaluate

    options = {name: value for name, value in vars(given).items() if name != "stochastic"}
    with closing(EvaluationProgress(given.episodes, given.max_steps)) as progress:
        result = evaluate(**options, deterministic=not given.stochastic, on_step=progress)
    kind = "stochastic" if given.stochastic else "deterministic"
    played = f"{given.episodes} {kind} episode{'s' if given.episodes > 1 else ''}"
    limit = f" of up to {given.max_steps:,} steps" if given.max_steps else ""
    print(f"return {result.return_mean:.1f} ± {result.return_std:.1f} over {played}{limit}")
    if given.video:
        print(f"video {given.video}")


@dataclass(frozen=True)
class PushArguments:
    """Uploads a run's policy, settings and a card to the Hugging Face Hub; spo.load("hf://user/name") loads it."""

    run: fields.RunDirectory
    """A run directory."""
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Where to: user/name."""
    video: fields.OptionalText = None
    """A film of the policy to put beside it (spo eval --video makes one)."""
    private: bool = False
    """Makes a new repository that others cannot see."""


@command("push RUN NAME", "upload a run's policy to the Hugging Face Hub", PushArguments)
def push(given: PushArguments) -> None:
    from spo.runs.hub import push

    print(f"pushed; spo.load({push(**vars(given))!r}) loads it")


@dataclass(frozen=True)
class ObjectivesArguments:
    """Lists the policy objectives with their formulas and settings."""


@command("objectives", "list the policy objectives", ObjectivesArguments)
def objectives(given: ObjectivesArguments) -> None:
    from spo.config.validation import flag
    from spo.objectives import OBJECTIVES
    from spo.runtime.formatting import show

    for name, objective in OBJECTIVES.items():
        settings = ", ".join(f"{flag(key)} {show(value)}" for key, value in objective.settings.items())
        label = "" if objective.is_of_the_paper else " [beyond the paper]"
        print(f"{name}{label}\n    {objective.description}\n    {settings or 'no settings'} ({objective.source})")
