"""Atari games with the standard pre-processing or the authors', and the wrappers that Gymnasium does not have."""

from typing import Any

import gymnasium as gym

from spo.config.env_ids import SUFFIX, game_of
from spo.errors import EnvError

INSTALL = "pip install 'simple-policy-optimization[atari]'"


def make_atari(
    env_id: str, full_games: bool = False, noop_max: int = 30, wrappers: str = "standard", **keywords: object
) -> gym.Env:
    """A game with no-op starts, four frames a step (the maximum of the last two), an episode per life, FIRE to start,
    grey 84 × 84 pictures, four of them seen at once. Rewards stay raw: learning clips them, reports do not."""
    _register()
    name = game_of(env_id) + SUFFIX
    if name not in gym.registry:
        raise EnvError(f"environment {env_id!r} is neither a registered Gymnasium id nor an Atari game")
    wrapped = _as_the_authors_do if wrappers == "authors" else _as_usual
    return gym.wrappers.FrameStackObservation(wrapped(name, full_games, noop_max, keywords), 4)


def _as_usual(name: str, full_games: bool, noop_max: int, keywords: dict[str, object]) -> gym.Env:
    """The emulator's own grey, then the maximum, then the size; FIRE alone starts a game."""
    game = gym.make(name, obs_type="grayscale", disable_env_checker=True, **keywords)
    env = gym.wrappers.AtariPreprocessing(game, noop_max=noop_max, frame_skip=4, screen_size=84)
    env = env if full_games else EpisodicLife(env)
    return FireReset(env) if _has_fire(game) else env


def _as_the_authors_do(name: str, full_games: bool, noop_max: int, keywords: dict[str, object]) -> gym.Env:
    """The maximum in colour, then the size, then grey, as the wrappers in the authors' atari/main.py follow another."""
    game = gym.make(name, obs_type="rgb", disable_env_checker=True, **keywords)
    env = gym.wrappers.MaxAndSkipObservation(NoopReset(game, noop_max), 4)
    env = env if full_games else EpisodicLife(env)
    env = FireAndMoveReset(env) if _has_fire(game) else env
    return gym.wrappers.GrayscaleObservation(gym.wrappers.ResizeObservation(env, (84, 84)))


def _has_fire(game: gym.Env) -> bool:
    return "FIRE" in game.unwrapped.get_action_meanings()


def _register() -> None:
    try:
        import ale_py
        import cv2  # noqa: F401  (Gymnasium resizes with it)
    except ImportError:
        raise EnvError(f"Atari games need: {INSTALL}")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gym.register_envs(ale_py)


class EpisodicLife(gym.Wrapper):
    """Ends an episode with each life; the game goes on, and `info["life_lost"]` says so."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self.lives, self.has_lost_life = 0, False

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        lives = self.env.unwrapped.ale.lives()
        self.has_lost_life = 0 < lives < self.lives and not (terminated or truncated)
        self.lives = lives
        info = info | {"life_lost": self.has_lost_life}
        return observation, reward, terminated or self.has_lost_life, truncated, info

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start a new game; right after a lost life, one step without action goes on with the old one."""
        if self.has_lost_life:
            self.has_lost_life = False
            observation, _, terminated, truncated, info = self.env.step(0)
            if not (terminated or truncated):
                self.lives = self.env.unwrapped.ale.lives()
                return observation, info
        observation, info = self.env.reset(seed=seed, options=options)
        self.lives, self.has_lost_life = self.env.unwrapped.ale.lives(), False
        return observation, info


class FireReset(gym.Wrapper):
    """Presses FIRE after a reset, in games that wait for it."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.env.reset(seed=seed, options=options)
        observation, _, terminated, truncated, info = self.env.step(1)
        return self.env.reset(seed=seed, options=options) if terminated or truncated else (observation, info)


class FireAndMoveReset(gym.Wrapper):
    """Presses FIRE and then action 2 after a reset. What is seen is the second step, also where it ended a life."""

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        self.env.reset(seed=seed, options=options)
        for action in (1, 2):
            observation, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                self.env.reset(seed=seed, options=options)
        return observation, info


class NoopReset(gym.Wrapper):
    """Starts a game with 1 to `most` frames without action, a number that the game's own generator draws."""

    def __init__(self, env: gym.Env, most: int):
        super().__init__(env)
        self.most = most

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        observation, info = self.env.reset(seed=seed, options=options)
        for _ in range(self.unwrapped.np_random.integers(1, self.most + 1) if self.most > 0 else 0):
            observation, _, terminated, truncated, info = self.env.step(0)
            if terminated or truncated:
                observation, info = self.env.reset(seed=seed, options=options)
        return observation, info
