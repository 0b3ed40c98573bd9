"""Atari: pre-processing, lives, whole games, both backends."""

import gymnasium as gym
import numpy as np
import pytest
import torch

for package in ("ale_py", "cv2", "envpool"):
    pytest.importorskip(package)


from probes import iterate, training
from spo.envs.atari import game_of, is_atari
from spo.envs.envpool import EnvPool
from spo.envs.making import EnvMaker
from spo.evaluation import evaluate_policy
from spo.presets import make_config, preset_names, read_preset

SHORT = {"preset": "atari", "envs": 2, "horizon": 16, "minibatches": 2, "epochs": 1}


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
    env = EnvMaker("Breakout", {})(whole_games=True)
    env.reset(seed=1)
    terminated = truncated = False
    while not (terminated or truncated):
        _, _, terminated, truncated, info = env.step(1)
    assert env.unwrapped.ale.lives() == 0


@pytest.mark.parametrize("backend", ["gymnasium", "envpool"])
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
    pool = EnvPool("Freeway", 1, seed=0, threads=1, env_arg={"noop_max": 1})
    expected, _ = reference.reset(seed=0)
    np.testing.assert_array_equal(pool.reset()[0][-1], expected[-1])
    for t in range(150):
        action = 1 if t % 10 else 2
        expected, reward, *_ = reference.step(action)
        step = pool.step(np.array([action]))
        np.testing.assert_array_equal(step.observation[0][-1], expected[-1])
        assert step.reward[0] == reward


def test_evaluation_plays_whole_games():
    run = training("Breakout", **SHORT)
    result = evaluate_policy(run.policy, run.make_env, episodes=1, deterministic=False)
    assert result.lengths[0] > 60


def test_every_game_has_a_short_name():
    import ale_py

    gym.register_envs(ale_py)
    games = [game_of(name) for name in gym.registry if name.endswith("NoFrameskip-v4")]
    assert len(games) > 55 and all(is_atari(game) for game in games)
    EnvMaker("MontezumaRevenge", {})().close()
