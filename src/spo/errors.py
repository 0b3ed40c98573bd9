"""The one exception that users meet."""

LONGEST = 2000


class SpoError(Exception):
    """Something that the project declines to do, told in one sentence that names the value and what is accepted."""

    def __init__(self, sentence: str):
        super().__init__(printable(sentence))


def printable(text: str) -> str:
    """Text that may quote a stranger's file, safe for a terminal: one line, nothing that steers it, not endless."""
    return _cut("".join(letter if letter.isprintable() else _visible(letter) for letter in _cut(text)))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} … {text[-LONGEST // 2 :]}"


def _visible(letter: str) -> str:
    return " " if letter.isspace() else ascii(letter)[1:-1]
