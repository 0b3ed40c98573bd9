"""Which distribution an action space gets, and in which unit its actions are learned."""

import math
from importlib import import_module
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np

from spo.errors import ConfigError

if TYPE_CHECKING:
    from spo.models.distributions import Distribution

FOR_BOX = {
    "gaussian": "distributions:Gaussian",
    "gaussian-state": "box_distributions:StateGaussian",
    "squashed": "box_distributions:Squashed",
    "beta": "box_distributions:Beta",
}
DISTRIBUTIONS = {**FOR_BOX, "categorical": "distributions:Categorical", "bernoulli": "distributions:Bernoulli"}
"""The classes by name, imported when one is made: they need torch, and settings only their names."""
WITHIN_BOUNDS = ("squashed", "beta")
"""Distributions that reach every action within the bounds by themselves, and no other."""
ACTION_SCALES = ("off", "bounds")
NO_BOUND = 1e30
"""Of this size or larger, a bound is none: what lies between two of them may not even be a 32-bit float."""
FARTHEST, LEAST_INSIDE = 5.0, 0.2
"""In standard deviations of an untrained Gaussian: bounds that it never reaches, or of whose inside it misses most."""


def names_for(space: gym.Space) -> tuple[str, ...]:
    """Return the names of the distributions that fit an action space; the first is taken unless another is asked."""
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        return tuple(FOR_BOX)
    if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return ("categorical",)
    if isinstance(space, gym.spaces.MultiBinary):
        return ("bernoulli",)
    accepted = "accepted are Box of floats, Discrete, MultiDiscrete and MultiBinary"
    raise ConfigError(f"action space {space} is not supported; {accepted}")


def resolve_distribution(space: gym.Space, name: str) -> str:
    """Return the name of the distribution that is meant, if it fits the space."""
    fitting = names_for(space)
    if name not in ("auto", *fitting):
        accepted = f"it must be auto, which is {fitting[0]} there"  # a setting names those of a Box alone
        raise ConfigError(f"--distribution {name} does not fit action space {space}: {accepted}")
    return fitting[0] if name == "auto" else name


def distribution_for(space: gym.Space, name: str = "auto", action_scale: str = "off") -> "Distribution":
    """Return the distribution of that name over an action space."""
    name = resolve_distribution(space, name)
    module, _, kind = DISTRIBUTIONS[name].partition(":")
    make = getattr(import_module(f"spo.models.{module}"), kind)
    is_scalable = name in FOR_BOX and name not in WITHIN_BOUNDS
    return make(space, action_scale == "bounds") if is_scalable else make(space)


def resolve_action_scale(space: gym.Space, distribution: str, asked: str) -> str:
    """Return `bounds` if actions of ±1 are mapped to the bounds of a Box, else `off`; `auto` does it for far bounds."""
    needed_by = f"--distribution {distribution}" if distribution in WITHIN_BOUNDS else "--action-scale bounds"
    if not has_bounds(space) and (distribution in WITHIN_BOUNDS or asked == "bounds"):
        raise ConfigError(f"{needed_by} does not fit action space {space}: it must be a Box with finite bounds")
    if distribution in WITHIN_BOUNDS and not (space.low < space.high).all():
        raise ConfigError(f"{needed_by} does not fit action space {space}: its bounds must be apart")
    if distribution in WITHIN_BOUNDS:
        return "off"  # they know no other unit
    return ("bounds" if has_far_bounds(space) else "off") if asked == "auto" else asked


def has_bounds(space: gym.Space) -> bool:
    """Tell whether it is a Box with finite bounds; a type's largest numbers are a way of saying that it has none."""
    if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
        return False
    return bool((np.maximum(np.abs(space.low), np.abs(space.high)) < NO_BOUND).all())


def has_far_bounds(space: gym.Space) -> bool:
    """Tell whether an untrained Gaussian (mean 0, standard deviation 1) cannot use the finite range of an action."""
    if not has_bounds(space):
        return False
    bounds = zip(space.low.ravel().tolist(), space.high.ravel().tolist())
    return any(max(-low, high) > FARTHEST or _normal(high) - _normal(low) < LEAST_INSIDE for low, high in bounds)


def _normal(number: float) -> float:
    return 0.5 * (1 + math.erf(number / math.sqrt(2)))


def describe_action_scale(space: gym.Space, distribution: str, asked: str) -> str | None:
    """Return the sentence that a user should read before training with bounds far from ±1, if there is one."""
    if distribution in WITHIN_BOUNDS or not has_far_bounds(space):
        return None
    bounds = f"from {space.low.min():g} to {space.high.max():g}"
    if asked == "auto":
        return f"actions reach {bounds}: ±1 is mapped to their bounds (--action-scale off leaves them as they are)"
    if asked == "bounds":
        return None
    return (
        f"warning: actions reach {bounds}, but the policy starts at 0 ± 1, so some are never reached or always clipped;"
        " --action-scale bounds maps ±1 to the bounds"
    )
