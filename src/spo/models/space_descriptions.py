"""Spaces as JSON, and back from JSON that may be damaged or hostile."""

import math
from collections.abc import Iterator

import gymnasium as gym
import numpy as np

from spo.spaces import FLOATS, LARGEST_OBSERVATION, MOST_AXES, MOST_PARTS

DTYPES = (*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")


def describe_space(space: gym.Space) -> dict[str, object]:
    """A space as JSON; the bounds of a Box are numbers and stand elsewhere."""
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, gym.spaces.MultiDiscrete):
        return {"type": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": space.start.tolist()}
    if isinstance(space, gym.spaces.MultiBinary):
        return {"type": "MultiBinary", "shape": list(space.shape)}
    if isinstance(space, gym.spaces.Dict):
        return {"type": "Dict", "spaces": [[key, describe_space(part)] for key, part in space.spaces.items()]}
    if isinstance(space, gym.spaces.Tuple):
        return {"type": "Tuple", "spaces": [describe_space(part) for part in space.spaces]}
    return {"type": "Box", "shape": list(space.shape), "dtype": space.dtype.name}


def space_from(described: dict) -> gym.Space:
    """The space of a description, if it is of a size that can be; a Box has those of its type."""
    sizes = [_described_size(leaf) for leaf in _described_leaves(described)]
    if len(sizes) > MOST_PARTS or min(sizes, default=0) < 0 or sum(sizes) > LARGEST_OBSERVATION:
        raise ValueError(f"a space of {len(sizes):,} parts and {sum(sizes):,} numbers is not accepted")
    return _make_space(described)


def _described_leaves(described: dict) -> Iterator[dict]:
    if described["type"] == "Dict":
        parts = [part for _, part in described["spaces"]]
    elif described["type"] == "Tuple":
        parts = described["spaces"]
    else:
        yield described
        return
    for part in parts:
        yield from _described_leaves(part)


def _described_size(leaf: dict) -> int:
    """How many numbers it has once it is packed: known before anything of that size is made, and never wrapped."""
    if leaf["type"] == "MultiDiscrete":
        return sum(np.array(leaf["nvec"], dtype=np.int64).ravel().tolist())
    sizes = [leaf["n"]] if leaf["type"] == "Discrete" else leaf["shape"]
    is_shape = isinstance(sizes, list) and len(sizes) <= MOST_AXES
    if not is_shape or not all(type(size) is int and 0 <= size <= LARGEST_OBSERVATION for size in sizes):
        raise ValueError(f"a {leaf['type']} of {sizes!r} is not accepted")
    return math.prod(sizes)


def _make_space(described: dict) -> gym.Space:
    kind = described["type"]
    if kind == "Discrete":
        return gym.spaces.Discrete(described["n"], start=described["start"])
    if kind == "MultiDiscrete":
        return gym.spaces.MultiDiscrete(described["nvec"], start=described["start"])
    if kind == "MultiBinary":
        return gym.spaces.MultiBinary(described["shape"])
    if kind == "Dict":
        # Pairs: of a plain dict Gymnasium sorts the keys, and each weight would read another number.
        return gym.spaces.Dict([(key, _make_space(part)) for key, part in described["spaces"]])
    if kind == "Tuple":
        return gym.spaces.Tuple([_make_space(part) for part in described["spaces"]])
    if kind != "Box" or described["dtype"] not in DTYPES:
        raise ValueError(f"space {kind!r} of {described.get('dtype')!r} is unknown")
    return gym.spaces.Box(*_widest(described["dtype"]), tuple(described["shape"]), np.dtype(described["dtype"]))


def _widest(dtype: str) -> tuple[float, float]:
    """The bounds of a type, which are those of byte images too."""
    if dtype in FLOATS:
        return -np.inf, np.inf
    return (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
