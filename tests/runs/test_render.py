"""What `spo eval` shows: a window where there is a screen, a film, and how far it is."""

import gymnasium as gym
import pytest

import spo
from probes import Probe
from spo import cli, evaluation

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


class Dark(Blind):
    """Takes no render mode, as many environments of one's own."""

    def __init__(self):
        super().__init__()


def make_silent(render_mode):
    """An environment that takes a render mode and returns no picture."""
    env = gym.make("CartPole-v1", render_mode=render_mode)
    env.render = lambda: None
    return env


@pytest.mark.parametrize("env, told", [(make_silent, "returned a NoneType"), (Dark, "must take render_mode")])
def test_what_cannot_be_filmed_is_named_before_an_episode_is_played(run, env, told, tmp_path):
    steps = []
    with pytest.raises(spo.SpoError, match=f"^--video cannot be recorded: .*{told}"):
        spo.evaluate(run, env, episodes=1, video=str(tmp_path / "film.mp4"), on_step=lambda *at: steps.append(at))
    with pytest.raises(spo.ConfigError, match="must end in .mp4"):
        spo.evaluate(run, episodes=1, video=str(tmp_path / "film.gif"), on_step=lambda *at: steps.append(at))
    assert steps == []


def test_a_film_that_could_not_be_written_is_refused_before_an_episode_is_played(run, tmp_path):
    (tmp_path / "film.mp4").mkdir()
    steps = []
    with pytest.raises(spo.SpoError, match=f"^{tmp_path}/film.mp4 cannot be written to: Is a directory$"):
        spo.evaluate(run, episodes=1, video=str(tmp_path / "film.mp4"), on_step=lambda *at: steps.append(at))
    assert steps == []
    evaluation.check_video(str(tmp_path / "new/film.mp4"))
    assert list((tmp_path / "new").iterdir()) == []


def test_an_encoder_that_fails_is_not_the_environments_fault(run, tmp_path, monkeypatch):
    def fill_the_disk(*_, **__):
        raise OSError("[Errno 32] Broken pipe\n\nFFMPEG COMMAND:\nffmpeg -y")

    monkeypatch.setattr("imageio.v2.mimwrite", fill_the_disk)
    with pytest.raises(spo.SpoError, match=r"^.*film.mp4 cannot be written to: \[Errno 32\] Broken pipe$"):
        spo.evaluate(run, episodes=1, max_steps=1, video=str(tmp_path / "film.mp4"))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_result_that_cannot_be_kept_is_told_and_shown(run, is_terminal, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    in_the_way = run / "evaluation.json.tmp"
    in_the_way.mkdir()
    try:
        cli.dispatch(["eval", str(run), "--episodes", "1", "--max-steps", "3"])
    finally:
        in_the_way.rmdir()
    start = "\r\x1b[K" if is_terminal else ""
    told = f"{start}warning: {run}/evaluation.json cannot be written to: Is a directory; the result is not kept\n"
    printed = capsys.readouterr()
    assert printed.out.startswith("return 3.0 ± 0.0 over 1 deterministic episode") and printed.err == told


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_long_evaluation_says_how_far_it_is_and_how_fast(is_terminal, monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(evaluation.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    progress = evaluation.EvaluationProgress(3, max_steps=1000)
    for step in range(1, 12):
        now[0] += 2.5
        progress(1, step)
    progress.close()
    shown = capsys.readouterr().err
    assert "episode 2 of 3, step 8 of at most 1,000, 0.4 steps/s" in shown
    assert shown.endswith("\r\x1b[K") == is_terminal and shown.count("episode") == (10 if is_terminal else 1)


def test_what_draws_nothing_is_named(run, monkeypatch):
    monkeypatch.setenv("DISPLAY", ":0")
    with pytest.raises(spo.SpoError, match="^--render cannot show it: the environment draws nothing"):
        spo.evaluate(run, Blind, episodes=1, render=True)


@pytest.mark.parametrize(
    "task, arguments, follows",
    [
        ("Ant-v4", {}, True),
        ("HalfCheetah-v5", {}, True),
        ("Humanoid-v4", {}, False),
        ("Ant-v4", {"camera_id": 0}, False),
    ],
)
def test_the_camera_goes_along_unless_it_does_so_already_or_was_chosen(task, arguments, follows):
    mujoco = pytest.importorskip("mujoco")
    env = gym.make(task, render_mode="rgb_array", **arguments)
    renderer = env.unwrapped.mujoco_renderer
    before = renderer.camera_id
    evaluation.follow_body(env)
    camera = renderer.model.camera(renderer.camera_id) if renderer.camera_id >= 0 else None
    assert (renderer.camera_id != before) == follows
    assert not follows or (camera.name, camera.mode[0]) == ("track", mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM)
    env.close()
