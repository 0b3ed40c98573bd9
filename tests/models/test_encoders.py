"""Encoders compute what their layers say, in whatever order they find fastest."""

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from probes import Spaces, training
from spo.models.actors import TorchActor
from spo.models.choose_distribution import distribution_for
from spo.models.cpu_convolutions import CHANNELS_FIRST, CHANNELS_LAST, SpaceToDepthConv2d, space_to_depth
from spo.models.encoders import Encoder
from spo.models.networks import ActorCritic
from spo.spaces import ObservationLayout

SMALL = {"envs": 2, "horizon": 8, "epochs": 2, "minibatches": 2}
SHAPES = [(4, 84, 84), (3, 64, 64), (1, 36, 40), (4, 85, 84), (2, 84, 87)]
"""Of images; the last two cannot be cut into blocks of four."""


def encoder_of(shape, dtype=np.uint8):
    layout = ObservationLayout(gym.spaces.Box(0, 255, shape, dtype), "nature")
    return Encoder(layout, "nature", torch.Generator().manual_seed(0))


def images_of(shape):
    return torch.randint(0, 256, (3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def plainly(encoder, images):
    """Layer after layer as torch computes them, on pixels between 0 and 1."""
    x = images.to(torch.float32) / 255
    for layer in encoder.trunks[0]:
        x = F.conv2d(x, layer.weight, layer.bias, layer.stride) if isinstance(layer, torch.nn.Conv2d) else layer(x)
    return x


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 3))
def test_a_convolution_with_a_stride_is_one_without_on_folded_blocks(size, channels, height, width, more):
    kernel = size * 2
    image = torch.randn(2, channels, size * (height + 1), size * (width + 1 + more), dtype=torch.float64)
    weight = torch.randn(3, channels, kernel, kernel, dtype=torch.float64)
    expected = F.conv2d(image, weight, stride=size)
    for order in (CHANNELS_FIRST, CHANNELS_LAST):
        result = F.conv2d(space_to_depth(image, size, order), space_to_depth(weight, size, order))
        torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [(5, 20, 20), (5, 21, 20), (5, 9, 9)])
def test_folding_a_layer_changes_neither_its_values_nor_its_gradients(shape):
    layer = SpaceToDepthConv2d(shape[0], 6, 4, 2).double()
    image = torch.randn(2, *shape, dtype=torch.float64, requires_grad=True)
    plain = F.conv2d(image, layer.weight, layer.bias, 2)
    slope = torch.randn_like(plain)
    variables = (image, layer.weight, layer.bias)
    expected = torch.autograd.grad(plain, variables, slope)
    for result, other in zip(torch.autograd.grad(layer(image), variables, slope), expected):
        torch.testing.assert_close(result, other, rtol=1e-10, atol=1e-10)
    with torch.no_grad():
        torch.testing.assert_close(layer(image), plain)


def test_a_layer_is_folded_only_where_a_gradient_is_wanted(monkeypatch):
    layer, image, folds = SpaceToDepthConv2d(5, 6, 4, 2), torch.randn(2, 5, 20, 20), []
    monkeypatch.setattr(
        "spo.models.cpu_convolutions.space_to_depth",
        lambda *arguments: folds.append(arguments) or space_to_depth(*arguments),
    )
    with torch.no_grad():
        layer(image)
    assert not folds
    layer(image)
    assert len(folds) == 2  # the image and the kernel


@pytest.mark.parametrize("shape", SHAPES)
def test_features_and_gradients_are_those_of_the_layers(shape):
    encoder, images = encoder_of(shape), images_of(shape)
    expected, result = plainly(encoder, images), encoder(images)
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(encoder(images), expected, rtol=1e-5, atol=1e-5)
    parameters = list(encoder.parameters())
    wanted = torch.autograd.grad(expected.sum(), parameters)
    for slope, other in zip(torch.autograd.grad(result.sum(), parameters), wanted):
        torch.testing.assert_close(slope, other, rtol=1e-4, atol=1e-4 * other.abs().max().item())


@pytest.mark.parametrize("shape", SHAPES)
def test_prepared_images_give_the_same_bits(shape):
    encoder, images = encoder_of(shape), images_of(shape)
    prepared = encoder.preprocess(images)
    assert prepared.numel() == images.numel() and prepared.dtype == torch.uint8
    assert (prepared.ndim == 3) == (shape in SHAPES[:3])
    assert torch.equal(encoder.preprocess(prepared), prepared)
    assert torch.equal(encoder(prepared), encoder(images))


def test_images_of_floats_are_read_as_they_are():
    encoder, images = encoder_of((4, 84, 84), np.float32), images_of((4, 84, 84))
    pixels = images.float() / 255
    assert encoder.preprocess(pixels) is pixels
    torch.testing.assert_close(encoder(pixels), plainly(encoder, images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("encoder", ["nature", "resnet18"])
def test_a_settled_actor_keeps_its_weights_until_it_is_settled_again(encoder):
    layout = ObservationLayout(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), encoder)
    network = ActorCritic(layout, distribution_for(gym.spaces.Discrete(4)), (), (), "tanh", encoder, seed=1)
    images, actor = images_of((4, 84, 84)), TorchActor(network.requires_grad_(False), "cpu")

    def outputs(ask):
        return np.concatenate([part.reshape(3, -1) for part in ask(images.numpy())], axis=1)

    def fresh():
        return outputs(TorchActor(network, "cpu"))

    before = fresh()
    actor.sync_weights()
    np.testing.assert_allclose(outputs(actor), before, rtol=1e-4, atol=1e-5)
    for parameter in network.parameters():
        parameter.mul_(1.1)
    after = fresh()
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(outputs(actor), before, rtol=1e-4, atol=1e-5)
    actor.sync_weights()
    np.testing.assert_allclose(outputs(actor), after, rtol=1e-4, atol=1e-5)


def test_every_rollout_acts_with_the_newest_weights():
    run = training(lambda: Spaces(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), gym.spaces.Discrete(3)), **SMALL)
    for _ in range(2):
        rollout = run.collector.collect()
        observation = rollout.observation.flatten(0, 1)
        expected = run.network(observation, "dist_params")
        torch.testing.assert_close(rollout.dist_params.flatten(0, 1), expected, rtol=1e-4, atol=1e-5)
        run.update(run.advantages(rollout), 1e-3)


def test_images_are_prepared_once_for_all_epochs():
    run = training(lambda: Spaces(gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), gym.spaces.Discrete(3)), **SMALL)
    epochs, seen = run.update.epochs, []
    step = epochs.step
    epochs.step = lambda *arguments: seen.append(arguments[5].observation) or step(*arguments)
    run.iterate()
    assert len(seen) == SMALL["epochs"] * SMALL["minibatches"] and all(images.ndim == 3 for images in seen)


def test_a_few_images_are_read_in_one_thread_and_many_in_all():
    """Threads that wait for each other made eight images take 120 ms instead of 6 on a busy machine."""
    layout = ObservationLayout(gym.spaces.Box(0, 255, (64, 64, 3), np.uint8), "nature")
    network = ActorCritic(layout, distribution_for(gym.spaces.Discrete(4)), (), (), "tanh", "nature", seed=1)
    actor, used = TorchActor(network.requires_grad_(False), "cpu"), []
    network.register_forward_pre_hook(lambda *_: used.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for amount in (1, 8, 16):
            for ask in (actor, actor.dist_params, actor.value):
                ask(np.zeros((amount, 3, 64, 64), np.uint8))
        assert used == [1] * 6 + [2] * 3 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
