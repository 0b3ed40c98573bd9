"""The libraries, and the Python that runs each: this one, or that of a virtual environment made for the library."""

import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parents[1]
VENVS = HERE / ".venvs"
CONSTRAINTS = HERE.parent / "constraints.txt"
INSTALLED = "installed"
"""The file that says that pip was done with a virtual environment."""
ENGINES = ("torch", "numpy", "gymnasium", "mujoco", "ale-py", "opencv-python-headless")
"""What does the work, and so has the tested version for all."""


@dataclass(frozen=True)
class Peer:
    """A library: its job in `jobs/`, what pip installs, and what is then importable."""

    job: str
    requirement: str
    package: str
    plays_atari: bool = False
    own_versions: tuple[str, ...] = ()  # engines that the library pins by itself


OURS = "spo"
PEERS = {
    OURS: Peer("spo", "simple-policy-optimization", "spo", plays_atari=True),
    "stable-baselines3": Peer("stable_baselines3", "stable-baselines3==2.9.2", "stable_baselines3", plays_atari=True),
    "sbx": Peer("sbx", "sbx-rl==0.28.0", "sbx"),
    "tianshou": Peer("tianshou", "tianshou==2.0.1", "tianshou"),
    "skrl": Peer("skrl", "skrl==2.1.1", "skrl"),
    "rl_games": Peer("rl_games", "rl-games==1.6.5", "rl_games"),
    "torchrl": Peer("torchrl", "torchrl==0.14.1", "torchrl"),
    "rllib": Peer("rllib", "ray[rllib]==2.60.0", "ray", own_versions=("gymnasium",)),
}


def python_of(name: str) -> Path | None:
    """The Python that has the library; None if none has. What pins engines otherwise never shares this one."""
    if find_spec(PEERS[name].package) and not PEERS[name].own_versions:
        return Path(sys.executable)
    return own_python(name) if (VENVS / name / INSTALLED).exists() else None


def own_python(name: str) -> Path:
    return VENVS / name / "bin" / "python"


def set_up(name: str) -> None:
    """Makes a virtual environment for a library that is not installed here; a failure leaves the others alone."""
    python = python_of(name)
    if python:
        print(f"{name}: {python}")
        return
    print(f"{name}: installing {PEERS[name].requirement} (a few minutes)", flush=True)
    if not make_venv(VENVS / name, requirements(PEERS[name]), engine_pins(PEERS[name])):
        print(f"{name}: pip could not install it, so it is left out")


def make_venv(path: Path, requirements: list[str], pins: str) -> bool:
    """Makes a virtual environment with what pip is asked for, once; False if pip cannot install it."""
    if (path / INSTALLED).exists():
        return True
    subprocess.run([sys.executable, "-m", "venv", path], check=True)
    (path / "pins.txt").write_text(pins)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", path / "pins.txt"]
    if subprocess.run([path / "bin" / "python", *install, *requirements]).returncode:
        return False
    (path / INSTALLED).touch()
    return True


def requirements(peer: Peer) -> list[str]:
    atari = ["ale-py", "opencv-python-headless"] if peer.plays_atari else []
    return [peer.requirement, "torch", "gymnasium[mujoco]", *atari]


def engine_pins(peer: Peer) -> str:
    """The lines of the project's constraints that hold for this library too."""
    return pins_of(set(ENGINES) - set(peer.own_versions))


def pins_of(names: set[str]) -> str:
    return "".join(f"{line}\n" for line in CONSTRAINTS.read_text().splitlines() if line.split("==")[0] in names)
