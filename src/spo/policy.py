"""A trained policy: network, frozen observation statistics and action space, as one object and as two files."""

import dataclasses
import hashlib
import json
import math
import os
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from safetensors.torch import load, save

from spo.distributions import Gaussian, distribution_for
from spo.errors import Refusal
from spo.networks import ACTIVATIONS, ActorCritic, NumpyActor
from spo.normalize import ObservationNormalizer
from spo.rundir import write_json
from spo.seeding import generator

FORMAT = 1
LARGEST_FILE = 2**31


@dataclass(frozen=True)
class PolicySpec:
    """Everything about a policy that is not numbers: what it was trained for, and the shape of its networks."""

    env: str
    objective: str
    observation_shape: tuple[int, ...]
    action_space: gym.Space
    hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...]
    activation: str

    def network(self, seed: int = 0) -> ActorCritic:
        inputs = math.prod(self.observation_shape)
        distribution = distribution_for(self.action_space)
        return ActorCritic(inputs, distribution, self.hidden, self.critic_hidden, self.activation, seed)

    def as_json(self) -> dict[str, object]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return fields | {"action_space": _describe(self.action_space)}

    @classmethod
    def from_json(cls, described: dict, tensors: dict[str, torch.Tensor]) -> "PolicySpec":
        """Reads a description and checks it against the tensors before anything of its size is made."""
        fields = {field.name: described[field.name] for field in dataclasses.fields(cls)}
        for name in ("observation_shape", "hidden", "critic_hidden"):
            fields[name] = _sizes(name, described[name])
        if described["activation"] not in ACTIVATIONS:
            raise ValueError(f"activation {described['activation']!r} is unknown")
        spec = cls(**fields | {"action_space": _action_space(described["action_space"], tensors)})
        if spec._weights() > sum(tensor.numel() for tensor in tensors.values()):
            raise ValueError("policy.json describes a larger network than policy.safetensors holds")
        return spec

    def _weights(self) -> int:
        inputs, outputs = math.prod(self.observation_shape), distribution_for(self.action_space).outputs
        layers = ([inputs, *self.hidden, outputs], [inputs, *self.critic_hidden, 1])
        return sum(a * b for sizes in layers for a, b in zip(sizes[:-1], sizes[1:]))


class Policy:
    """Acts: `policy.act(observation)` for one observation or a batch of them."""

    def __init__(self, spec: PolicySpec, network: ActorCritic, normalizer: ObservationNormalizer):
        self.spec, self.network, self.normalizer = spec, network.requires_grad_(False), normalizer
        self.distribution = distribution_for(spec.action_space)
        self.actor = NumpyActor(network)
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Restarts the draws of stochastic acting."""
        self.generator = generator(seed, "policy")

    def act(self, observation: np.ndarray, deterministic: bool = True) -> np.ndarray:
        """The action for one observation, or the actions for a batch, as the environment takes them."""
        observation, shape = np.asarray(observation), self.spec.observation_shape
        is_single = observation.shape == shape
        if not is_single and observation.shape[1:] != shape:
            raise Refusal(f"an observation of shape {observation.shape} is not accepted: it must be {shape} or a batch")
        params = self.actor.params(self.normalizer(observation[None] if is_single else observation))
        action = self.distribution.to_env(self._chosen(params, deterministic))
        return action[0] if is_single else action

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
    normalizer = ObservationNormalizer(mode, 1, spec.observation_shape)
    for name in ("mean", "variance", "count"):
        getattr(normalizer.moments, name)[:] = tensors[f"normalizer.{name}"].numpy()
    return Policy(spec, network, normalizer)


def _sizes(name: str, sizes: object) -> tuple[int, ...]:
    if not isinstance(sizes, list) or not all(isinstance(size, int) and size >= 1 for size in sizes):
        raise ValueError(f"{name} {sizes!r} is not a list of whole numbers")
    return tuple(sizes)


def _describe(space: gym.Space) -> dict[str, object]:
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    return {"type": "Box"}


def _action_space(described: dict, tensors: dict[str, torch.Tensor]) -> gym.Space:
    if described["type"] == "Discrete":
        return gym.spaces.Discrete(described["n"], start=described["start"])
    if described["type"] == "Box":
        low, high = tensors["action.low"].numpy(), tensors["action.high"].numpy()
        return gym.spaces.Box(low, high, dtype=low.dtype)
    raise ValueError(f"action type {described['type']!r} is unknown")
