"""spo eval --render: a window where there is a screen, and elsewhere a sentence."""

import gymnasium as gym
import pytest

import spo
from probes import Probe
from spo import evaluation

SHORT = {"preset": "classic", "envs": 2, "horizon": 16, "steps": 32, "compile": "off", "quiet": True}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return spo.train("CartPole-v1", **SHORT, out=str(tmp_path_factory.mktemp("render") / "run")).directory


def test_a_window_shows_the_episodes(run, monkeypatch):
    """SDL's own stand-in for a screen, on which pygame opens a window and draws every step."""
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    sizes = []
    result = spo.evaluate(
        run, episodes=1, render=True, on_step=lambda *_: sizes.append(pygame.display.get_window_size())
    )
    assert len(sizes) == result.lengths[0] and set(sizes) == {(600, 400)}


def test_without_a_screen_it_is_a_sentence(run, monkeypatch):
    monkeypatch.setattr(evaluation.sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(spo.ConfigError, match="^--render needs a display, and there is none here; --video FILE.mp4"):
        spo.evaluate(run, episodes=1, render=True)


def test_a_window_and_a_film_exclude_each_other(run, tmp_path):
    with pytest.raises(spo.ConfigError, match="^--render and --video .+ exclude each other"):
        spo.evaluate(run, episodes=1, render=True, video=str(tmp_path / "film.mp4"))


class Blind(Probe):
    """Takes a render mode and draws nothing."""

    def __init__(self, render_mode=None):
        self.observation_space, self.action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(2)


def test_what_draws_nothing_is_named(run, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    with pytest.raises(spo.SpoError, match="^--render cannot show it: the environment draws nothing"):
        spo.evaluate(run, Blind, episodes=1, render=True)
