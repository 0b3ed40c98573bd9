"""The command line: parsing and nothing else. A command is a function with `@command` in one of the modules here."""

from spo.runtime import library_env

library_env.set_library_env()

import os
import sys

from spo import __version__
from spo.cli import completion, experiments, training  # noqa: F401  (importing them registers their commands)
from spo.cli.command import COMMANDS
from spo.errors import SpoError, suggest


def main() -> None:
    """Run a command; a refusal is one sentence on standard error and exit code 2."""
    if any(":" in word for word in sys.argv[1:]):
        # A module is named, and may lie here. It comes last: a file here must not pass for an installed package.
        sys.path.append(os.curdir)
    try:
        dispatch(sys.argv[1:])
    except SpoError as refusal:
        print(f"error: {refusal}", *getattr(refusal, "__notes__", ()), sep="\n", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        sys.exit(getattr(interrupt, "code", 130))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def dispatch(words: list[str]) -> None:
    """Run the command that the first word names."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
    elif words[0] == "--version":
        print(__version__)
    elif words[0] in COMMANDS:
        COMMANDS[words[0]].run(words[1:])
    else:
        accepted = f"{', '.join(COMMANDS)}, --version, --help"
        raise SpoError(f"command {words[0]!r} is unknown{suggest(words[0], COMMANDS)}; accepted: {accepted}")


def overview() -> str:
    """List the commands, a line for each."""
    entries = [(f"spo {entry.usage}", entry.help) for entry in COMMANDS.values()]
    lines = [f"  {usage:<22}{help}" for usage, help in [*entries, ("spo --version", "print the version")]]
    title = "Simple Policy Optimization (Xie et al., ICML 2025)."
    return "\n".join(["usage: spo COMMAND [...]", "", *lines, "", title])
