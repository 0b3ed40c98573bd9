"""Running statistics against NumPy, and the authors' behaviour against Gymnasium's own wrappers."""

import gymnasium as gym
import numpy as np
import pytest

from spo.models.normalization import ObservationNormalizer, RewardNormalizer, RunningMoments


def test_moments_of_a_stream_equal_numpy():
    stream = np.random.default_rng(0).normal(3, 2, (50, 8, 4))
    moments = RunningMoments(1, (4,))
    for sample in stream:
        moments.update(sample[None])
    flat = stream.reshape(-1, 4)
    assert moments.mean[0] == pytest.approx(flat.mean(0), rel=1e-5)
    assert moments.variance[0] == pytest.approx(flat.var(0), rel=1e-4)


def test_groups_are_independent_and_merge_into_the_whole():
    stream = np.random.default_rng(1).normal(0, 1, (200, 3, 2)) * [[1.0], [5.0], [0.2]] + [[0.0], [3.0], [-9.0]]
    apart, together = RunningMoments(3, (2,)), RunningMoments(1, (2,))
    for sample in stream:
        apart.update(sample[:, None])
        together.update(sample[None])
    assert apart.mean[1] == pytest.approx(stream[:, 1].mean(0), rel=1e-5)
    assert apart.merge_groups().mean == pytest.approx(together.mean, rel=1e-3)
    assert apart.merge_groups().variance == pytest.approx(together.variance, rel=1e-3)


def test_only_chosen_environments_are_counted():
    normalizer = ObservationNormalizer("per-env", 3, 2)
    normalizer.update(np.ones((3, 2)), np.array([False, True, False]))
    assert normalizer.moments.count.ravel() == pytest.approx([1e-4, 1.0001, 1e-4])
    assert normalizer.moments.mean[0].tolist() == [0, 0] and normalizer.moments.mean[1] == pytest.approx(1, rel=1e-3)


def test_observations_are_clipped_and_single_precision():
    normalizer = ObservationNormalizer("shared", 2, 1)
    for _ in range(10):
        normalizer.update(np.array([[1.0], [-1.0]]))
    normalized = normalizer(np.array([[1e6], [-1e6]]))
    assert normalized.dtype == np.float32 and normalized.ravel().tolist() == [10.0, -10.0]


class Recorded(gym.Env):
    """Replays a fixed stream of observations and rewards, with an end of each kind."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 40):
        draw = np.random.default_rng(5)
        self.stream = iter(zip(draw.normal(2, 3, (2 * length, 2)), draw.normal(1, 2, 2 * length)))
        self.time = 0

    def reset(self, *, seed=None, options=None):
        return next(self.stream)[0], {}

    def step(self, action):
        self.time += 1
        observation, reward = next(self.stream)
        return observation, float(reward), self.time % 11 == 0, self.time % 7 == 0, {}


def test_per_environment_statistics_equal_gymnasiums_wrappers():
    """The authors' trainer: each environment in its own wrappers, final observations counted."""
    wrapped = gym.wrappers.NormalizeReward(gym.wrappers.NormalizeObservation(Recorded()), gamma=0.9)
    plain = Recorded()
    observations = ObservationNormalizer("per-env", 1, 2)
    rewards = RewardNormalizer("per-env", 1, 0.9, reset_on="termination")

    def ours(observation: np.ndarray) -> np.ndarray:
        observations.update(observation[None])
        return observations(observation[None])[0]

    assert ours(plain.reset()[0]) == pytest.approx(wrapped.reset()[0], abs=1e-5)
    for _ in range(40):
        seen, reward, terminated, truncated, _ = plain.step(0)
        theirs, their_reward, *_ = wrapped.step(0)
        assert ours(seen) == pytest.approx(theirs.clip(-10, 10), abs=1e-5)
        ended = np.array([[terminated or truncated]])
        normalized = rewards(np.array([[reward]]), np.array([[terminated]]), ended)
        assert normalized.item() == pytest.approx(np.clip(their_reward, -10, 10), rel=1e-9)
        if terminated or truncated:
            assert ours(plain.reset()[0]) == pytest.approx(wrapped.reset()[0].clip(-10, 10), abs=1e-5)


@pytest.mark.parametrize("mode", ["shared", "per-env"])
@pytest.mark.parametrize("authors", [False, True])
@pytest.mark.parametrize("mean", [0.0, 1e4])
def test_a_rollout_at_once_is_normalised_as_its_steps_one_by_one(mode, authors, mean):
    """No reward is divided by what was not yet known when it was given."""
    draw = np.random.default_rng(3)
    reward, done = draw.normal(mean, 2, (60, 4)), draw.random((60, 4)) < 0.1
    terminated = done & (draw.random((60, 4)) < 0.5)
    stream = [part.reshape(3, 20, 4) for part in (reward, terminated, done)]
    at_once, in_steps = (RewardNormalizer(mode, 4, 0.9, authors) for _ in range(2))
    for rollout in zip(*stream):
        steps = [in_steps(*(part[t : t + 1] for part in rollout)) for t in range(20)]
        assert at_once(*rollout) == pytest.approx(np.concatenate(steps), rel=1e-9)
    assert at_once.discounted_return == pytest.approx(in_steps.discounted_return)
    for name, array in in_steps.state()["moments"].items():
        assert at_once.state()["moments"][name] == pytest.approx(array, rel=1e-9)


def test_by_default_the_return_starts_again_after_every_end():
    rewards, never = RewardNormalizer("shared", 2, 0.5), np.array([[False, False]])
    rewards(np.array([[4.0, 4.0]]), never, np.array([[False, True]]))
    assert rewards.discounted_return.tolist() == [4.0, 0.0]
    rewards(np.array([[1.0, 1.0]]), never, never)
    assert rewards.discounted_return.tolist() == [3.0, 1.0]


def test_moments_survive_a_large_mean():
    stream = np.random.default_rng(0).normal(1e6, 1, (50, 1, 8, 1))
    one_by_one, in_turn = RunningMoments(1, (1,)), RunningMoments(1)
    for sample in stream:
        one_by_one.update(sample)
    variances = in_turn.update_in_turn(stream[..., 0])
    numbers, weights = np.append(stream, 0.0), np.append(np.ones(stream.size), 1e-4)  # the start counts too
    mean = np.average(numbers, weights=weights)
    variance = np.average((numbers - mean) ** 2, weights=weights) + 1e-4 / weights.sum()
    assert one_by_one.variance.item() == pytest.approx(variance, rel=1e-4)
    assert variances[-1].item() == in_turn.variance.item() == pytest.approx(variance, rel=1e-4)


def test_off_changes_nothing():
    sample = np.array([[1e9, -3.0]])
    assert ObservationNormalizer("off", 1, 2)(sample).tolist() == [[1e9, -3.0]]
    assert RewardNormalizer("off", 1, 0.9)(np.array([[1e9]]), np.array([[False]]), np.array([[False]])).tolist() == [
        [1e9]
    ]


def test_freezing_stops_the_statistics():
    normalizer = ObservationNormalizer("per-env", 2, 1)
    normalizer.update(np.array([[1.0], [3.0]]))
    frozen = normalizer.freeze()
    before = frozen(np.array([[2.0]]))
    normalizer.update(np.array([[100.0], [300.0]]))
    assert frozen(np.array([[2.0]])) == before and frozen.moments.mean == pytest.approx(2.0, rel=1e-3)
