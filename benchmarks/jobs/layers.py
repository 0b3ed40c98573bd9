"""The multi-layer perceptron, for libraries that leave the networks to their users."""

from itertools import pairwise

from torch import nn


def mlp(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    layers = [layer for sizes in pairwise((inputs, *hidden)) for layer in (nn.Linear(*sizes), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(hidden[-1], outputs))
