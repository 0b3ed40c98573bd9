"""When a run has reached the return that was asked for: `--stop-at`."""

from collections import deque

from spo.algorithms.metrics import Row
from spo.runs.loggers import Logger

EPISODES = 100
"""Whose mean return counts where a run makes no evaluations."""


class ReturnGoal(Logger):
    """A logger that tells whether an evaluation, or the last 100 episodes where there is none, reached a return."""

    def __init__(self, goal: float, has_evaluations: bool):
        self.goal, self.has_evaluations = goal, has_evaluations
        self.returns: deque[float] = deque(maxlen=EPISODES)
        self.reached: str | None = None
        """How the goal was reached, in words."""

    def write(self, row: Row, episodes: list[Row]) -> None:
        self.rewind([], episodes)
        found = row.get("eval_return_mean") if self.has_evaluations else self._mean()
        if found is not None and found >= self.goal:
            what = "the evaluation's mean return" if self.has_evaluations else f"the mean return of {EPISODES} episodes"
            self.reached = f"{what}, {found:.1f}, reached --stop-at {self.goal:g}"

    def rewind(self, rows: list[Row], episodes: list[Row]) -> None:
        self.returns.extend(episode["return"] for episode in episodes)

    def _mean(self) -> float | None:
        return sum(self.returns) / EPISODES if len(self.returns) == EPISODES else None
