"""Observation spaces as the networks read them: one array per environment, whatever the space.

A space of one image stays an image (bytes stay bytes). Everything else becomes one float32 vector: first the numbers,
which the running statistics normalise, then one-hot choices, then images, flattened.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from spo.errors import SpoError

LARGEST_OBSERVATION, MOST_PARTS, MOST_AXES = 10**7, 1000, 32
"""Numbers, spaces in a space, and axes of one: more is a mistake, or malice."""
FLOATS = ("float16", "float32", "float64")
LEAVES = (gym.spaces.Box, gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)


def check_maskable(space: gym.Space) -> None:
    """Refuse a mask for actions that cannot be counted out one by one."""
    if not isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        raise SpoError(f"an action mask is not accepted for action space {space}: it must be Discrete or MultiDiscrete")


def join_mask(mask: Any) -> np.ndarray:
    """A mask as one row of flags; that of several choices may come as one array for each."""
    parts = mask if isinstance(mask, tuple | list) else [mask]
    return np.concatenate([np.asarray(part).ravel() for part in parts]).astype(bool)


def count_actions(space: gym.Space) -> int:
    """How many flags a mask has: one for each action of each choice."""
    return int(space.nvec.sum() if isinstance(space, gym.spaces.MultiDiscrete) else space.n)


def leaves_a_choice(space: gym.Space, mask: np.ndarray) -> bool:
    """Whether a row of flags allows an action, in every choice where there are several."""
    if isinstance(space, gym.spaces.MultiDiscrete):
        ends = np.cumsum(space.nvec.ravel())[:-1]
        return all(part.any() for part in np.split(mask, ends))
    return bool(mask.any())


@dataclass(frozen=True)
class Image:
    """An image's shape, channels first, and how to get there."""

    shape: tuple[int, int, int]
    has_channels_last: bool
    scale: float  # what its values are divided by

    def channels_first(self, array: np.ndarray) -> np.ndarray:
        return np.moveaxis(array, -1, -3) if self.has_channels_last else array


class ObservationLayout:
    """What of an observation space goes where."""

    def __init__(self, space: gym.Space, encoder: str = "auto"):
        self.leaves = list(_leaves(space, ()))
        self.kinds = [_kind(leaf, encoder) for _, leaf in self.leaves]
        self.images = tuple(_image(leaf) for (_, leaf), kind in zip(self.leaves, self.kinds) if kind == "image")
        self.is_image = self.kinds == ["image"]
        self.shape: tuple[int, ...]
        self.is_plain = isinstance(space, gym.spaces.Box) and self.kinds == ["continuous"] and len(space.shape) == 1
        self.continuous_size = self._size("continuous")
        self.vector_size = self.continuous_size + self._size("one_hot")
        if self.is_image:
            is_of_bytes = self.leaves[0][1].dtype in (np.uint8, np.bool_)
            self.shape, self.dtype = self.images[0].shape, np.dtype(np.uint8 if is_of_bytes else np.float32)
        else:
            self.shape, self.dtype = (self.vector_size + self._size("image"),), np.dtype(np.float32)
        if not self.leaves or 0 in self.shape:
            raise SpoError(f"observation space {space} is not supported: it holds nothing to see")
        if math.prod(self.shape) > LARGEST_OBSERVATION:
            size = f"{math.prod(self.shape):,} numbers; accepted are up to {LARGEST_OBSERVATION:,}"
            raise SpoError(f"observation space {space} is not supported: it holds {size}")

    def pack(self, observation: Any) -> np.ndarray:
        """One environment's observation as one array."""
        if self.is_plain:
            return observation
        if self.is_image:
            return self.images[0].channels_first(np.asarray(at(observation, self.leaves[0][0])))
        parts: dict[str, list[np.ndarray]] = {"continuous": [], "one_hot": [], "image": []}
        images = iter(self.images)
        for (path, leaf), kind in zip(self.leaves, self.kinds):
            value = at(observation, path)
            flat = next(images).channels_first(np.asarray(value)) if kind == "image" else _flatten(leaf, value)
            parts[kind].append(np.asarray(flat, dtype=np.float32).ravel())
        return np.concatenate([array for kind in ("continuous", "one_hot", "image") for array in parts[kind]])

    def pack_batch(self, observation: Any, count: int) -> np.ndarray:
        """Pack the observations of `count` environments, in which every array has a leading axis."""
        if self.is_plain:
            return observation
        if self.is_image:
            return self.images[0].channels_first(np.asarray(at(observation, self.leaves[0][0])))
        return np.stack([self.pack(sample_of(observation, index)) for index in range(count)])

    def _size(self, kind: str) -> int:
        return sum(gym.spaces.flatdim(leaf) for (_, leaf), other in zip(self.leaves, self.kinds) if other == kind)


def _leaves(space: gym.Space, path: tuple) -> Iterator[tuple[tuple, gym.Space]]:
    """Paths and spaces of everything that is not a Dict or a Tuple, in the spaces' own order."""
    if isinstance(space, gym.spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, (*path, key))
    elif isinstance(space, gym.spaces.Tuple):
        for position, part in enumerate(space.spaces):
            yield from _leaves(part, (*path, position))
    elif isinstance(space, LEAVES):
        yield path, space
    else:
        raise SpoError(
            f"observation space {space} is not supported; accepted are Box, Discrete, MultiDiscrete, MultiBinary,"
            " and Dict and Tuple of these"
        )


def at(observation: Any, path: tuple) -> Any:
    """What stands at a path of keys and positions."""
    for key in path:
        observation = observation[key]
    return observation


def batch_size(leaves: list[tuple[tuple, gym.Space]], observation: object) -> int | None:
    """Return how many observations are in a batch, or None for a single one; refuse what is neither."""
    sizes = {_part_size(path, leaf, observation) for path, leaf in leaves}
    if len(sizes) > 1:
        listed = ", ".join("none" if size is None else str(size) for size in sizes)
        raise SpoError(f"an observation with parts of unlike batches ({listed}) is not accepted: they must be the same")
    return sizes.pop()


def _part_size(path: tuple, leaf: gym.Space, observation: object) -> int | None:
    name = "".join(f"[{key!r}]" for key in path)
    try:
        value = np.asarray(at(observation, path))
    except (KeyError, IndexError, TypeError, ValueError):
        raise SpoError(f"an observation without {name or 'numbers'} is not accepted: it must have a {leaf} there")
    accepted = f"it must be {leaf.shape} or a batch of these"
    if value.dtype.kind not in "fiub":
        raise SpoError(f"an observation{name} of {value.dtype} is not accepted: it must be numbers, {leaf}")
    if value.shape != leaf.shape and value.shape[1:] != leaf.shape:
        raise SpoError(f"an observation{name} of shape {value.shape} is not accepted: {accepted}")
    return None if value.shape == leaf.shape else value.shape[0]


def sample_of(batch: Any, index: int) -> Any:
    """One observation of a batch, in which every array has a leading axis."""
    if isinstance(batch, dict):
        return {key: sample_of(part, index) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(sample_of(part, index) for part in batch)
    return batch[index]


def _flatten(leaf: gym.Space, value: Any) -> np.ndarray:
    """As Gymnasium does, which would take the last choice for one below the first."""
    if isinstance(leaf, gym.spaces.Discrete | gym.spaces.MultiDiscrete) and (np.asarray(value) < leaf.start).any():
        raise SpoError(f"an observation of {value} is not accepted: it must be in {leaf}")
    return gym.spaces.flatten(leaf, value)


def _kind(space: gym.Space, encoder: str) -> str:
    """An image has three axes and bytes or flags, or any three axes if an image encoder was asked for."""
    if not isinstance(space, gym.spaces.Box):
        return "one_hot"
    has_pixels = space.dtype in (np.uint8, np.bool_) or encoder not in ("auto", "mlp")
    return "image" if len(space.shape) == 3 and has_pixels and encoder != "mlp" else "continuous"


def _image(space: gym.spaces.Box) -> Image:
    """Channels are the shorter of the first and the last axis."""
    has_channels_last = space.shape[-1] < space.shape[0]
    height_width_channels = space.shape if has_channels_last else (*space.shape[1:], space.shape[0])
    height, width, channels = height_width_channels
    return Image((channels, height, width), has_channels_last, 255.0 if space.dtype == np.uint8 else 1.0)
