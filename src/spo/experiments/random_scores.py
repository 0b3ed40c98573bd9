"""What a policy of uniformly random actions scores in each Atari game, measured with the standard wrappers.

Published tables disagree (Video Pinball: 0 or 16,257), and each stands for its own no-ops, skips and lives. So the
returns in random_scores.json were played here; `python -m spo.experiments.random_scores [GAME ...]` plays the named
games again, or all of suite atari35.
"""

import json
import sys
from collections.abc import Iterable
from importlib import resources

import numpy as np

from spo.errors import SpoError
from spo.runtime.seeding import derive_seed, generator

EPISODES = 20
PURPOSE = "random play"
COMMAND = "python -m spo.experiments.random_scores"


def returns() -> dict[str, list[float]]:
    """The measured returns of every game."""
    return json.loads(_file().read_text())


def random_scores(games: Iterable[str]) -> dict[str, float]:
    """The mean return of random play in each game."""
    known = returns()
    for game in games:
        if game not in known:
            raise SpoError(f"random play was not measured in {game}; {COMMAND} {game} does it")
    return {game: float(np.mean(known[game])) for game in games}


def play(game: str, episode: int) -> float:
    """The return of one whole game; its seed and actions depend on the episode's number alone."""
    from spo.envs.atari import make_atari

    env, draw = make_atari(game, full_games=True), generator(0, PURPOSE, episode)
    env.reset(seed=derive_seed(0, PURPOSE, episode))
    total, is_over = 0.0, False
    while not is_over:
        _, reward, terminated, truncated, _ = env.step(draw.integers(env.action_space.n))
        total, is_over = total + float(reward), terminated or truncated
    env.close()
    return total


def main(games: list[str]) -> None:
    """Play and write down game by game, so that what was played before an end is kept."""
    from spo.experiments.plan import read_suite

    for game in games or read_suite("atari35").tasks:
        known = returns() | {game: [play(game, episode) for episode in range(EPISODES)]}
        rows = ",\n".join(f'  "{name}": {json.dumps(known[name])}' for name in sorted(known))
        _file().write_text(f"{{\n{rows}\n}}\n")
        print(f"{game}: {np.mean(known[game]):.1f}", flush=True)


def _file():
    return resources.files("spo.experiments").joinpath("random_scores.json")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SpoError as refusal:
        print(f"error: {refusal}", file=sys.stderr)
        sys.exit(2)
