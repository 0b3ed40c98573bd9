"""Policies of the same task side by side, as one animated picture.

    python examples/side_by_side.py RUN RUN out.webp

Each plays by itself from the same start, under the return that it has so far; the last picture of an episode stays.
"""

import ctypes.util
import os
import sys

import gymnasium as gym
import numpy as np
from PIL import Image, ImageDraw

import spo

SIZE, CAPTION = (320, 240), 22
"""Pixels of a policy's picture, and of the line above it."""


def film(policy: spo.Policy, label: str, frames: int, every: int, seed: int) -> list[Image.Image]:
    """One deterministic episode, a picture for every so many steps."""
    camera = {"camera_name": "track"} if "mujoco" in str(gym.spec(policy.spec.env).entry_point) else {}  # goes along
    env, pictures = gym.make(policy.spec.env, render_mode="rgb_array", **camera), []
    observation, _ = env.reset(seed=seed)
    total, is_over = 0.0, False
    for step in range(frames * every):
        if step % every == 0:
            pictures.append(pictures[-1] if is_over else caption(env.render(), f"{label}: {total:,.0f}"))
        if not is_over:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            total, is_over = total + float(reward), terminated or truncated
    env.close()
    return pictures


def caption(frame: np.ndarray, text: str) -> Image.Image:
    picture = Image.new("RGB", (SIZE[0], SIZE[1] + CAPTION), "white")
    picture.paste(Image.fromarray(frame).resize(SIZE), (0, CAPTION))
    ImageDraw.Draw(picture).text((6, 4), text, fill="black", font_size=14)
    return picture


def join(pictures: tuple[Image.Image, ...]) -> Image.Image:
    row = Image.new("RGB", (len(pictures) * SIZE[0], pictures[0].height))
    for number, picture in enumerate(pictures):
        row.paste(picture, (number * SIZE[0], 0))
    return row


def main(runs: list[str], out: str, frames: int = 80, every: int = 2, fps: int = 10, seed: int = 0) -> None:
    """Film each run's policy and write all of them, side by side, into one file."""
    if not os.environ.get("DISPLAY"):  # MuJoCo then renders without a screen
        os.environ.setdefault("MUJOCO_GL", "egl" if ctypes.util.find_library("EGL") else "osmesa")
    labels = [os.path.basename(os.path.normpath(run)) for run in runs]
    films = [film(spo.load(run), label, frames, every, seed) for run, label in zip(runs, labels)]
    first, *others = map(join, zip(*films))
    first.save(out, save_all=True, append_images=others, duration=1000 // fps, loop=0, quality=60)


if __name__ == "__main__":
    main(sys.argv[1:-1], sys.argv[-1])
