"""A trained policy: network, frozen observation statistics and action space, as one object and as two files."""

import dataclasses
import hashlib
import json
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
from spo.networks import ACTIVATIONS, ActorCritic, actor_for
from spo.normalize import ObservationNormalizer
from spo.rundir import write_json
from spo.seeding import generator
from spo.spaces import ObservationLayout, at, describe_space, sample_of, space_from

FORMAT = 1
LARGEST_FILE = 2**31


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
    def from_json(cls, described: dict, tensors: dict[str, torch.Tensor]) -> "PolicySpec":
        """Reads a description and checks it against the tensors before anything of its size is made."""
        fields = {field.name: described[field.name] for field in dataclasses.fields(cls)}
        for name in ("hidden", "critic_hidden"):
            fields[name] = _sizes(name, described[name])
        for name, accepted in (("activation", ACTIVATIONS), ("encoder", ENCODERS)):
            if described[name] not in accepted:
                raise ValueError(f"{name} {described[name]!r} is unknown")
        fields["observation_space"] = space_from(described["observation_space"])
        fields["action_space"] = space_from(described["action_space"], tensors)
        spec = cls(**fields)
        if spec._weights() > sum(tensor.numel() for tensor in tensors.values()):
            raise ValueError("policy.json describes a larger network than policy.safetensors holds")
        return spec

    def _weights(self) -> int:
        """At least so many weights does the network have: checked before it is made."""
        outputs = distribution_for(self.action_space).outputs
        inputs = 1 if self.layout.images else self.layout.shape[0]
        layers = ([inputs, *self.hidden, outputs], [inputs, *self.critic_hidden, 1])
        return sum(a * b for sizes in layers for a, b in zip(sizes[:-1], sizes[1:]))


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
    if (directory / "policy").is_dir():
        directory = directory / "policy"
    if not (directory / "policy.json").is_file():
        raise Refusal(f"{path} holds no policy: there is no policy.json in it (a run writes one when it ends)")
    try:
        return _build(*_read(directory))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, RecursionError) as error:
        raise Refusal(f"the policy in {directory} is damaged: {type(error).__name__}: {error}")


def _read(directory: Path) -> tuple[dict, dict[str, torch.Tensor]]:
    described = json.loads((directory / "policy.json").read_text())
    file = directory / "policy.safetensors"
    if file.stat().st_size > LARGEST_FILE:
        raise ValueError(f"policy.safetensors has more than {LARGEST_FILE} bytes")
    if described["format"] != FORMAT:
        raise ValueError(f"its format is {described['format']!r}, this version reads {FORMAT}")
    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != described["sha256"]:
        raise ValueError("policy.safetensors does not match the checksum in policy.json")
    return described, load(content)


def _build(described: dict, tensors: dict[str, torch.Tensor]) -> Policy:
    spec = PolicySpec.from_json(described, tensors)
    network = spec.network()
    network.load_state_dict({name: tensors[name] for name, _ in network.named_parameters()})
    mode = "off" if described["normalize_observation"] == "off" else "shared"
    normalizer = ObservationNormalizer(mode, 1, spec.layout.numbers)
    for name in ("mean", "variance", "count"):
        getattr(normalizer.moments, name)[:] = tensors[f"normalizer.{name}"].numpy()
    return Policy(spec, network, normalizer)


def _sizes(name: str, sizes: object) -> tuple[int, ...]:
    if not isinstance(sizes, list) or not all(isinstance(size, int) and size >= 1 for size in sizes):
        raise ValueError(f"{name} {sizes!r} is not a list of whole numbers")
    return tuple(sizes)
