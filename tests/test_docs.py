"""The pages are true: their Python runs, their commands are accepted by the command line, their links lead somewhere.

A block that cannot be run stands below a comment that says why, `<!-- not run: REASON -->`. Python blocks of a page
run one after the other, as a reader would; trainings are shortened to a few iterations.
"""

import re
import runpy
import shlex
from pathlib import Path

import pytest

from spo.cli.command import COMMANDS, parse
from spo.cli.training import parse_train

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md")) + [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples/README.md",
]
BLOCK = re.compile(r"^(?:<!-- not run: (?P<reason>.+?) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
SHORT = "steps='2048', compile='off', quiet=True"


def read_blocks(page: Path, kind: str) -> list[tuple[str, str | None]]:
    """The blocks of a page, each with the reason why it is not run."""
    return [(block["text"], block["reason"]) for block in BLOCK.finditer(page.read_text()) if block["kind"] == kind]


def pages_with(kind: str) -> list[Path]:
    return [page for page in PAGES if any(reason is None for _, reason in read_blocks(page, kind))]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", pages_with("python"), ids=name_of)
def test_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = [shorten(text) for text, reason in read_blocks(page, "python") if reason is None]
    (tmp_path / "page.py").write_text("\n".join(texts))
    runpy.run_path(str(tmp_path / "page.py"))


def shorten(text: str) -> str:
    return re.sub(r"\bsteps=\"[^\"]+\"(, quiet=True)?", SHORT, text)


def commands_of(page: Path) -> list[str]:
    lines = [
        line
        for text, reason in read_blocks(page, "")
        if reason is None
        for line in text.replace("\\\n", " ").splitlines()
    ]
    return [line.partition("#")[0].strip() for line in lines if line.startswith("spo ")]


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=name_of)
def test_commands_of_a_page_are_accepted(page):
    for line in commands_of(page):
        _, name, *words = shlex.split(line)
        if name == "train":
            parse_train(words)
        elif COMMANDS[name].arguments:
            assert parse(COMMANDS[name].arguments, words, f"spo {name}"), line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_what_is_not_run_has_a_reason():
    """The list is printed with pytest -s."""
    blocks = [(page, reason) for page in PAGES for kind in ("", "python") for _, reason in read_blocks(page, kind)]
    left_out = [f"{name_of(page)}: {reason}" for page, reason in blocks if reason]
    print("", *left_out, sep="\n")
    assert len(left_out) < len(blocks) / 2 and all(len(reason) > 10 for _, reason in blocks if reason)
