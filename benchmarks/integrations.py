"""The tests of every host in an environment that has it, and a look at the hosts' newest releases.

    python benchmarks/integrations.py test [HOST ...]     # make test-integrations
    python benchmarks/integrations.py scan [HOST ...]     # make scan-integrations

`test` runs hosts that are dev dependencies with this Python, and makes a virtual environment in `.venvs` for each other
one. `scan` downloads each host's newest wheel, installs nothing, and looks whether what is rewritten or relied on is
still there.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from lib.venvs import HERE, make_venv, pins_of
from spo.integrations.hosts import HOSTS, Host
from spo.integrations.rewriting import find_expressions

ROOT = HERE.parent
VENVS = ROOT / ".venvs"
BESIDE = ("sb3", "sb3_contrib", "rsl_rl", "skrl", "torchrl", "trl")
"""Hosts that install beside the project, and so are part of `make test-rest` too."""
OTHERS = {
    "rllib": ["ray[rllib]=={}"],
    "brax": ["brax=={}", "jax<0.10", "jaxlib<0.10"],
    "zoo": ["rl_zoo3=={}", "requests"],
}
"""What pip is asked for where it is not the host alone."""
OLDER = {"rsl_rl": ["3.0.1", "3.3.0", "4.0.0", "5.4.2"]}
"""Older releases that simulators pin, tested too."""


@dataclass(frozen=True)
class Case:
    """A host's tests, and the release that they run with; None is the one beside the project."""

    host: Host
    release: str | None = None

    @property
    def title(self) -> str:
        return f"{self.host.name} {self.release or self.host.version}"

    @property
    def is_alone(self) -> bool:
        """Whether pip may choose all other versions by itself: beside the project only the host differs."""
        return self.host.name not in BESIDE

    def python(self) -> Path | None:
        """A Python that has the release; None if pip cannot install it."""
        if self.release is None:
            return Path(sys.executable)
        path = VENVS / f"{self.host.name}-{self.release}"
        made = make_venv(path, self.requirements(), pins_of({"torch"}) if self.is_alone else "")
        if made and not self.is_alone:
            add_site_packages(path)
        return path / "bin" / "python" if made else None

    def requirements(self) -> list[str]:
        if not self.is_alone:
            return ["--no-deps", f"{self.host.distribution}=={self.release}", "--editable", str(ROOT)]
        wanted = OTHERS.get(self.host.name, [self.host.distribution + "=={}"])
        tools = ["torch", "gymnasium", "pytest", "hypothesis"]
        return [*(one.format(self.release) for one in wanted), *tools, "--editable", str(ROOT)]


def add_site_packages(path: Path) -> None:
    """Lets an environment see this one's packages, after its own."""
    own = next((path / "lib").glob("python*")) / "site-packages"
    here = Path(sys.prefix) / own.relative_to(path)
    (own / "beside.pth").write_text(f"import site; site.addsitedir({str(here)!r})\n")


def cases(names: list[str]) -> list[Case]:
    found = [Case(HOSTS[name], None if name in BESIDE else HOSTS[name].tested) for name in names]
    return found + [Case(HOSTS[name], release) for name in names for release in OLDER.get(name, ())]


def test(names: list[str]) -> bool:
    """Whether the tests of all hosts pass; a module that is skipped collects nothing, and that is a failure here."""
    results = []
    for case in cases(names):
        print(f"\n{case.title}", flush=True)
        python, started = case.python(), time.perf_counter()
        if python is None:
            results.append((case, "cannot be installed", 0.0))
            continue
        command = [python, "-m", "pytest", f"tests/integrations/test_{case.host.name}.py"]
        code = subprocess.run(command, cwd=ROOT, env=os.environ | {"SPO_TEST_HOST": case.host.name}).returncode
        results.append((case, "passes" if code == 0 else f"fails ({code})", time.perf_counter() - started))
    print()
    for case, result, seconds in results:
        print(f"{case.title:24} {result:20} {seconds:6.1f} s")
    return all(result == "passes" for _, result, _ in results)


def scan(names: list[str]) -> bool:
    """Whether the newest releases of all hosts have what is looked for."""
    are_there = True
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            wheel = download(HOSTS[name], Path(directory))
            lines = [f"{name}: no wheel"] if wheel is None else look(HOSTS[name], wheel)
        print(*lines, sep="\n", flush=True)
        are_there &= all(line.endswith(" ok") for line in lines)
    return are_there


def download(host: Host, directory: Path) -> Path | None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--only-binary", ":all:", "--dest", directory, host.distribution])
    return next(directory.glob("*.whl"), None)


def look(host: Host, wheel: Path) -> list[str]:
    release = wheel.name.split("-")[1]
    lines = []
    with zipfile.ZipFile(wheel) as archive:
        for (file, function), expected in host.places.items():
            found = count(archive, file, function)
            verdict = "ok" if found == expected or (found is not None and expected == 0) else f"expected {expected}"
            what = "is gone" if found is None else f"has {found} expressions" if expected else "is there"
            lines.append(f"{host.distribution} {release} (tested {host.tested}): {function} {what}, {verdict}")
    return lines


def count(archive: zipfile.ZipFile, file: str, function: str) -> int | None:
    """How many expressions of PPO a function has in a wheel's source; None if it is not there."""
    if file not in archive.namelist():
        return None
    body = ast.parse(archive.read(file)).body
    for name in function.split("."):
        node = next((one for one in body if getattr(one, "name", None) == name), None)
        if node is None:
            return None
        body = node.body
    return len(find_expressions(node))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("deed", choices=["test", "scan"])
    parser.add_argument("hosts", nargs="*", metavar="HOST", help=f"of {', '.join(HOSTS)}; all if none is named")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.hosts if name not in HOSTS]
    if unknown:
        parser.error(f"{', '.join(unknown)} is unknown; accepted: {', '.join(HOSTS)}")
    deed = {"test": test, "scan": scan}[arguments.deed]
    sys.exit(0 if deed(arguments.hosts or list(HOSTS)) else 1)


if __name__ == "__main__":
    main()
