"""A trained policy: network, frozen observation statistics and action space, as one object and as two files."""

import dataclasses
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from safetensors.torch import load, save

from spo.distributions import Gaussian, distribution_for
from spo.encoders import ENCODERS
from spo.errors import Refusal
from spo.networks import ACTIVATIONS, LARGEST_LAYER, LARGEST_NETWORK, MOST_LAYERS, ActorCritic, actor_for
from spo.normalize import ObservationNormalizer
from spo.rundir import LARGEST_HEADER, LARGEST_TEXT, checked_header, parse_json, read_bounded, write_json
from spo.seeding import generator
from spo.spaces import ObservationLayout, at, check_maskable, describe_space, sample_of, space_from

FORMAT = 1


@dataclass(frozen=True)
class PolicySpec:
    """Everything about a policy that is not numbers: what it was trained for, and the shape of its networks."""

    env: str
    objective: str
    observation_space: gym.Space
    action_space: gym.Space
    hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...]
    activation: str
    encoder: str

    @cached_property
    def layout(self) -> ObservationLayout:
        return ObservationLayout(self.observation_space, self.encoder)

    def network(self, seed: int = 0) -> ActorCritic:
        distribution = distribution_for(self.action_space)
        layers = (self.hidden, self.critic_hidden, self.activation)
        return ActorCritic(self.layout, distribution, *layers, self.encoder, seed)

    def as_json(self) -> dict[str, object]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        spaces = {name: describe_space(fields[name]) for name in ("observation_space", "action_space")}
        return fields | spaces

    @classmethod
    def from_json(cls, described: dict) -> "PolicySpec":
        """Reads a description that may come from anyone: nothing of the size that it claims is made."""
        fields = {field.name: described[field.name] for field in dataclasses.fields(cls)}
        for name in ("hidden", "critic_hidden"):
            fields[name] = _sizes(name, described[name])
        for name, accepted in (("activation", ACTIVATIONS), ("encoder", ENCODERS)):
            if described[name] not in tuple(accepted):
                raise ValueError(f"{name} {described[name]!r} is unknown")
        for name in ("env", "objective"):
            if not isinstance(described[name], str):
                raise ValueError(f"{name} {described[name]!r} is not text")
        for name in ("observation_space", "action_space"):
            fields[name] = space_from(described[name])
        return cls(**fields)

    def blank_network(self) -> ActorCritic:
        """The network without its numbers: names and shapes, and no memory."""
        with torch.device("meta"):
            blank = self.network()
        size = sum(parameter.numel() for parameter in blank.parameters())
        if size > LARGEST_NETWORK:
            raise Refusal(f"a network of {size:,} parameters is not accepted: it must have up to {LARGEST_NETWORK:,}")
        return blank

    def blank_tensors(self, network: ActorCritic) -> dict[str, torch.Tensor]:
        """Everything that `Policy.tensors` holds, as shapes and types."""
        moments = {name: (1, self.layout.numbers) for name in ("mean", "variance")} | {"count": (1, 1)}
        blanks = {f"normalizer.{name}": _blank(shape, "float64") for name, shape in moments.items()}
        if isinstance(self.action_space, gym.spaces.Box):
            shape, dtype = self.action_space.shape, self.action_space.dtype.name
            blanks |= {f"action.{name}": _blank(shape, dtype) for name in ("low", "high")}
        return dict(network.named_parameters()) | blanks


class Policy:
    """Acts: `policy.act(observation)` for one observation or a batch of them."""

    def __init__(self, spec: PolicySpec, network: ActorCritic, normalizer: ObservationNormalizer):
        self.spec, self.network, self.normalizer = spec, network.requires_grad_(False), normalizer
        self.distribution = distribution_for(spec.action_space)
        self.actor = actor_for(network, "cpu")
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Restarts the draws of stochastic acting."""
        self.generator = generator(seed, "policy")

    def act(self, observation: object, deterministic: bool = True, action_mask: np.ndarray | None = None) -> np.ndarray:
        """The action for one observation, or the actions for a batch, as the environment takes them."""
        packed, is_single = self._packed(observation)
        params = self.actor.params(self.normalizer(packed))
        if action_mask is not None:
            check_maskable(self.spec.action_space)
            params = self.distribution.masked(params, np.asarray(action_mask, bool).reshape(params.shape))
        action = self.distribution.to_env(self._chosen(params, deterministic))
        return action[0] if is_single else action

    def _packed(self, observation: object) -> tuple[np.ndarray, bool]:
        """The observation as a batch of arrays, and whether it was a single one."""
        layout = self.spec.layout
        path, leaf = layout.leaves[0]
        shape = np.shape(at(observation, path))
        if shape == leaf.shape:
            return layout.pack(observation)[None], True
        if shape[1:] != leaf.shape:
            accepted = f"it must be {leaf.shape} or a batch"
            raise Refusal(f"an observation of shape {shape} is not accepted: {accepted}")
        if layout.is_plain:
            return np.asarray(observation), False
        return np.stack([layout.pack(sample_of(observation, index)) for index in range(shape[0])]), False

    def _chosen(self, params: np.ndarray, deterministic: bool) -> np.ndarray:
        if deterministic:
            return self.distribution.mode(params)
        return self.distribution.sample(params, self.distribution.noise(self.generator, (len(params),)))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that is numbers, by name."""
        tensors = {name: parameter.detach().clone() for name, parameter in self.network.named_parameters()}
        moments = self.normalizer.moments
        for name in ("mean", "variance", "count"):
            tensors[f"normalizer.{name}"] = torch.from_numpy(getattr(moments, name).copy())
        if isinstance(self.distribution, Gaussian):
            tensors["action.low"] = torch.from_numpy(self.distribution.low.copy())
            tensors["action.high"] = torch.from_numpy(self.distribution.high.copy())
        return tensors


def save_policy(policy: Policy, directory: Path) -> None:
    """Writes policy.safetensors, then policy.json with its checksum: each appears whole, the second vouches."""
    directory.mkdir(exist_ok=True)
    content = save(policy.tensors())
    temporary = directory / "policy.safetensors.tmp"
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / "policy.safetensors")
    described = {"format": FORMAT, **policy.spec.as_json(), "normalize_observation": policy.normalizer.mode}
    write_json(directory / "policy.json", described | {"sha256": hashlib.sha256(content).hexdigest()}, durable=True)


def load_policy(path: str | os.PathLike) -> Policy:
    """The policy of a run directory or of its policy/ folder. Runs no code and imports nothing that a file names."""
    directory = Path(path)
    if os.path.isdir(directory / "policy"):
        directory = directory / "policy"
    if not os.path.exists(directory / "policy.json"):
        raise Refusal(f"{path} holds no policy: there is no policy.json in it (a run writes one when it ends)")
    try:
        return _loaded(directory)
    except Exception as error:  # whatever a damaged file provokes in a parser is damage
        raise Refusal(f"the policy in {directory} is damaged: {type(error).__name__}: {error}")


def _loaded(directory: Path) -> Policy:
    """The description comes first: it says how large the tensors may be, and they must be just what it says."""
    described = parse_json(read_bounded(directory / "policy.json", LARGEST_TEXT))
    if described["format"] != FORMAT:
        raise ValueError(f"its format is {described['format']!r}, this version reads {FORMAT}")
    spec = PolicySpec.from_json(described)
    network = spec.blank_network()
    blanks = spec.blank_tensors(network)
    largest = LARGEST_HEADER + sum(blank.nbytes for blank in blanks.values())
    content = read_bounded(directory / "policy.safetensors", largest)
    if hashlib.sha256(content).hexdigest() != described["sha256"]:
        raise ValueError("policy.safetensors does not match the checksum in policy.json")
    tensors = load(checked_header(content))
    _check_alike(tensors, blanks)
    network.load_state_dict({name: tensors[name] for name, _ in network.named_parameters()}, assign=True)
    return Policy(_bounded(spec, tensors), network, _normalizer(described, spec, tensors))


def _check_alike(tensors: dict[str, torch.Tensor], blanks: dict[str, torch.Tensor]) -> None:
    for name in sorted(tensors.keys() | blanks.keys()):
        found, described = (_form(one.get(name)) for one in (tensors, blanks))
        if found != described:
            raise ValueError(f"tensor {name!r} is {found}, policy.json describes {described}")


def _form(tensor: torch.Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"


def _bounded(spec: PolicySpec, tensors: dict[str, torch.Tensor]) -> PolicySpec:
    """With the bounds of a Box of actions, which are numbers and stand among the tensors."""
    if not isinstance(spec.action_space, gym.spaces.Box):
        return spec
    low, high = tensors["action.low"].numpy(), tensors["action.high"].numpy()
    return dataclasses.replace(spec, action_space=gym.spaces.Box(low, high, dtype=low.dtype))


def _normalizer(described: dict, spec: PolicySpec, tensors: dict[str, torch.Tensor]) -> ObservationNormalizer:
    mode = described["normalize_observation"]
    if mode not in ("shared", "off"):
        raise ValueError(f"normalize_observation {mode!r} is unknown")
    normalizer = ObservationNormalizer(mode, 1, spec.layout.numbers)
    for name in ("mean", "variance", "count"):
        getattr(normalizer.moments, name)[:] = tensors[f"normalizer.{name}"].numpy()
    return normalizer


def _blank(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def _sizes(name: str, sizes: object) -> tuple[int, ...]:
    is_list = isinstance(sizes, list) and len(sizes) <= MOST_LAYERS
    if not is_list or not all(type(size) is int and 1 <= size <= LARGEST_LAYER for size in sizes):
        raise ValueError(f"{name} {sizes!r} is not a list of layers")
    return tuple(sizes)
