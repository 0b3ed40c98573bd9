"""What the tests of all hosts share."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from spo.integrations.hosts import HOSTS

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


def run_example(heading: str, changes: dict[str, str] | None = None, **given: Any) -> dict[str, Any]:
    """What the page's example of a host leaves behind, run with the names that it takes as given.

    `changes` are texts of the example and what makes them short enough for a test.
    """
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    for text, other in (changes or {}).items():
        assert code.count(text) == 1, text
        code = code.replace(text, other)
    exec(compile(code, str(PAGE), "exec"), given)
    return given


def require_host(name: str) -> None:
    """Skips a module whose host is not installed; an environment in which that may not happen collects no test then."""
    host = HOSTS[name]
    if host.version is None:
        reason = f"{host.distribution} is not installed; make test-integrations has an environment with it"
        pytest.skip(reason, allow_module_level=True)


def parameters_of(module: nn.Module) -> list[Tensor]:
    return [value.detach().clone() for value in module.state_dict().values() if isinstance(value, Tensor)]


def are_equal(one: Iterable[Tensor], other: Iterable[Tensor]) -> bool:
    """Whether all parameters are the same to the bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def are_finite(tensors: Iterable[Tensor]) -> bool:
    return all(tensor.isfinite().all() for tensor in tensors)


class Guess(gym.Env):
    """Shows −1 or 1 and pays 1 for the action of that sign; an episode is one step, and chance earns a half."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(2))
        return self._observe(), {}

    def step(self, action):
        reward = float(action == self.shown)
        return self._observe(), reward, True, False, {}

    def _observe(self) -> np.ndarray:
        return np.array([2 * self.shown - 1], np.float32)
