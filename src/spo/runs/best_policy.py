"""The policy with the best evaluation so far, kept as best/ITERATION: `--keep-best`.

A new one appears all at once. Those that it replaces stay until every checkpoint is newer than it: a run that resumes
from an older one drops what came later, and what was best until then is still there.
"""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from spo.algorithms.metrics import Row
from spo.models.policy import Policy
from spo.models.policy_files import list_best, save_policy
from spo.runs.checkpoint import list_checkpoints
from spo.runs.directory import RunDirectory
from spo.runs.loggers import Logger
from spo.runtime.files import sync


class BestPolicyKeeper(Logger):
    """A logger that keeps the policy whose evaluation has the highest mean return; of equal ones the first."""

    def __init__(self, run: RunDirectory, take_policy: Callable[[], Policy]):
        self.run, self.take_policy = run, take_policy
        self.highest = -math.inf

    def write(self, row: Row, episodes: list[Row]) -> None:
        if row.get("eval_return_mean", -math.inf) > self.highest:
            self.highest = row["eval_return_mean"]
            self._keep(int(row["iteration"]))

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        """Drop what was best only after the point from which the run goes on."""
        self.highest = max((row.get("eval_return_mean", -math.inf) for row in rows), default=-math.inf)
        last = rows[-1]["iteration"] if rows else 0
        for leftover in self.run.best.glob(".*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for folder in list_best(self.run.path):
            if int(folder.name) > last:
                _remove(folder)

    def _keep(self, iteration: int) -> None:
        folder = self.run.best / f"{iteration:08}"
        hidden = folder.with_name(f".new-{folder.name}")
        shutil.rmtree(hidden, ignore_errors=True)
        self.run.best.mkdir(exist_ok=True)
        save_policy(self.take_policy(), hidden)
        sync(hidden)
        hidden.rename(folder)
        sync(self.run.best)
        self._prune()

    def _prune(self) -> None:
        oldest = min((int(path.name) for path in list_checkpoints(self.run)), default=0)
        known = [folder for folder in list_best(self.run.path) if int(folder.name) <= oldest]
        for folder in known[1:]:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Renamed first, so that half a removal is never taken for a policy."""
    shutil.rmtree(folder.rename(folder.with_name(f".old-{folder.name}")), ignore_errors=True)
