"""The tests of experiment trackers with the libraries themselves: `make test-trackers`.

MLflow and Trackio do not resolve beside the versions that the project is tested with, so each has a virtual environment
in `.venvs`, made by the pip line that docs/training.md names.
"""

import argparse
import os
import subprocess
import sys

from lib.venvs import HERE, make_venv, pins_of

ROOT = HERE.parent
TRACKERS = ("wandb", "mlflow", "trackio")


def test(name: str) -> bool:
    """Whether the tracker's tests pass in an environment of its own; a test that is skipped there has failed."""
    path = ROOT / ".venvs" / f"tracker-{name}"
    wanted = [f"{ROOT}[{name}]", "pytest", "hypothesis"]
    if not make_venv(path, ["--editable", *wanted], pins_of({"torch"})):
        print(f"{name}: pip could not install it")
        return False
    command = [path / "bin" / "python", "-m", "pytest", "tests/runs/test_trackers.py", "-k", name]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"SPO_TEST_TRACKER": name}).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trackers", nargs="*", metavar="TRACKER", help=f"of {', '.join(TRACKERS)}; all unless named")
    names = parser.parse_args().trackers or list(TRACKERS)
    if unknown := [name for name in names if name not in TRACKERS]:
        parser.error(f"{', '.join(unknown)} is unknown; accepted: {', '.join(TRACKERS)}")
    results = {name: test(name) for name in names}
    print(*(f"{name:10} {'passes' if has_passed else 'fails'}" for name, has_passed in results.items()), sep="\n")
    sys.exit(0 if all(results.values()) else 1)


if __name__ == "__main__":
    main()
