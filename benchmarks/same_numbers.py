"""Shows that a change of the code changed no number: eight short runs from a commit and from the working tree.

    python benchmarks/same_numbers.py COMMIT

Policies must be equal byte by byte, rows of metrics and episodes too, apart from times. Names that changed since are
compared under their new ones. Exit code 1 if anything differs.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import gymnasium as gym
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
TIMES = {"wall_time", "steps_per_second"}
SMALL = ["--envs", "4", "--horizon", "64", "--epochs", "3"]
CLASSIC = ["--preset", "classic", "--steps", "1500", *SMALL]
MUJOCO = ["--preset", "mujoco", "--steps", "1500", *SMALL]
RUNS = {
    "hopper": ["Hopper-v4", *MUJOCO, "--objective", "spo", "--compile", "off"],
    "hopper-compiled": ["Hopper-v4", *MUJOCO, "--objective", "spo", "--compile", "on"],
    "penalty-paper": ["HalfCheetah-v4", *MUJOCO, "--objective", "ppo-penalty", "--paper", "--compile", "off"],
    "trpo": ["CartPole-v1", *CLASSIC, "--objective", "trpo", "--compile", "off"],
    "reflective": ["CartPole-v1", *CLASSIC, "--objective", "rpo-reflective", "--compile", "on"],
    "image": ["same_numbers:Picture-v0", *CLASSIC, "--objective", "spo", "--compile", "off"],
    "masked": ["same_numbers:Masked-v0", *CLASSIC, "--objective", "spo", "--compile", "off"],
    "masked-penalty": ["same_numbers:Masked-v0", *CLASSIC, "--objective", "ppo-penalty", "--compile", "on"],
}


class Picture(gym.Env):
    """Names the brighter half of a small picture."""

    observation_space = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._draw(), {}

    def _draw(self) -> np.ndarray:
        picture = self.np_random.integers(0, 128, (16, 16, 3), dtype=np.uint8)
        self.brighter = int(self.np_random.integers(2))
        picture[:, 8 * self.brighter : 8 * self.brighter + 8] += 100
        return picture

    def step(self, action):
        reward, self.time = float(action == self.brighter), self.time + 1
        return self._draw(), reward, self.time == 20, False, {}


class Masked(gym.Env):
    """Picks the largest of five numbers, two of which may not be picked."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (5,), np.float32)
    action_space = gym.spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._draw()

    def _draw(self) -> tuple[np.ndarray, dict]:
        self.numbers = self.np_random.standard_normal(5).astype(np.float32)
        mask = np.ones(5, np.int8)
        mask[self.np_random.choice(5, 2, replace=False)] = 0
        return self.numbers, {"action_mask": mask}

    def step(self, action):
        reward, self.time = float(self.numbers[action]), self.time + 1
        observation, info = self._draw()
        return observation, reward, False, self.time == 15, info


for _name, _kind in (("Picture-v0", Picture), ("Masked-v0", Masked)):
    if _name not in gym.registry:
        gym.register(_name, entry_point=_kind)


def train_all(source: Path, out: Path) -> None:
    """Make every run with the package in `source`."""
    path = os.pathsep.join([str(source), str(Path(__file__).parent)])
    for name, arguments in RUNS.items():
        command = [sys.executable, "-m", "spo", "train", *arguments, "--quiet", "--out", str(out / name)]
        done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{name} from {source} failed: {done.stderr.strip()}")


def read_run(directory: Path) -> dict[str, object]:
    """Everything of a run that must not change."""
    policy = hashlib.sha256((directory / "policy" / "policy.safetensors").read_bytes()).hexdigest()
    return {
        "policy.safetensors": policy,
        "metrics": read_rows(directory / "metrics.jsonl"),
        "episodes": read_rows(directory / "episodes.jsonl"),
    }


def read_rows(path: Path) -> list[dict[str, float]]:
    from spo.runs.directory import FORMER_NAMES

    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{FORMER_NAMES.get(name, name): row[name] for name in row if name not in TIMES} for row in rows]


def compare_rows(before: list[dict], after: list[dict]) -> str:
    """What differs first; a name that only the newer rows have is no difference."""
    if len(before) != len(after):
        return f"{len(before)} rows before, {len(after)} after"
    for number, (old, new) in enumerate(zip(before, after), 1):
        for name, value in old.items():
            if new.get(name) != value:
                return f"row {number}: {name} was {value}, is {new.get(name)}"
    return ""


def differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    found = [] if before["policy.safetensors"] == after["policy.safetensors"] else ["the policy differs"]
    for name in ("metrics", "episodes"):
        if text := compare_rows(before[name], after[name]):
            found.append(f"{name}: {text}")
    return found


def main(commit: str) -> int:
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        base = scratch / "base"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--detach", "--force", base, commit], check=True)
        try:
            train_all(base / "src", scratch / "before")
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", base], check=True)
        train_all(ROOT / "src", scratch / "after")
        found = {
            name: differences(read_run(scratch / "before" / name), read_run(scratch / "after" / name)) for name in RUNS
        }
    for name, texts in found.items():
        print(f"{name:16} {'; '.join(texts) or 'equal'}")
    return int(any(found.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="what the working tree is compared with")
    sys.exit(main(parser.parse_args().commit))
