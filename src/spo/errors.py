"""The exceptions that users meet: SpoError, and a kind for each thing that a program may want to tell apart."""

import difflib
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

LONGEST = 2000
LIBRARIES = (*(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")), str(Path(__file__).parent))
"""Where code lies that is not the user's; the last one is this package."""


class SpoError(Exception):
    """Something that the project declines to do, told in one sentence that names the value and what is accepted."""

    def __init__(self, sentence: str):
        super().__init__(printable(sentence))


class ConfigError(SpoError):
    """A setting that is unknown, out of range, or does not go with another or with the environment's spaces."""


class EnvError(SpoError):
    """An environment that cannot be made, raised, hung, or returned what no environment may."""


class DivergenceError(SpoError):
    """Training whose numbers stopped being finite."""


class CorruptRunError(SpoError):
    """A file of a run, a checkpoint or a policy that is damaged or not what a run leaves."""


def place_of(error: BaseException | None) -> str:
    """Where in the user's own code an error was raised, as words to add to a sentence; empty if that is unknown."""
    if error is None or error.__traceback__ is None:
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(folder in frame.filename for folder in LIBRARIES)]
    return f" (line {own[-1].lineno} of {own[-1].filename}, in {own[-1].name})" if own else ""


def printable(text: str) -> str:
    """Text that may quote a stranger's file, safe for a terminal: one line, nothing that steers it, not endless."""
    return _shorten("".join(letter if letter.isprintable() else _visible(letter) for letter in _shorten(text)))


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def _visible(letter: str) -> str:
    return " " if letter.isspace() else ascii(letter)[1:-1]


def suggest(name: str, accepted: Iterable[str], aliases: Mapping[str, str] | None = None, prefix: str = "") -> str:
    """Name the accepted word that was probably meant, in brackets for a sentence; nothing if none is near."""
    word, accepted = name[:100].lower(), list(accepted)
    known = [aliases[word]] if aliases and word in aliases else []
    longer = [other for other in accepted if len(word) > 2 and other.startswith(word)]
    near = [*known, *difflib.get_close_matches(word, accepted, n=1), *longer]
    return f" (did you mean {prefix}{near[0]}?)" if near else ""
