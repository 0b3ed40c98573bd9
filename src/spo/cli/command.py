"""What a command is, and how its arguments are parsed: tyro's error box becomes one sentence."""

import contextlib
import io
import re
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import Any, TypeVar

import tyro

from spo.config.fields import NAMES_ELSEWHERE
from spo.errors import ConfigError, suggest

Arguments = TypeVar("Arguments")


@dataclass(frozen=True)
class Command:
    """A command of `spo`; without a class of arguments it gets the words as they were typed."""

    usage: str
    help: str
    arguments: type | None
    function: Callable[[Any], None]

    def run(self, words: list[str]) -> None:
        program = f"spo {self.usage.split()[0]}"
        self.function(parse(self.arguments, words, program) if self.arguments else words)


COMMANDS: dict[str, Command] = {}
"""The commands by name, in the order of the overview."""


def command(usage: str, help: str, arguments: type | None = None) -> Callable[[Callable], Callable]:
    """Register a function as the command that the first word of `usage` names."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        COMMANDS[usage.split()[0]] = Command(usage, help, arguments, function)
        return function

    return register


def parse(kind: type[Arguments], words: list[str], program: str, default: Arguments | None = None, **options) -> Any:
    """Parse with tyro; its error box becomes one sentence."""
    box, words = io.StringIO(), _join_lists(words, kind)
    if default is not None:
        options["default"] = default
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(kind, args=words, prog=program, **options)
    except SystemExit as ending:
        if ending.code:
            sentence = _read_sentence(box.getvalue())
            raise ConfigError(f"{sentence}{_suggest_flag(sentence, kind)} (see {program} --help)")
        raise


def _join_lists(words: list[str], kind: type) -> list[str]:
    """Gather what stands behind a list's flag wherever it is named: tyro would take the last of them alone."""
    flags, others, lists, target = _find_lists(kind), [], {}, None
    end = words.index("--") if "--" in words else len(words)
    for word in words[:end]:
        flag, equals, value = word.partition("=")
        if (flag := flag.replace("_", "-")) in flags:
            own = lists.setdefault(flag, [])
            own += [value] if equals else []
            target = None if equals else own
        else:
            target = None if word.startswith("-") else target
            (others if target is None else target).append(word)
    return others + [word for flag, own in lists.items() for word in (flag, *own)] + words[end:]


def _find_lists(kind: type) -> set[str]:
    """Find the flags of lists and tables; several numbers, such as a network's layers, are one value."""
    hints = {name: hint for name, hint in typing.get_type_hints(kind).items() if int not in typing.get_args(hint)}
    return {f"--{name.replace('_', '-')}" for name, hint in hints.items() if typing.get_origin(hint) in (tuple, dict)}


def load_torch() -> None:
    """Import PyTorch, which takes seconds, and show on a terminal that it is under way."""
    if "torch" in sys.modules or not sys.stderr.isatty():
        return
    print("loading PyTorch …", end="", file=sys.stderr, flush=True)
    try:
        import torch  # noqa: F401
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _suggest_flag(sentence: str, kind: type) -> str:
    """Name the flag that was probably meant where one is unknown."""
    unknown = re.match(r"Unrecognized options: .*?--([\w-]+)", sentence)
    if not unknown:
        return ""
    hints = typing.get_type_hints(kind, include_extras=True)
    elsewhere = {theirs.replace("_", "-"): ours.replace("_", "-") for theirs, ours in NAMES_ELSEWHERE.items()}
    meant = elsewhere.get(unknown[1], unknown[1])
    if tyro.conf.Positional in getattr(hints.get(meant), "__metadata__", ()):
        return f" ({meant.upper()} stands by itself, without a flag before it)"
    flags = [name.replace("_", "-") for name in hints]
    known = {theirs: ours for theirs, ours in elsewhere.items() if ours in flags}
    return suggest(unknown[1], flags, known, prefix="--")


def _read_sentence(box: str) -> str:
    """Read the text of tyro's error box, up to its first rule, without the colours of a terminal."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip("│ ") for line in box.splitlines()[1:]]
    text = " ".join(takewhile(lambda line: not _is_rule(line), dropwhile(_is_rule, lines)))
    for pattern, words in PLAIN_WORDS.items():
        text = re.sub(pattern, words, text)
    return text


def _is_rule(line: str) -> bool:
    return set(line) <= set("─╰╯-")


PLAIN_WORDS = {
    r"Missing from spo \w+: (\w+) .*\(required\).*": r"\1 is missing",
    r"could not convert string to float: (.*)": r"\1 is not a number",
    r"invalid literal for int\(\) with base 10: (.*)": r"\1 is not a whole number",
    r"Could not find valid parse for arguments: \[(.*)\]": r"\1 are not whole numbers with spaces between them",
    r"Exceeds the limit \(\d+ digits\).*": r"a number of so many digits is not accepted",
}
"""What Python says of a value, and what a user should read."""
