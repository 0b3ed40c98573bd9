"""What a run says when it starts and when it ends."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from rich.console import Console

from spo.config.config import Config
from spo.config.env_ids import is_atari
from spo.errors import printable
from spo.objectives import QUADRATIC_KL
from spo.runs.directory import RunDirectory
from spo.runtime.formatting import fold, show


def announce_training(config: Config) -> None:
    """Refuse a new run whose directory is taken, or say what is about to run; without torch, so at once."""
    RunDirectory.check_unused(config.out, config.overwrite)
    announce(config)


def announce(config: Config) -> None:
    """Say what is about to run, before anything is made that may take long."""
    settings = ", ".join(f"{name} {show(value)}" for name, value in config.objective_settings.items())
    behaviour = "the authors' behaviour" if config.paper else "default behaviour"
    layers = "-".join(map(str, config.hidden)) or _name_of_no_layers(config)
    text = (
        f"{config.env} · {config.objective} {settings} · preset {config.preset}, {behaviour} · policy {layers}"
        f" · seed {config.seed} · {config.total_steps:,} steps"
    )
    describe(config, text, *_warnings(config))


def _name_of_no_layers(config: Config) -> str:
    """Linear, or by what reads the images, where it is known that there are some."""
    return "linear" if config.encoder in ("auto", "mlp") and not is_atari(config.env) else config.encoder


@contextmanager
def say_compiling(config: Config, resume_command: str) -> Iterator[None]:
    """Show that a compilation is under way: a spinner on a terminal, a line elsewhere."""
    text = "compiling the update, about 20 s, cached afterwards"
    is_live = sys.stderr.isatty() and not config.quiet
    if not is_live:
        say(config, text)
    try:
        with Console(stderr=True).status(text) if is_live else nullcontext():
            yield
    except KeyboardInterrupt:
        say(config, f"stopped while compiling; to go on: {resume_command}")
        raise


def say(config: Config, *lines: str) -> None:
    """Print lines about the run, unless nothing but errors is wanted."""
    if not config.quiet:
        print(*map(printable, lines), sep="\n", file=sys.stderr, flush=True)


def describe(config: Config, *lines: str) -> None:
    """Say what nobody copies, so that a terminal may break it between words; a command must stay one line."""
    if not config.quiet:
        print(*(fold(printable(line), sys.stderr) for line in lines), sep="\n", file=sys.stderr, flush=True)


def _warnings(config: Config) -> list[str]:
    """What is accepted, and still unlikely to be what somebody wants."""
    if not config.outruns_kl_target:
        return []
    from spo.algorithms.adam import LARGEST_LEARNING_RATE  # with torch, which a run that is announced does not wait for

    why = f"{config.objective} keeps the KL mostly below half of --lr-kl-target {show(config.lr_kl_target)}"
    instead = "use --lr-schedule linear"
    if config.epsilon_schedule == "constant":
        instead += f", or a target of at most {show(QUADRATIC_KL * config.clip_range**2)}"
    return [f"warning: {why}, so adaptive-kl raises the rate to its cap of {LARGEST_LEARNING_RATE:g}; {instead}"]


def print_summary(config: Config, summary: Mapping[str, Any], directory: RunDirectory) -> None:
    """What the run came to, and where it is."""
    if config.quiet:
        return
    if summary["env_steps"] < config.total_steps:
        why = directory.read_status()["reason"]
        print(f"stopped early               at {summary['env_steps']:,} of {config.total_steps:,} steps: {why}")
    print(f"return over the last 10 %   {_describe_return(summary)}")
    print(f"maximum ratio deviation     {summary['ratio_deviation_max']:.4g}")
    print(f"steps per second            {summary['steps_per_second']:,.0f}")
    if restarts := (directory.last_metrics() or {}).get("env_restarts"):
        print(f"environments made anew      {restarts} (--on-env-error restart)")
    print(f"run directory               {directory.path}")


def _describe_return(summary: Mapping[str, Any]) -> str:
    if summary["return"] is None:
        return "no episode ended"
    note = " (of the last 8 episodes: too few ended)" if summary["return_from_last_episodes"] else ""
    return f"{summary['return']:.1f}{note}"
