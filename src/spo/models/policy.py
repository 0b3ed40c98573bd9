"""A trained policy: network, frozen observation statistics and action space."""

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from spo.errors import SpoError
from spo.models import LARGEST_LAYER, MOST_LAYERS
from spo.models.actors import actor_for
from spo.models.choose_distribution import ACTION_SCALES, DISTRIBUTIONS, distribution_for, resolve_distribution
from spo.models.distributions import Distribution
from spo.models.image_encoders import ENCODER_NAMES, encoder_for
from spo.models.networks import ACTIVATIONS, LARGEST_NETWORK, ActorCritic
from spo.models.normalization import ObservationNormalizer
from spo.models.space_descriptions import describe_space, space_from
from spo.runtime.seeding import generator
from spo.spaces import ObservationLayout, batch_size, check_maskable, join_mask

ACCEPTED = {
    "activation": tuple(ACTIVATIONS),
    "encoder": ENCODER_NAMES,
    "distribution": ("auto", *DISTRIBUTIONS),
    "action_scale": ACTION_SCALES,
}
"""The names that a file may give."""
LATER_FIELDS = {"distribution": "auto", "action_scale": "off"}
"""What files of earlier versions mean, which do not have these."""


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
    distribution: str = "auto"
    action_scale: str = "off"

    @cached_property
    def layout(self) -> ObservationLayout:
        return ObservationLayout(self.observation_space, self.encoder)

    def make_distribution(self) -> Distribution:
        return distribution_for(self.action_space, self.distribution, self.action_scale)

    @property
    def meaning(self) -> dict[str, str]:
        """What the shapes of its tensors do not tell, by the setting that decides it."""
        is_own = ":" in self.encoder
        encoders = {self.encoder} if is_own else {encoder_for(image, self.encoder) for image in self.layout.images}
        return {
            "activation": self.activation,
            "distribution": resolve_distribution(self.action_space, self.distribution),
            "action-scale": self.action_scale,
            "encoder": ", ".join(sorted(encoders)) or "none",
            "observations of kind": ", ".join(self.layout.kinds),
        }

    def network(self, seed: int = 0) -> ActorCritic:
        layers = (self.hidden, self.critic_hidden, self.activation)
        return ActorCritic(self.layout, self.make_distribution(), *layers, self.encoder, seed)

    def as_json(self) -> dict[str, object]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        spaces = {name: describe_space(fields[name]) for name in ("observation_space", "action_space")}
        return fields | spaces

    @classmethod
    def from_json(cls, described: dict, encoder: str | None = None) -> "PolicySpec":
        """Read a description that may come from anyone: nothing of the size that it claims is made.

        An encoder that is a module's is imported only if the user names it too.
        """
        described = LATER_FIELDS | described
        fields = {field.name: described[field.name] for field in dataclasses.fields(cls)}
        for name in ("hidden", "critic_hidden"):
            fields[name] = _sizes(name, described[name])
        for name, accepted in ACCEPTED.items():
            if described[name] not in accepted and not (name == "encoder" and described[name] == encoder):
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
            raise SpoError(f"a network of {size:,} parameters is not accepted: it must have up to {LARGEST_NETWORK:,}")
        return blank

    def blank_tensors(self, network: ActorCritic) -> dict[str, torch.Tensor]:
        """Everything that `Policy.tensors` holds, as shapes and types."""
        moments = {name: (1, self.layout.continuous_size) for name in ("mean", "variance")} | {"count": (1, 1)}
        blanks = {f"normalizer.{name}": _blank(shape, "float64") for name, shape in moments.items()}
        bounds = self.make_distribution().tensors()
        blanks |= {name: _blank(array.shape, array.dtype.name) for name, array in bounds.items()}
        return dict(network.named_parameters()) | blanks


class Policy:
    """Acts: `policy.act(observation)` for one observation or a batch of them."""

    def __init__(self, spec: PolicySpec, network: ActorCritic, normalizer: ObservationNormalizer):
        self.spec, self.network, self.normalizer = spec, network.requires_grad_(False), normalizer
        self.distribution = spec.make_distribution()
        self.actor = actor_for(network, "cpu")
        self.seed(0)

    def __repr__(self) -> str:
        spec, size = self.spec, sum(parameter.numel() for parameter in self.network.parameters())
        spaces = f"observation {spec.observation_space}, action {spec.action_space}"
        return f"Policy(env {spec.env}, objective {spec.objective}, {spaces}, {size:,} parameters)"

    def seed(self, seed: int) -> None:
        """Restart the draws of stochastic acting."""
        self.generator = generator(seed, "policy")

    def act(self, observation: object, deterministic: bool = True, action_mask: np.ndarray | None = None) -> np.ndarray:
        """The action for one observation, or the actions for a batch, as the environment takes them."""
        packed, is_single = self._pack(observation)
        dist_params = self.actor.dist_params(self.normalizer(packed))
        if action_mask is not None:
            dist_params = self.distribution.mask(dist_params, self._check_mask(action_mask, dist_params.shape))
        action = self.distribution.to_env(self._choose_action(dist_params, deterministic))
        return action[0] if is_single else action

    def _pack(self, observation: object) -> tuple[np.ndarray, bool]:
        """The observation as a batch of arrays, and whether it was a single one."""
        layout = self.spec.layout
        count = batch_size(layout.leaves, observation)
        if count is None:
            packed = np.asarray(layout.pack(observation))[None]
        else:
            packed = np.asarray(layout.pack_batch(observation, count))
        with np.errstate(over="ignore"):  # large numbers may be finite where their sum is not
            may_be_infinite = packed.dtype.kind == "f" and not math.isfinite(np.add.reduce(packed, axis=None))
        if may_be_infinite:
            self._check_finite(packed)
        return packed, count is None

    @staticmethod
    def _check_finite(packed: np.ndarray) -> None:
        """A sum that is not finite may be of numbers that are."""
        if not np.isfinite(packed).all():
            worst = packed[~np.isfinite(packed)][0]
            raise SpoError(f"an observation with {worst} in it is not accepted: its numbers must be finite")

    def _check_mask(self, action_mask: object, shape: tuple[int, ...]) -> np.ndarray:
        check_maskable(self.spec.action_space)
        mask = join_mask(action_mask) if isinstance(action_mask, tuple) else np.asarray(action_mask, bool)
        if mask.size != math.prod(shape):
            accepted = f"it must have one flag for each of the {shape[-1]} actions"
            raise SpoError(f"an action mask of shape {mask.shape} is not accepted: {accepted}")
        return mask.reshape(shape)

    def _choose_action(self, dist_params: np.ndarray, deterministic: bool) -> np.ndarray:
        if deterministic:
            return self.distribution.mode(dist_params)
        return self.distribution.sample(dist_params, self.distribution.noise(self.generator, (len(dist_params),)))

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that is numbers, by name."""
        tensors = {name: parameter.detach().clone() for name, parameter in self.network.named_parameters()}
        moments = self.normalizer.moments
        for name in ("mean", "variance", "count"):
            tensors[f"normalizer.{name}"] = torch.from_numpy(getattr(moments, name).copy())
        bounds = {name: torch.from_numpy(array.copy()) for name, array in self.distribution.tensors().items()}
        return tensors | bounds


def _blank(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    return torch.empty(shape, dtype=getattr(torch, dtype), device="meta")


def _sizes(name: str, sizes: Any) -> tuple[int, ...]:
    is_list = isinstance(sizes, list) and len(sizes) <= MOST_LAYERS
    if not is_list or not all(type(size) is int and 1 <= size <= LARGEST_LAYER for size in sizes):
        raise ValueError(f"{name} {sizes!r} is not a list of layers")
    return tuple(sizes)
