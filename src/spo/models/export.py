"""Policies as one file for other programs: ONNX, or a program of torch.export."""

import json
import logging
import warnings
from importlib import metadata
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from spo.errors import ConfigError, SpoError, printable
from spo.models.normalization import CLIP, EPSILON
from spo.models.policy import Policy
from spo.models.space_descriptions import describe_space
from spo.runtime.files import translate_os_errors
from spo.spaces import check_maskable

SUFFIXES = (".onnx", ".pt2")
OUTPUTS = ("action", "distribution_params")
INSTALL = "pip install 'simple-policy-optimization[export]'"


class ExportedPolicy(nn.Module):
    """A policy from raw observations to the action that `Policy.act` takes deterministically, in torch alone.

    Inputs are one tensor for each part of the observation (B, …) as the environment shows it, and the action mask
    (B, P) if it was asked for. Outputs are the action and the parameters of its distribution.
    """

    def __init__(self, policy: Policy, has_mask: bool = False):
        super().__init__()
        self.layout, self.distribution, self.has_mask = policy.spec.layout, policy.distribution, has_mask
        self.network, moments = policy.network, policy.normalizer.moments
        self.normalizes = policy.normalizer.mode != "off" and self.layout.continuous_size > 0
        if self.normalizes:  # torch.export cannot save a tensor without numbers
            self.register_buffer("mean", torch.from_numpy(moments.mean.copy()))
            self.register_buffer("factor", torch.from_numpy(1 / np.sqrt(moments.variance + EPSILON)))

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        observation = inputs[:-1] if self.has_mask else inputs
        dist_params = self.network(self._normalize(self._pack(observation)), "dist_params")
        if self.has_mask:
            dist_params = self.distribution.mask(dist_params, inputs[-1])
        return self.distribution.best_action(dist_params), dist_params

    def _pack(self, parts: tuple[Tensor, ...]) -> Tensor:
        """Do what `ObservationLayout.pack` does, for a batch."""
        if self.layout.is_plain:
            return parts[0]
        images = iter(self.layout.images)
        packed: dict[str, list[Tensor]] = {"continuous": [], "one_hot": [], "image": []}
        for part, (_, leaf), kind in zip(parts, self.layout.leaves, self.layout.kinds):
            if kind == "image":
                part = part.movedim(-1, -3) if next(images).has_channels_last else part
            packed[kind].append(_choose(part, leaf) if kind == "one_hot" else part.to(torch.float32))
        if self.layout.is_image:
            return packed["image"][0]
        rows = (part.flatten(1) if part.ndim > 1 else part.unsqueeze(1) for kind in packed.values() for part in kind)
        return torch.cat(list(rows), dim=1)

    def _normalize(self, observation: Tensor) -> Tensor:
        size = self.layout.continuous_size
        if not self.normalizes:
            return observation.to(torch.float32)
        scaled = (observation[:, :size].to(torch.float64) - self.mean) * self.factor
        normalized = scaled.to(torch.float32).clamp(-CLIP, CLIP)
        if observation.shape[1] == size:
            return normalized
        return torch.cat([normalized, observation[:, size:].to(torch.float32)], dim=1)


def _choose(part: Tensor, leaf: gym.Space) -> Tensor:
    """Return choices (B, …) one-hot, and flags as they are."""
    if isinstance(leaf, gym.spaces.MultiBinary):
        return part.to(torch.float32)
    sizes = [leaf.n] if isinstance(leaf, gym.spaces.Discrete) else leaf.nvec.ravel().tolist()
    starts = [leaf.start] if isinstance(leaf, gym.spaces.Discrete) else leaf.start.ravel().tolist()
    columns = zip(part.reshape(-1, len(sizes)).unbind(1), sizes, starts)
    choices = [column.unsqueeze(1) == torch.arange(int(size)) + int(start) for column, size, start in columns]
    return torch.cat(choices, dim=1).to(torch.float32)


def input_names(policy: Policy, has_mask: bool = False) -> list[str]:
    """Return the names of an exported policy's inputs: of the parts of a Dict, their keys, joined by dots."""
    names = [".".join(map(str, path)) or "observation" for path, _ in policy.spec.layout.leaves]
    return [*names, "action_mask"] if has_mask else names


def example_inputs(policy: Policy, has_mask: bool = False, batch: int = 2) -> tuple[Tensor, ...]:
    """Return inputs of the right shapes and types; the batch may have any size."""
    leaves = [leaf for _, leaf in policy.spec.layout.leaves]
    arrays = [np.full((batch, *leaf.shape), getattr(leaf, "start", 0), leaf.dtype) for leaf in leaves]
    masks = [np.ones((batch, policy.distribution.params_size), bool)] if has_mask else []
    return tuple(torch.from_numpy(array) for array in arrays + masks)


def export_policy(policy: Policy, path: str | Path, has_mask: bool = False) -> Path:
    """Write the policy as one file, whose kind its name tells, and return where."""
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"{path} is not accepted: the name must end in {' or '.join(SUFFIXES)}")
    if has_mask:
        check_maskable(policy.spec.action_space)
    module = ExportedPolicy(policy, has_mask).eval()
    names, inputs = input_names(policy, has_mask), example_inputs(policy, has_mask)
    described = json.dumps(describe(policy, names))
    with translate_os_errors(str(path)), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        path.parent.mkdir(parents=True, exist_ok=True)
        write = _write_onnx if path.suffix == ".onnx" else _write_program
        try:
            write(module, path, names, inputs, described)
        except (SpoError, OSError):
            raise
        except Exception as error:  # whatever tracing a network of the user's own may raise
            reason = printable(str(error).strip().partition("\n")[0])
            raise SpoError(f"{path} cannot be made of this policy: {type(error).__name__}: {reason}") from error
    return path


def describe(policy: Policy, names: list[str]) -> dict[str, object]:
    """Return what an exported file says of itself."""
    versions = {name: metadata.version(name) for name in ("simple-policy-optimization", "torch")}
    described = policy.spec.as_json() | {"inputs": names, "outputs": list(OUTPUTS), "versions": versions}
    space = policy.spec.action_space
    if isinstance(space, gym.spaces.Box):
        bounds = {name: _finite(getattr(space, name)) for name in ("low", "high")}
        described["action_space"] = describe_space(space) | bounds
    return described


def _finite(bounds: np.ndarray) -> list[float | None]:
    """Return bounds for JSON, which has no infinity: there it is null."""
    return [float(bound) if np.isfinite(bound) else None for bound in bounds.ravel()]


def _batch_sizes(inputs: tuple[Tensor, ...]) -> tuple:
    batch = torch.export.Dim("batch", min=1)
    return (tuple({0: batch} for _ in inputs),)


def _write_program(module: nn.Module, path: Path, names: list[str], inputs: tuple, described: str) -> None:
    program = torch.export.export(module, inputs, dynamic_shapes=_batch_sizes(inputs))
    torch.export.save(program, str(path), extra_files={"policy.json": described})


def _write_onnx(module: nn.Module, path: Path, names: list[str], inputs: tuple, described: str) -> None:
    try:
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError:
        raise ConfigError(f"exporting {path} needs: {INSTALL}")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it names packages that it could use too
    program = torch.onnx.export(
        module,
        inputs,
        input_names=names,
        output_names=list(OUTPUTS),
        dynamic_shapes=_batch_sizes(inputs),
        dynamo=True,
        verbose=False,
    )
    program.model.metadata_props["policy.json"] = described
    program.save(str(path), external_data=False)
