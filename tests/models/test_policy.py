"""What a policy accepts as an observation, and what it says of itself."""

import gymnasium as gym
import numpy as np
import pytest

from spo.errors import SpoError
from spo.models.normalization import ObservationNormalizer
from spo.models.policy import Policy, PolicySpec
from spo.models.space_descriptions import DTYPES, describe_space, space_from

DICT = gym.spaces.Dict({"camera": gym.spaces.Box(0, 255, (12, 12, 3), np.uint8), "speed": gym.spaces.Box(-1, 1, (4,))})
TUPLE = gym.spaces.Tuple([gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(3)])


def make_policy(space: gym.Space, actions: gym.Space | None = None) -> Policy:
    spec = PolicySpec("Some-v0", "spo", space, actions or gym.spaces.Discrete(3), (8,), (8,), "tanh", "auto")
    return Policy(spec, spec.network(seed=1), ObservationNormalizer("shared", 1, spec.layout.continuous_size))


CAMERA, SPEED = np.zeros((12, 12, 3), np.uint8), np.zeros(4, np.float32)
REFUSED = {
    "nan": (gym.spaces.Box(-1, 1, (4,)), [0, 1, np.nan, 0], "an observation with nan in it is not accepted"),
    "infinite": (gym.spaces.Box(-1, 1, (4,)), [0, 1, -np.inf, 0], "an observation with -inf in it is not accepted"),
    "shape": (
        gym.spaces.Box(-1, 1, (4,)),
        np.zeros(5),
        r"of shape \(5,\) is not accepted: it must be \(4,\) or a batch",
    ),
    "number": (gym.spaces.Box(-1, 1, (4,)), 0.5, r"of shape \(\) is not accepted: it must be \(4,\)"),
    "text": (gym.spaces.Box(-1, 1, (4,)), ["a", "b", "c", "d"], "of <U1 is not accepted: it must be numbers"),
    "nothing": (gym.spaces.Box(-1, 1, (4,)), None, "of object is not accepted: it must be numbers"),
    "ragged": (gym.spaces.Box(-1, 1, (4,)), [[1], [1, 2]], "an observation without numbers is not accepted"),
    "key": (DICT, {"camera": CAMERA}, r"an observation without \['speed'\] is not accepted: it must have a Box"),
    "array": (DICT, np.zeros(4), r"an observation without \['camera'\] is not accepted"),
    "part": (DICT, {"camera": CAMERA, "speed": np.zeros(3)}, r"observation\['speed'\] of shape \(3,\) is not accepted"),
    "batches": (DICT, {"camera": CAMERA[None], "speed": SPEED}, "parts of unlike batches .* is not accepted"),
    "nan in a part": (DICT, {"camera": CAMERA, "speed": SPEED * np.nan}, "an observation with nan in it"),
    "short": (TUPLE, (SPEED,), r"an observation without \[1\] is not accepted: it must have a Discrete\(3\) there"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_observation_is_refused_in_a_sentence(name):
    space, observation, told = REFUSED[name]
    with pytest.raises(SpoError, match=told):
        make_policy(space).act(observation)


def test_lists_batches_and_large_numbers_are_accepted():
    policy = make_policy(gym.spaces.Box(-np.inf, np.inf, (4,)))
    assert policy.act([0.0, 1.0, 2.0, 3.0]) == policy.act(np.array([0.0, 1.0, 2.0, 3.0]))
    assert policy.act([[0.0] * 4, [1.0] * 4]).shape == (2,)
    assert policy.act(np.full(4, 3e38, np.float32)).shape == ()  # whose sum is not finite, though they are
    mixed = make_policy(DICT)
    batch = {"camera": np.stack([CAMERA, CAMERA + 9]), "speed": np.stack([SPEED, SPEED + 1])}
    singles = [mixed.act({"camera": CAMERA, "speed": SPEED}), mixed.act({"camera": CAMERA + 9, "speed": SPEED + 1})]
    assert mixed.act(batch).tolist() == singles


def test_a_mask_of_the_wrong_size_is_refused():
    policy = make_policy(gym.spaces.Box(-1, 1, (4,)))
    with pytest.raises(SpoError, match=r"an action mask of shape \(2,\) is not accepted: .* each of the 3 actions"):
        policy.act(SPEED, action_mask=np.ones(2))
    assert policy.act(SPEED, action_mask=[False, False, True]) == 2


def test_a_policy_says_what_it_is():
    told = repr(make_policy(gym.spaces.Box(-1, 1, (4,))))
    assert told.startswith("Policy(env Some-v0, objective spo, observation Box(-1.0, 1.0, (4,), float32)")
    assert "action Discrete(3)" in told and told.endswith("116 parameters)")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_described_box_has_the_bounds_of_its_type(dtype):
    """Those of byte images are then the environment's own."""
    ends = (0, 1) if dtype == "bool" else (-np.inf, np.inf)
    if np.issubdtype(dtype, np.integer):
        ends = np.iinfo(dtype).min, np.iinfo(dtype).max
    space = gym.spaces.Box(*ends, (2, 3), np.dtype(dtype))
    assert space_from(describe_space(space)) == space
