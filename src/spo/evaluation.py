"""Episodes with a frozen policy and frozen statistics, and a video of them."""

import ctypes.util
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import numpy as np

from spo.envs.make import MakeEnv
from spo.envs.sync import mask_of
from spo.errors import ConfigError, EnvError, SpoError
from spo.models.policy import Policy
from spo.runtime.files import translate_os_errors
from spo.runtime.seeding import derive_seed
from spo.runtime.signals import raise_if_interrupted

OnStep = Callable[[int, int], None]
"""Is told the episode and its step, both from 0 and 1 on, after every step of an evaluation."""


class EvaluationProgress:
    """A line on standard error that says how far an evaluation is: rewritten on a terminal, else every ten seconds."""

    def __init__(self, episodes: int, max_steps: int | None = None):
        self.episodes, self.max_steps, self.is_terminal = episodes, max_steps, sys.stderr.isatty()
        self.every = 0.5 if self.is_terminal else 10.0
        self.next = time.monotonic() + 2 * self.every  # a short evaluation says nothing
        self.has_printed, self.started, self.steps = False, 0.0, 0

    def __call__(self, episode: int, step: int) -> None:
        self.steps += 1
        if self.steps == 1:
            self.started = time.monotonic()  # the first step also opens the renderer
        if time.monotonic() < self.next or self.steps == 1:
            return
        self.next = time.monotonic() + self.every
        limit = f" of at most {self.max_steps:,}" if self.max_steps else ""
        speed = (self.steps - 1) / (time.monotonic() - self.started)
        text = f"episode {episode + 1} of {self.episodes}, step {step:,}{limit}, {speed:,.3g} steps/s"
        start, end = ("\r\x1b[K", "") if self.is_terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)
        self.has_printed = True

    def close(self) -> None:
        if self.has_printed and self.is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


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
    max_steps: int | None = None,
    on_step: OnStep = lambda episode, step: None,
    render: bool = False,
) -> Evaluation:
    """Play whole episodes, or up to `max_steps` of each; `video` records them into a file, `render` shows them."""
    if video:
        check_video(video)
    if render:
        check_window(video)
    env = _make_window(make_env) if render else _make_rendered(make_env) if video else make_env(full_games=True)
    frames: list[np.ndarray] = []
    policy.seed(seed)
    try:
        record = (lambda: frames.append(_draw(env))) if video else lambda: None
        played = []
        for episode in range(episodes):
            first = derive_seed(seed, "evaluation", episode)
            played.append(play(policy, env, first, deterministic, record, max_steps, partial(on_step, episode)))
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
    policy: Policy,
    env: gym.Env,
    seed: int,
    deterministic: bool,
    on_frame: Callable[[], None],
    max_steps: int | None = None,
    on_step: Callable[[int], None] = lambda step: None,
) -> tuple[float, int]:
    """Play one episode, and return its return and its length."""
    observation, info = env.reset(seed=seed)
    total, length, done = 0.0, 0, False
    while not done:
        raise_if_interrupted()
        on_frame()
        action = policy.act(observation, deterministic, mask_of(env, info))
        observation, reward, terminated, truncated, info = env.step(action)
        if not math.isfinite(reward):
            raise EnvError(f"the environment returned the reward {reward} in an evaluation; it must be finite")
        total, length, done = total + float(reward), length + 1, terminated or truncated or length + 1 == max_steps
        on_step(length)
    on_frame()
    return total, length


def _draw(env: gym.Env) -> np.ndarray:
    """The environment's picture of itself, or a refusal before hours are played for nothing."""
    frame = env.render()
    if not isinstance(frame, np.ndarray):
        raise SpoError(f"--video cannot be recorded: render() of the environment returned a {type(frame).__name__}")
    return frame


def _make_rendered(make_env: MakeEnv) -> gym.Env:
    """An environment that renders to arrays, also on a machine without a screen."""
    if not os.environ.get("DISPLAY"):
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("MUJOCO_GL", "egl" if ctypes.util.find_library("EGL") else "osmesa")
    try:
        env = make_env(full_games=True, render_mode="rgb_array")
    except SpoError as error:
        raise SpoError(f"--video cannot be recorded: {error}{_hint_at_render_mode(error)}")
    follow_body(env)
    return env


def follow_body(env: gym.Env) -> None:
    """Let MuJoCo's camera go along where it would stay at the start: a robot that runs is out of sight in a second."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None or renderer.camera_id != -1 or "trackbodyid" in (renderer.default_cam_config or {}):
        return
    from mujoco import mj_name2id, mjtObj

    renderer.camera_id = mj_name2id(renderer.model, mjtObj.mjOBJ_CAMERA, "track")  # -1, as before, if there is none


def _make_window(make_env: MakeEnv) -> gym.Env:
    """An environment that draws itself into a window."""
    try:
        env = make_env(full_games=True, render_mode="human")
    except SpoError as error:
        raise SpoError(f"--render cannot show it: {error}{_hint_at_render_mode(error)}")
    if env.render_mode != "human":
        env.close()
        modes = ", ".join(map(str, env.metadata.get("render_modes") or ())) or "nothing"
        raise SpoError(f"--render cannot show it: the environment draws {modes}")
    follow_body(env)
    return env


def _hint_at_render_mode(error: SpoError) -> str:
    """Name the argument that environments of one's own often lack."""
    is_refused = isinstance(error.__cause__, TypeError)
    return " (its constructor must take render_mode, and its render() return frames)" if is_refused else ""


def check_window(video: str | None) -> None:
    """Refuse, before anything is played, a window where there is no screen."""
    if video:
        raise ConfigError(f"--render and --video {video} exclude each other: an environment draws to one place")
    has_screen = sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if not has_screen:
        raise ConfigError("--render needs a display, and there is none here; --video FILE.mp4 records the episodes")


def check_video(path: str) -> None:
    """Refuse, before anything is played, what could not be written in the end."""
    if find_spec("imageio") is None or find_spec("imageio_ffmpeg") is None:
        raise ConfigError("--video needs: pip install 'simple-policy-optimization[video]'")
    if Path(path).suffix != ".mp4":
        raise ConfigError(f"--video {path} is not accepted: the name must end in .mp4")
    with translate_os_errors(path):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        is_new = not os.path.lexists(path)
        Path(path).open("ab").close()
        if is_new:
            os.remove(path)


def write_video(path: str, frames: list[np.ndarray], fps: int) -> None:
    """Encode the frames as H.264 in the container that the file name asks for."""
    import imageio.v2 as imageio

    try:
        imageio.mimwrite(path, frames, fps=fps, macro_block_size=2)
    except OSError as error:  # its first line: then come the encoder's command and output
        raise SpoError(f"{path} cannot be written to: {str(error).splitlines()[0]}") from error
