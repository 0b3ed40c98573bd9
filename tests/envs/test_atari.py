"""Atari: pre-processing, lives, whole games, both backends."""

from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
import torch

if missing := [package for package in ("ale_py", "cv2", "envpool") if find_spec(package) is None]:
    pytest.skip(f"needs {', '.join(missing)}", allow_module_level=True)  # importing them takes seconds

import spo
from lengths import leave_rest
from probes import iterate, training
from spo.config.env_ids import game_of, is_atari
from spo.config.sources import make_config, preset_names, read_preset
from spo.envs.envpool import EnvPoolVecEnv
from spo.envs.factory import choose_backend, env_maker
from spo.envs.make import EnvMaker
from spo.envs.sync import SyncVecEnv
from spo.errors import SpoError
from spo.evaluation import evaluate_policy
from spo.runs import checkpoint
from spo.runtime import files

SHORT = {"preset": "atari", "envs": 2, "horizon": 16, "minibatches": 2, "epochs": 1}
NO_ENCODER = {"encoder": "mlp", "hidden": (8,), "critic_hidden": (8,)}
"""For what is of the games alone, and soon."""


def test_which_ids_are_games():
    assert (
        is_atari("Breakout") and is_atari("BreakoutNoFrameskip-v4") and game_of("BreakoutNoFrameskip-v4") == "Breakout"
    )
    assert not is_atari("CartPole-v1") and not is_atari("module:Env-v0") and not is_atari("ALE/Breakout-v5")
    assert make_config("Breakout").preset == "atari" and make_config("Hopper-v4").preset == "mujoco"


def test_every_preset_settles_the_same_settings():
    keys = {name: set(read_preset(name)) for name in preset_names()}
    assert all(value == keys["mujoco"] for value in keys.values()), keys
    fixed = make_config("Breakout", preset="atari-resnet-fixed")
    assert (fixed.encoder, fixed.learning_rate, fixed.lr_schedule) == ("resnet18", 1e-4, "constant")


def test_a_reset_within_a_life_starts_the_game_of_its_seed():
    """Where a replay begins: nothing of the game before it stays."""
    env = EnvMaker("Breakout", {})()
    first, _ = env.reset(seed=5)
    for _ in range(3):
        env.step(2)
    again, _ = env.reset(seed=5)
    assert (again == first).all()
    env.close()


def test_observations_and_episodes_of_lives():
    env = EnvMaker("Breakout", {})()
    observation, _ = env.reset(seed=1)
    assert observation.shape == (4, 84, 84) and observation.dtype == np.uint8
    lost = 0
    while True:
        _, _, terminated, truncated, info = env.step(0)
        if not (terminated or truncated):
            continue
        if not info["life_lost"]:
            break
        lost += 1
        env.reset()
    assert lost == 4 and env.unwrapped.ale.lives() == 0  # five lives: four go on, the fifth ends the game


def test_whole_games_for_evaluation():
    env = EnvMaker("Breakout", {})(full_games=True)
    env.reset(seed=1)
    terminated = truncated = False
    while not (terminated or truncated):
        _, _, terminated, truncated, info = env.step(1)
    assert env.unwrapped.ale.lives() == 0


@pytest.mark.parametrize("backend", leave_rest(["gymnasium", "envpool"], "envpool"))
def test_rows_are_whole_games_with_raw_scores_and_learning_sees_signs(backend):
    run = training("Breakout", backend=backend, **SHORT | {"envs": 4, "horizon": 300})
    assert run.spec.network().encoder is not None
    rollout = run.collector.collect()
    assert rollout.observation.dtype == torch.uint8 and set(rollout.reward.unique().tolist()) <= {-1.0, 0.0, 1.0}
    games, lives = len(rollout.episodes), int(rollout.done.sum())
    assert games >= 2 and lives >= 4 * games
    assert all(episode.total_reward == int(episode.total_reward) for episode in rollout.episodes)


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
def test_a_few_hundred_steps_train(backend):
    run = training("Pong", backend=backend, **SHORT | {"envs": 4, "horizon": 64})
    row = iterate(run, 1)[0]
    assert row["env_steps"] == 256 and np.isfinite(list(row.values())).all()


def test_backends_show_the_same_pictures_and_rewards():
    """Freeway waits for no FIRE, and with one no-op at the start nothing in it is random."""
    reference = EnvMaker("Freeway", {"noop_max": 1})()
    pool = EnvPoolVecEnv("Freeway", 1, seed=0, threads=1, env_arg={"noop_max": 1})
    expected, _ = reference.reset(seed=0)
    np.testing.assert_array_equal(pool.reset()[0][-1], expected[-1])
    for t in range(150):
        action = 1 if t % 10 else 2
        expected, reward, *_ = reference.step(action)
        step = pool.step(np.array([action]))
        np.testing.assert_array_equal(step.observation[0][-1], expected[-1])
        assert step.reward[0] == reward


def by_the_libraries(game: str) -> gym.Env:
    """The authors' chain, of the wrappers that they imported (atari/main.py of their repository)."""
    from stable_baselines3.common import atari_wrappers

    env = gym.make(f"{game}NoFrameskip-v4")
    env = atari_wrappers.MaxAndSkipEnv(atari_wrappers.NoopResetEnv(env, noop_max=30), skip=4)
    env = atari_wrappers.EpisodicLifeEnv(env)
    if "FIRE" in env.unwrapped.get_action_meanings():
        env = atari_wrappers.FireResetEnv(env)
    env = gym.wrappers.GrayscaleObservation(gym.wrappers.ResizeObservation(env, (84, 84)))
    return gym.wrappers.FrameStackObservation(env, 4)


@pytest.mark.parametrize("game, steps", [("Breakout", 400), ("Asterix", 150)])
def test_the_authors_wrappers_are_those_of_the_libraries_frame_by_frame(game, steps):
    """Breakout waits for FIRE and is over within so many random steps; Asterix knows no FIRE."""
    pytest.importorskip("stable_baselines3")
    ours, theirs = EnvMaker(game, {}, "authors")(), by_the_libraries(game)
    draw, ends, games = np.random.default_rng(0), 0, 0
    seen, expected = ours.reset(seed=1)[0], theirs.reset(seed=1)[0]
    np.testing.assert_array_equal(seen, expected)
    for _ in range(steps):
        action = draw.integers(ours.action_space.n)
        (seen, *outcome, info), (expected, *known, _) = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(seen, expected)
        assert outcome == known
        if any(outcome[1:]):
            ends, games = ends + 1, games + (not info["life_lost"])
            np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
        assert ours.unwrapped.ale.getFrameNumber() == theirs.unwrapped.ale.getFrameNumber()
    assert ends >= 1 and (games >= 1 or game == "Asterix")


def test_the_standard_wrappers_are_not_the_authors():
    usual, authors = EnvMaker("Breakout", {})(), EnvMaker("Breakout", {}, "authors")()
    pictures = [env.reset(seed=1)[0] for env in (usual, authors)]
    assert authors.unwrapped.ale.getFrameNumber() - usual.unwrapped.ale.getFrameNumber() == 4
    assert pictures[0].shape == pictures[1].shape == (4, 84, 84) and (pictures[0] != pictures[1]).any()


def test_what_paper_means_for_games():
    config = make_config("Breakout", paper=True)
    assert config.atari_wrappers == "authors" and env_maker(config).atari_wrappers == "authors"
    assert choose_backend(config, 2) == ("gymnasium", "EnvPool does not have the authors' wrappers")
    asked = make_config("Breakout", paper=True, backend="envpool")
    assert choose_backend(asked, 2) == ("envpool", "as asked, without the authors' wrappers")
    assert env_maker(asked).atari_wrappers == "standard"  # what its policy knows, for evaluations
    assert make_config("Breakout", paper=True, atari_wrappers="standard").atari_wrappers == "standard"
    assert make_config("Breakout").atari_wrappers == make_config("Hopper-v4", paper=True).atari_wrappers == "standard"
    with pytest.raises(SpoError, match="--atari-wrappers authors is not accepted: Hopper-v4 is no Atari game"):
        make_config("Hopper-v4", atari_wrappers="authors")


def test_the_authors_wrappers_are_replayed_exactly():
    """Over lost lives and a finished game: what follows is what followed."""
    make, draw = EnvMaker("Breakout", {}, "authors"), np.random.default_rng(0)
    envs, again = (SyncVecEnv(make, range(2), seed=1) for _ in range(2))
    envs.reset()
    steps = [envs.step(draw.integers(4, size=2)) for _ in range(400)]
    assert any(step.episodes for step in steps) and sum(step.terminated.sum() for step in steps) > 8
    again.reset()
    assert again.restore(envs.state()) == {}
    for _ in range(60):
        action = draw.integers(4, size=2)
        step, repeated = envs.step(action), again.step(action)
        np.testing.assert_array_equal(repeated.observation, step.observation)
        np.testing.assert_array_equal(repeated.reward, step.reward)
        np.testing.assert_array_equal(repeated.terminated, step.terminated)
        assert repeated.episodes == step.episodes


@pytest.mark.parametrize("backend", leave_rest(["gymnasium", "envpool"], "gymnasium"))
def test_a_run_of_an_earlier_version_keeps_its_backend_and_its_wrappers(backend, tmp_path):
    """Then --paper chose EnvPool with two threads, and config.json named no wrappers."""
    settings = SHORT | {"steps": 64, "checkpoint_every": 1, "compile": "off", "quiet": True, "rebuild_every": 1}
    settings |= NO_ENCODER | {"backend": backend, "atari_wrappers": "standard", "paper": True, "threads": 1}
    spo.train("Breakout", **settings, out=str(tmp_path / "run"), callback=lambda training, row: False)
    config = tmp_path / "run" / "config.json"
    record = files.verify_checksum(config.read_bytes())
    del record["settings"]["atari_wrappers"]
    record["settings"]["backend"] = "auto"
    config.write_bytes(checkpoint.canonical_json(files.add_checksum(record)))
    seen = []
    spo.resume(tmp_path / "run", quiet=True, callback=lambda training, row: seen.append(training))
    assert (seen[0].backend, seen[0].make_env.atari_wrappers) == (backend, "standard")
    assert seen[0].inexact_reasons == [] and seen[-1].iteration == 2


def test_evaluation_plays_whole_games():
    run = training("Breakout", **SHORT)
    result = evaluate_policy(run.snapshot_policy(), run.make_env, episodes=1, deterministic=False)
    assert result.lengths[0] > 60


def test_every_game_has_a_short_name():
    import ale_py

    gym.register_envs(ale_py)
    games = [game_of(name) for name in gym.registry if name.endswith("NoFrameskip-v4")]
    assert len(games) > 55 and all(is_atari(game) for game in games)
    EnvMaker("MontezumaRevenge", {})().close()
