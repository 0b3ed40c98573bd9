"""The collector: what it stores, in which order, and what it says when an environment misbehaves."""

import gymnasium as gym
import numpy as np
import pytest

from probes import Counting, iterate, training
from spo.errors import SpoError
from spo.runtime.seeding import episode_seed


class TimeValue:
    """An actor whose value is a code of the observation, so that every bootstrap can be traced."""

    def sync_weights(self):
        pass

    def __call__(self, observation):
        return self.dist_params(observation), self.value(observation)

    def dist_params(self, observation):
        return np.zeros((len(observation), 2), np.float32)

    def value(self, observation):
        return (observation @ np.array([100, 10, 1])).astype(np.float32)


@pytest.fixture
def counted():
    Counting.made = 0
    run = training(Counting, envs=3, horizon=20, minibatches=4, normalize_observation="off", normalize_reward="off")
    run.collector.actor = TimeValue()
    return run


def expected_episodes(env: int):
    """(episode, step) seen before each of 20 steps."""
    positions, episode, time = [], 0, 0
    while len(positions) < 20:
        positions.append((env, episode, time))
        episode, time = (episode + 1, 0) if time + 1 == 3 + episode else (episode, time + 1)
    return positions


def test_observations_follow_each_other_without_gaps_or_dummies(counted):
    rollout = counted.collector.collect()
    for env in range(3):
        assert rollout.observation[:, env].tolist() == [list(map(float, p)) for p in expected_episodes(env)]


def test_ends_are_told_apart_and_bootstrap_from_the_true_last_observation(counted):
    rollout = counted.collector.collect()
    for t, (env, episode, time) in enumerate(expected_episodes(2)):
        is_last = time + 1 == 3 + episode
        assert rollout.done[t, 2] == is_last
        assert rollout.terminated[t, 2] == (is_last and episode % 2 == 0)
        assert rollout.reward[t, 2] == time + 1
        if not rollout.terminated[t, 2]:
            assert rollout.next_value[t, 2] == 100 * env + 10 * episode + time + 1


def test_episodes_have_their_own_returns_lengths_and_steps(counted):
    rows = [episode.as_row() for episode in counted.collector.collect().episodes if episode.env == 0]
    assert [row["length"] for row in rows] == [3, 4, 5, 6]
    assert [row["return"] for row in rows] == [6.0, 10.0, 15.0, 21.0]
    assert [row["env_steps"] for row in rows] == [9, 21, 36, 54]


def test_a_second_rollout_goes_on_where_the_first_stopped(counted):
    counted.collector.collect()
    assert counted.collector.collect().observation[0, 0].tolist() == [0, 4, 2]


def test_truncation_as_terminal_leaves_no_bootstrap():
    Counting.made = 0
    run = training(Counting, envs=3, horizon=20, minibatches=4, truncation="terminal")
    rollout = run.collector.collect()
    assert (rollout.terminated == rollout.done).all() and rollout.done.any()


def test_every_episode_has_a_seed_of_its_own():
    seeds = {episode_seed(run, env, episode) for run in range(5) for env in range(8) for episode in range(50)}
    assert len(seeds) == 5 * 8 * 50
    run = training(Counting, envs=2, horizon=20, minibatches=4, seed=7)
    run.collector.collect()
    assert run.envs.envs.envs[1].seeds == [episode_seed(7, 1, episode) for episode in range(5)]


def test_the_unclipped_action_is_stored_and_the_clipped_one_stepped():
    seen = []

    class Narrow(Counting):
        action_space = gym.spaces.Box(-0.01, 0.01, (1,), np.float32)

        def step(self, action):
            seen.append(action.copy())
            return super().step(action)

    run = training(Narrow, envs=2, horizon=20, minibatches=4, action_scale="off")
    rollout = run.collector.collect()
    assert np.abs(seen).max() == pytest.approx(0.01)
    assert rollout.action.abs().max() > 0.5
    np.testing.assert_array_equal(np.stack(seen).reshape(20, 2, 1), rollout.action.numpy().clip(-0.01, 0.01))


class Faulty(Counting):
    """Does as told at its tenth step."""

    fault = None

    def step(self, action):
        result = list(super().step(action))
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 10 and self.index == 1:
            Faulty.fault(result)
        return result


def nan_observation(result):
    result[0] = np.full(3, np.nan)


def infinite_reward(result):
    result[1] = np.inf


def wrong_shape(result):
    result[0] = np.zeros(4)


def wrong_type(result):
    result[0] = np.zeros(3, dtype=int)


def two_rewards(result):
    result[1] = np.array([1.0, 2.0])


def no_reward(result):
    result[1] = None


def raising(result):
    raise ValueError("broken gearbox")


@pytest.mark.parametrize(
    "fault, words",
    [
        (nan_observation, "the observation of environment 1 is not finite .nan. at its step 10"),
        (infinite_reward, "the reward of environment 1 is not finite .inf. at its step 10"),
        (wrong_shape, r"environment 1 returned an observation of shape \(4,\), its space says \(3,\) .its step 10"),
        (wrong_type, "environment 1 returned an observation of type int64, unlike its first one .its step 10"),
        (two_rewards, r"environment 1 returned the reward array\(\[1., 2.\]\); accepted is a number .its step 10"),
        (no_reward, "the reward of environment 1 is not finite .nan. at its step 10"),
        (raising, "environment 1 raised ValueError: broken gearbox .its step 10"),
    ],
)
def test_a_faulty_environment_is_named(fault, words):
    Counting.made, Faulty.fault = 0, staticmethod(fault)
    run = training(Faulty, envs=3, horizon=20, minibatches=4)
    with pytest.raises(SpoError, match=words):
        iterate(run, 1)
