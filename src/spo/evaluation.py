"""Episodes with a frozen policy and frozen statistics, and a video of them."""

import ctypes.util
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np

from spo.envs.make import MakeEnv
from spo.envs.sync import mask_of
from spo.errors import ConfigError, EnvError, SpoError
from spo.models.policy import Policy
from spo.runtime.seeding import derived_seed
from spo.runtime.signals import stop_if_asked


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns of whole episodes, with the rewards as the environment gave them."""

    return_mean: float
    return_std: float
    returns: list[float]
    lengths: list[int]
    seed: int
    deterministic: bool

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def evaluate_policy(
    policy: Policy,
    make_env: MakeEnv,
    episodes: int = 10,
    seed: int = 0,
    deterministic: bool = True,
    video: str | None = None,
) -> Evaluation:
    """Plays whole episodes; with `video`, records them into one file."""
    env = _recorded(make_env) if video else make_env(whole_games=True)
    frames: list[np.ndarray] = []
    policy.seed(seed)
    try:
        played = [
            play(policy, env, derived_seed(seed, "evaluation", episode), deterministic, _recorder(env, frames, video))
            for episode in range(episodes)
        ]
        if video:
            write_video(video, frames, env.metadata.get("render_fps", 30))
    except SpoError:
        raise
    except Exception as error:
        raise EnvError(f"the environment raised {type(error).__name__} in an evaluation: {error}") from error
    finally:
        env.close()
    returns, lengths = [list(column) for column in zip(*played)]
    return Evaluation(float(np.mean(returns)), float(np.std(returns)), returns, lengths, seed, deterministic)


def play(
    policy: Policy, env: gym.Env, seed: int, deterministic: bool, on_frame: Callable[[], None]
) -> tuple[float, int]:
    """One episode: its return and its length."""
    observation, info = env.reset(seed=seed)
    total, length, done = 0.0, 0, False
    while not done:
        stop_if_asked()
        on_frame()
        action = policy.act(observation, deterministic, mask_of(env, info))
        observation, reward, terminated, truncated, info = env.step(action)
        total, length, done = total + float(reward), length + 1, terminated or truncated
    on_frame()
    return total, length


def _recorder(env: gym.Env, frames: list[np.ndarray], video: str | None) -> Callable[[], None]:
    return (lambda: frames.append(env.render())) if video else lambda: None


def _recorded(make_env: MakeEnv) -> gym.Env:
    """An environment that renders to arrays, also on a machine without a screen."""
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl" if ctypes.util.find_library("EGL") else "osmesa")
    try:
        return make_env(whole_games=True, render_mode="rgb_array")
    except SpoError as error:
        raise SpoError(f"--video cannot be recorded: {error}")


def write_video(path: str, frames: list[np.ndarray], fps: int) -> None:
    """Encodes the frames as H.264 in the container that the file name asks for."""
    try:
        import imageio.v2 as imageio
    except ImportError:
        raise ConfigError("--video needs: pip install 'simple-policy-optimization[video]'")
    if Path(path).suffix != ".mp4":
        raise ConfigError(f"--video {path} is not accepted: the name must end in .mp4")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    imageio.mimwrite(path, frames, fps=fps, macro_block_size=2)
