"""The pages are true: their Python and their commands run, and their links lead somewhere.

A block that cannot be run stands below a comment that says why, `<!-- not run: REASON -->`. Blocks of a page run one
after the other, as a reader would; trainings are shortened to a few iterations. Pages whose commands start processes or
draw are run by `make test-long`, of these `make test` asks only whether the command line accepts them.
"""

import re
import runpy
import shlex
import shutil
from pathlib import Path

import pytest

from page_commands import carry_out, is_quick, reason_for
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


def test_every_block_is_of_a_kind_that_is_looked_after():
    """Commands have no kind; a picture or a patch is neither a command nor Python."""
    kinds = {(name_of(page), block["kind"]) for page in PAGES for block in BLOCK.finditer(page.read_text())}
    assert [(page, kind) for page, kind in kinds if kind not in ("", "python", "toml", "text", "diff")] == []
    fences = {page: len(re.findall(r"^\s*```", page.read_text(), re.M)) for page in PAGES}
    found = {page: 2 * len(list(BLOCK.finditer(page.read_text()))) for page in PAGES}
    assert fences == found  # none is indented, or ends otherwise, and so overlooked


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


def lines_of(page: Path) -> list[str]:
    """The lines of a page's blocks of commands, without what is said of them and where their output goes."""
    texts = [text.replace("\\\n", " ") for text, reason in read_blocks(page, "") if reason is None]
    lines = [re.split(" #| >", line)[0].strip() for text in texts for line in text.splitlines()]
    return [line for line in lines if line]


def commands_of(page: Path) -> list[str]:
    return [line for line in lines_of(page) if line.startswith("spo ")]


def runs_long(page: Path) -> bool:
    return not all(is_quick(shlex.split(line)[1:]) for line in commands_of(page) if not reason_for(line))


def mark(page: Path) -> object:
    return pytest.param(page, marks=pytest.mark.long if runs_long(page) else ())


@pytest.mark.parametrize("page", [mark(page) for page in PAGES if commands_of(page)], ids=name_of)
def test_commands_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text, _ in read_blocks(page, "toml"):
        (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    for line in commands_of(page):
        if not reason_for(line):
            copy_published(line, tmp_path)
            carry_out(shlex.split(line)[1:])


def copy_published(line: str, folder: Path) -> None:
    """What a command reads of results/, where a command may write beside it."""
    for name in re.findall(r"results/[\w./-]+", line):
        if (ROOT / name).is_dir() and not (folder / name).exists():
            shutil.copytree(ROOT / name, folder / name)


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=name_of)
def test_commands_of_a_page_are_accepted(page):
    for line in commands_of(page):
        _, name, *words = shlex.split(line)
        if name == "train" and "--config" not in words:  # a file that an earlier command makes
            parse_train(words)
        elif COMMANDS[name].arguments:
            assert parse(COMMANDS[name].arguments, words, f"spo {name}"), line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_of_a_page_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_what_is_not_run_has_a_reason():
    """The list is printed with pytest -s."""
    lines = [(page, line, reason_for(line)) for page in PAGES for line in lines_of(page)]
    print("", *(f"{name_of(page)}: {line}: {why}" for page, line, why in lines if why), sep="\n")
    assert [line for _, line, why in lines if not why and not line.startswith("spo ")] == []
    blocks = [(page, reason) for page in PAGES for kind in ("", "python") for _, reason in read_blocks(page, kind)]
    left_out = [f"{name_of(page)}: {reason}" for page, reason in blocks if reason]
    print("", *left_out, sep="\n")
    assert len(left_out) < len(blocks) / 2 and all(len(reason) > 10 for _, reason in blocks if reason)
