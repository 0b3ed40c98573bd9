"""What a run came to. No torch here."""

from typing import Any

LAST_SHARE = 0.1
"""The share of a run, at its end, over which its return is reported."""
FEWEST_EPISODES = 8
"""Fewer than these in the last share, and the last so many are taken instead, and marked."""


def summarize(
    rows: list[dict[str, Any]], episodes: list[dict[str, Any]], total_steps: int, share: float = LAST_SHARE
) -> dict[str, float | bool | None]:
    """What a run came to: return over the last share of its steps, maximum ratio deviation, steps per second."""
    last = [float(row["return"]) for row in episodes if row["env_steps"] > (1 - share) * total_steps]
    is_short = len(last) < FEWEST_EPISODES
    if is_short:
        last = [float(row["return"]) for row in episodes[-FEWEST_EPISODES:]]
    return {
        "return": sum(last) / len(last) if last else None,
        "return_from_last_episodes": is_short,
        "ratio_deviation_max": max((float(row["ratio_deviation_max"]) for row in rows), default=None),
        "steps_per_second": rows[-1]["env_steps"] / rows[-1]["wall_time"] if rows else None,
        "env_steps": rows[-1]["env_steps"] if rows else 0,
    }
