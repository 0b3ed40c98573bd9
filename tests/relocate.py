"""Follows lines and tests that moved to another file: re-anchors mutations.toml after a refactoring.

    python tests/relocate.py

An entry whose line is no longer where it says is led to the one file of src/spo that has it once; one whose test has
moved, to the file of tests that defines it. Entries whose line has changed are named, to be edited by hand.
"""

import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
RECORD, SOURCE = HERE / "mutations.toml", HERE.parent / "src" / "spo"


def relocate(record: str, source: Path, tests: Path) -> tuple[str, list[str]]:
    """The record with every entry led to its file, and what is said of those that could not be."""
    opening, *entries = record.split("[[mutation]]\n")
    code, checks = read_all(source, "*.py"), read_all(tests, "test_*.py")
    led, lost = [], []
    for entry in entries:
        mutation = tomllib.loads(entry)
        test, _, name = mutation["test"].partition("::")
        file, lines = find_one(mutation["file"], mutation["old"], code)
        home, _ = find_one(test, f"def {name.partition('[')[0]}(", checks)
        if file is None or home is None:
            what = f"its line stands in {lines} files" if file is None else f"no single file defines {name}"
            lost.append(f"{mutation['guard']} {what}")
        entry = re.sub(r'^file = ".*"$', f'file = "{file or mutation["file"]}"', entry, count=1, flags=re.M)
        led.append(re.sub(r'^test = ".*?::', f'test = "{home or test}::', entry, count=1, flags=re.M))
    return "[[mutation]]\n".join([opening, *led]), lost


def read_all(folder: Path, pattern: str) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob(pattern))}


def find_one(place: str, text: str, files: dict[str, str]) -> tuple[str | None, int]:
    """The file that has the text once, the recorded one before others; None if it is not one. How many have it."""
    found = [name for name, content in files.items() if content.count(text) == 1]
    if place in found:
        return place, len(found)
    return (found[0] if len(found) == 1 else None), len(found)


def main() -> int:
    before = RECORD.read_text()
    after, lost = relocate(before, SOURCE, HERE)
    RECORD.write_text(after)
    changed = sum(old != new for old, new in zip(before.splitlines(), after.splitlines()))
    print(f"{changed} lines of {RECORD.name} re-anchored")
    for sentence in lost:
        print(sentence)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
