"""Every observation and action space: packed, trained on, saved and loaded; images learned; masks kept."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from probes import Catch, Masked, Spaces, iterate, training
from spo.algorithms.batch import example_batch
from spo.errors import SpoError
from spo.evaluation import evaluate_policy
from spo.models.image_encoders import resnet18
from spo.models.policy_files import load_policy, save_policy
from spo.objectives import OBJECTIVES
from spo.spaces import Image, ObservationLayout

S = gym.spaces
BYTES = S.Box(0, 255, (12, 12, 3), np.uint8)
OBSERVATIONS = {
    "vector": S.Box(-1, 1, (3,)),
    "matrix": S.Box(-1, 1, (3, 4)),
    "float volume": S.Box(-1, 1, (2, 3, 4)),
    "discrete": S.Discrete(5),
    "multi-discrete": S.MultiDiscrete([3, 4]),
    "multi-binary": S.MultiBinary(6),
    "image": BYTES,
    "channels first": S.Box(0, 255, (3, 40, 40), np.uint8),
    "dict": S.Dict({"speed": S.Box(-1, 1, (2,)), "gear": S.Discrete(4), "camera": BYTES}),
    "dict in an order of its own": S.Dict([("z", S.Box(-1, 1, (2,))), ("m", S.Discrete(3)), ("a", S.Box(-1, 1, ()))]),
    "dict of one": S.Dict({"only": S.Box(-1, 1, (3,))}),
    "tuple of one": S.Tuple([S.Box(-1, 1, (3,))]),
    "flags": S.Box(0, 1, (4, 10, 10), np.bool_),
    "bytes": S.Box(0, 255, (4,), np.uint8),
    "tuple": S.Tuple([S.Box(-5, 5, (2, 2)), S.Dict({"a": S.Discrete(3)}), S.MultiBinary(2)]),
}
ACTIONS = {
    "box": S.Box(-1, 1, (2,)),
    "box matrix": S.Box(-1, 1, (2, 2), np.float64),
    "discrete": S.Discrete(3, start=4),
    "multi-discrete": S.MultiDiscrete([[2, 3], [4, 2]]),
    "multi-binary": S.MultiBinary(3),
}
SMALL = {"envs": 2, "horizon": 16, "epochs": 2, "hidden": (8,), "critic_hidden": (8,), "minibatches": 2}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_every_observation_space_trains_and_survives_saving(name, tmp_path):
    space = OBSERVATIONS[name]
    run = training(lambda: Spaces(space, ACTIONS["discrete"]), **SMALL)
    row = iterate(run, 2)[1]
    assert np.isfinite(list(row.values())).all()
    save_policy(run.snapshot_policy(), tmp_path / "policy")
    loaded = load_policy(tmp_path)
    space.seed(0)
    for observation in (space.sample() for _ in range(5)):
        assert loaded.act(observation) == run.snapshot_policy().act(observation)
    assert loaded.spec.layout.shape == run.envs.layout.shape
    assert [path for path, _ in loaded.spec.layout.leaves] == [path for path, _ in run.envs.layout.leaves]


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_space_trains_and_survives_saving(name, tmp_path):
    space = ACTIONS[name]
    run = training(lambda: Spaces(OBSERVATIONS["vector"], space), **SMALL)
    iterate(run, 2)
    save_policy(run.snapshot_policy(), tmp_path / "policy")
    loaded = load_policy(tmp_path)
    batch = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    for is_deterministic in (True, False):
        actions = loaded.act(batch, deterministic=is_deterministic)
        assert all(space.contains(np.asarray(action, space.dtype) if space.shape else action) for action in actions)
    np.testing.assert_array_equal(loaded.act(batch), run.snapshot_policy().act(batch))
    np.testing.assert_allclose(loaded.act(batch[0]), loaded.act(batch)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("action", ["multi-discrete", "multi-binary"])
def test_every_objective_works_on_every_action_space(objective, action):
    run = training(lambda: Spaces(OBSERVATIONS["vector"], ACTIONS[action]), objective=objective, **SMALL)
    assert np.isfinite(list(iterate(run, 1)[0].values())).all()


def test_a_dict_is_packed_numbers_first_then_choices_then_images():
    layout = ObservationLayout(OBSERVATIONS["dict"])
    camera = np.arange(12 * 12 * 3, dtype=np.uint8).reshape(12, 12, 3)
    packed = layout.pack({"speed": np.array([0.5, -0.5]), "gear": 2, "camera": camera})
    assert packed.dtype == np.float32 and packed[:6].tolist() == [0.5, -0.5, 0, 0, 1, 0]
    np.testing.assert_array_equal(packed[6:].reshape(3, 12, 12), np.moveaxis(camera, -1, 0))
    assert (layout.continuous_size, layout.vector_size) == (2, 6)


def test_only_numbers_are_normalised():
    run = training(lambda: Spaces(OBSERVATIONS["dict"], ACTIONS["discrete"]), **SMALL)
    rollout = run.collector.collect()
    one_hot, image = rollout.observation[..., 2:6], rollout.observation[..., 6:]
    assert set(one_hot.unique().tolist()) == {0.0, 1.0} and (one_hot.sum(-1) == 1).all()
    assert image.min() >= 0 and image.max() > 200


@pytest.mark.parametrize("mode", ["shared", "off"])
@pytest.mark.parametrize("name", OBSERVATIONS)
def test_what_is_learned_from_has_the_type_that_an_update_is_compiled_for(name, mode):
    run = training(lambda: Spaces(OBSERVATIONS[name], ACTIONS["discrete"]), normalize_observation=mode, **SMALL)
    compiled_for = example_batch(run.spec.layout, run.distribution, 4).observation.dtype
    assert run.collector.collect().observation.dtype == compiled_for
    assert (compiled_for == torch.uint8) == (name in ("image", "channels first", "flags"))


class Pictures(Spaces):
    """Shows an image of another type than its space says."""

    def __init__(self, kind):
        super().__init__(S.Box(0, 255, (12, 12, 3), np.uint8), ACTIONS["discrete"])
        self.kind = kind

    def reset(self, **options):
        observation, info = super().reset(**options)
        return observation.astype(self.kind), info

    def step(self, action):
        observation, *others = super().step(action)
        return observation.astype(self.kind), *others


def test_images_of_whole_numbers_become_bytes_and_others_are_refused():
    whole, plain = (training(make, **SMALL) for make in (partial(Pictures, np.int64), partial(Pictures, np.uint8)))
    assert torch.equal(whole.collector.collect().observation, plain.collector.collect().observation)
    with pytest.raises(SpoError, match="environment 0 returned an image of type float32, its space says uint8"):
        training(partial(Pictures, np.float32), **SMALL)


@pytest.mark.parametrize("space, value", [(S.Discrete(4), -1), (S.MultiDiscrete([3, 4], start=[1, 1]), [1, 0])])
def test_a_choice_below_the_first_is_not_taken_for_the_last(space, value):
    with pytest.raises(SpoError, match="an observation of .* is not accepted: it must be in"):
        ObservationLayout(space).pack(np.array(value))


def test_images_too_small_for_a_convolution_are_refused():
    tiny = S.Box(0, 255, (8, 2, 2), np.uint8)
    with pytest.raises(SpoError, match="images of 8 × 2 are too small for an encoder: --encoder mlp reads them"):
        training(lambda: Spaces(tiny, ACTIONS["discrete"]), **SMALL)
    iterate(training(lambda: Spaces(tiny, ACTIONS["discrete"]), encoder="mlp", **SMALL), 1)


def test_a_batch_of_dicts_acts_like_its_samples():
    run = training(lambda: Spaces(OBSERVATIONS["dict"], ACTIONS["box"]), **SMALL)
    samples = [OBSERVATIONS["dict"].sample() for _ in range(3)]
    batch = {key: np.stack([sample[key] for sample in samples]) for key in samples[0]}
    expected = np.stack([run.snapshot_policy().act(sample) for sample in samples])
    np.testing.assert_allclose(run.snapshot_policy().act(batch), expected, atol=1e-6)


def test_unsupported_spaces_are_named():
    for space in (S.Text(3), S.Sequence(S.Discrete(2)), S.Dict({"a": S.Graph(S.Discrete(2), None)})):
        with pytest.raises(SpoError, match="observation space .* is not supported"):
            training(lambda space=space: Spaces(space, ACTIONS["box"]))
    with pytest.raises(SpoError, match="action space .* is not supported; accepted are Box of floats, Discrete, Multi"):
        training(lambda: Spaces(OBSERVATIONS["vector"], S.Dict({"a": S.Discrete(2)})))
    with pytest.raises(SpoError, match="--encoder nature needs images of at least 36 × 36, these have 12 × 12"):
        training(lambda: Spaces(BYTES, ACTIONS["box"]), encoder="nature")


def test_resnet_18_is_the_authors():
    network = resnet18(Image((4, 84, 84), False, 255.0), torch.Generator().manual_seed(0))
    assert sum(parameter.numel() for parameter in network.parameters()) == 11_432_704
    assert network(torch.zeros(2, 4, 84, 84)).shape == (2, 512)
    assert not any("Norm" in type(module).__name__ for module in network.modules())
    again = resnet18(Image((4, 84, 84), False, 255.0), torch.Generator().manual_seed(0))
    assert all(a.equal(b) for a, b in zip(network.parameters(), again.parameters()))


def test_an_image_task_is_learned():
    """Catch, through the small convolutional network: seeds 1 to 10 come from -0.32 to -0.06 to 0.86 to 0.98."""
    settings = {"envs": 16, "horizon": 36, "epochs": 4, "minibatches": 2, "learning_rate": 2e-3, "gamma": 0.95}
    settings |= {"lr_schedule": "constant", "activation": "relu", "normalize_reward": "off"}
    run = training(partial(Catch, 7), encoder="small", hidden=(), critic_hidden=(), **settings)
    finished = [episode["return"] for _ in range(18) for episode in run.iterate()[1]]
    assert np.mean(finished[:100]) < 0.2 and np.mean(finished[-100:]) > 0.6


def test_actor_and_critic_share_the_encoder_and_trpos_critic_leaves_it_alone():
    run = training(Catch, objective="trpo", encoder="small", hidden=(), critic_hidden=(), envs=2, horizon=32)
    names = [name.split(".")[0] for name in run.parameters.names]
    assert names == sorted(names, key=["log_std", "encoder", "actor", "critic"].index)
    iterate(run, 1)
    before = run.parameters.vector.clone()
    observation = torch.randint(0, 255, (64, 2, 10, 10), dtype=torch.uint8)
    batch = example_batch(run.spec.layout, run.distribution, 64)
    batch = batch._replace(observation=observation, value_target=torch.ones(64))
    run.update.epochs(batch, 1e-3, {}, lambda order, samples: False)
    size = run.parameters.policy_size
    assert torch.equal(run.parameters.vector[:size], before[:size])
    assert not torch.equal(run.parameters.vector[size:], before[size:])


@pytest.mark.parametrize("objective", ["spo", "trpo", "spu", "rpo-reflective", "drpo"])
def test_masked_actions_are_never_taken(objective):
    Masked.forbidden = 0
    run = training(Masked, objective=objective, envs=8, horizon=64)
    rows = iterate(run, 2)
    assert Masked.forbidden == 0 and np.isfinite(list(rows[-1].values())).all()
    mask = run.collector.collect().mask
    assert mask is not None and mask.any(-1).all() and not mask.all()


def test_masks_hold_over_many_samples_and_in_evaluation(amount):
    horizon = amount(400, 1600)
    run = training(Masked, envs=64, horizon=horizon, minibatches=4)
    Masked.forbidden = 0
    rollout = run.collector.collect()
    assert rollout.action.numel() == 64 * horizon and Masked.forbidden == 0
    assert rollout.mask.gather(-1, rollout.action.unsqueeze(-1)).all()
    assert evaluate_policy(run.snapshot_policy(), run.make_env, episodes=20).return_mean >= 0 and Masked.forbidden == 0


def test_masks_from_a_method_and_for_several_choices():
    class Several(Spaces):
        def __init__(self):
            super().__init__(OBSERVATIONS["vector"], S.MultiDiscrete([2, 3]))

        def action_masks(self):
            return [np.array([True, False]), np.array([False, True, True])]

    actions = training(Several, **SMALL).collector.collect().action
    assert (actions[..., 0] == 0).all() and (actions[..., 1] > 0).all()


def test_a_mask_that_forbids_everything_is_named():
    class Stuck(Masked):
        def shown(self):
            observation, info = super().shown()
            return observation, {"action_mask": info["action_mask"] * (self.time < 3)}

    with pytest.raises(SpoError, match="environment 0 gave the action mask .*, which leaves no action .its step 3"):
        training(Stuck, **SMALL).collector.collect()


class Ending(Masked):
    """In the last step of an episode nothing may be done, as in a game that is over."""

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated, truncated, {"action_mask": info["action_mask"] * (not terminated)}


class Short(Masked):
    def shown(self):
        observation, info = super().shown()
        return observation, {"action_mask": info["action_mask"][:4]}


class Late(Masked):
    """Gives no mask at the start of an episode."""

    def reset(self, **options):
        return super().reset(**options)[0], {}


class Uneven(Masked):
    made = 0

    def __init__(self):
        Uneven.made += 1
        self.number = Uneven.made

    def shown(self):
        observation, info = super().shown()
        return observation, info if self.number % 2 else {}


class Nothing(Masked):
    def step(self, action):
        return *super().step(action)[:4], None


def test_the_mask_of_an_episode_that_is_over_is_nobodys():
    Masked.forbidden = 0
    run = training(Ending, envs=2, horizon=64, minibatches=2)
    assert run.collector.collect().terminated.any() and Masked.forbidden == 0


@pytest.mark.parametrize(
    "env, told",
    [
        (Short, "environment 0 gave an action mask of 4 flags; accepted are 6, one for each action"),
        (Late, "environment 0 gave an action mask in step, and none in reset; accepted is one from every environment"),
        (Uneven, "environment . gave no action mask; accepted is one from every environment, in every reset and step"),
        (Nothing, "environment 0 returned the info None; accepted is a dict"),
    ],
)
def test_masks_and_infos_that_cannot_be_are_named(env, told):
    with pytest.raises(SpoError, match=told):
        training(env, **SMALL).collector.collect()


def test_a_mask_must_leave_something_in_every_choice():
    class Several(Spaces):
        def __init__(self):
            super().__init__(OBSERVATIONS["vector"], S.MultiDiscrete([2, 3]))

        def action_masks(self):
            return [True, True, False, False, False]

    with pytest.raises(SpoError, match="which leaves no action"):
        training(Several, **SMALL)


def test_a_policy_takes_a_mask_in_parts():
    run = training(lambda: Spaces(OBSERVATIONS["vector"], S.MultiDiscrete([2, 3])), **SMALL)
    mask = (np.array([False, True]), np.array([False, False, True]))
    assert run.snapshot_policy().act(np.zeros(3, np.float32), action_mask=mask).tolist() == [1, 2]


MASKLESS = {"Box": S.Box(-1, 1, (2,), np.float32), "MultiBinary": S.MultiBinary(2)}


@pytest.mark.parametrize("name", MASKLESS)
def test_a_mask_for_actions_that_cannot_be_counted_is_refused(name):
    class Maskless(Spaces):
        gives_mask = True

        def __init__(self):
            super().__init__(OBSERVATIONS["vector"], MASKLESS[name])

        def reset(self, *, seed=None, options=None):
            observation, info = super().reset(seed=seed, options=options)
            return observation, info | ({"action_mask": np.ones(2, np.int8)} if Maskless.gives_mask else {})

    sentence = f"an action mask is not accepted for action space {name}.*: it must be Discrete or MultiDiscrete"
    with pytest.raises(SpoError, match=sentence):
        training(Maskless, **SMALL)
    with pytest.raises(SpoError, match=sentence):
        training(lambda: gym.vector.SyncVectorEnv([Maskless] * SMALL["envs"]), **SMALL)
    Maskless.gives_mask = False
    run = training(Maskless, **SMALL)
    Maskless.gives_mask = True
    with pytest.raises(SpoError, match=sentence):
        evaluate_policy(run.snapshot_policy(), run.make_env, episodes=1)
    with pytest.raises(SpoError, match=sentence):
        run.snapshot_policy().act(run.envs.observation[0], action_mask=np.ones(2))


def test_masks_of_a_vector_environment_are_refused_and_not_ignored():
    with pytest.raises(SpoError, match="action masks of a vector environment are not read"):
        training(lambda: gym.vector.SyncVectorEnv([Masked] * SMALL["envs"]), **SMALL)
