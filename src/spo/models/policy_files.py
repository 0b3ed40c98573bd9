"""Policies as two files: policy.safetensors, and policy.json with its checksum."""

import dataclasses
import os
from pathlib import Path

import gymnasium as gym
import torch
from safetensors.torch import load, save

from spo.errors import ConfigError, CorruptRunError, SpoError
from spo.models.choose_distribution import resolve_action_scale
from spo.models.normalization import ObservationNormalizer
from spo.models.policy import Policy, PolicySpec
from spo.runtime.files import (
    LARGEST_HEADER,
    LARGEST_TEXT,
    check_header,
    parse_json,
    read_bounded,
    replace_file,
    sha256,
    write_json,
)

FORMAT = 1


class EncoderNotNamed(ConfigError):
    """A policy whose encoder is a module of the user's, who has not named it."""


def save_policy(policy: Policy, directory: Path) -> None:
    """Write both files atomically, the tensors first; policy.json holds their SHA-256."""
    directory.mkdir(exist_ok=True)
    content = save(policy.tensors())
    replace_file(directory / "policy.safetensors", content)
    described = {"format": FORMAT, **policy.spec.as_json(), "normalize_observation": policy.normalizer.mode}
    write_json(directory / "policy.json", described | {"sha256": sha256(content)}, durable=True)


def load_policy(path: str | os.PathLike, encoder: str | None = None) -> Policy:
    """The policy of a run directory or of its policy/ folder. Runs no code and imports nothing that a file names.

    A policy with an encoder of your own needs its name again, `package.module:Class`.
    """
    return load_newest_policy(path, encoder)[0]


def list_best(path: str | os.PathLike) -> list[Path]:
    """The folders of policies that were the best of a run's evaluations, the newest and best first."""
    return sorted((folder for folder in Path(path).glob("best/[0-9]*") if folder.is_dir()), reverse=True)


def load_best_policy(path: str | os.PathLike, encoder: str | None = None) -> tuple[Policy, Path]:
    """The policy of a run with the best evaluation, and its folder."""
    folders = list_best(path)
    if not folders:
        raise SpoError(f"{path} holds no best policy: a run keeps one with --eval-every and --keep-best")
    return load_newest_policy(folders[0], encoder)


def load_newest_policy(path: str | os.PathLike, encoder: str | None = None) -> tuple[Policy, Path]:
    """The final policy of a run, or until there is one that of its newest good checkpoint; and its folder."""
    folders = _policy_folders(Path(path))
    if not folders:
        raise SpoError(
            f"{path} holds no policy: there is no policy.json in it (a run writes one with its first checkpoint)"
        )
    for folder in folders:
        try:
            return _load(folder, encoder), folder
        except EncoderNotNamed:
            raise
        except Exception as error:  # whatever a damaged file provokes in a parser is damage
            if folder == folders[-1] or folder.parent.parent.name != "checkpoints":
                raise CorruptRunError(f"the policy in {folder} is damaged: {type(error).__name__}: {error}")
    raise AssertionError("the last folder is loaded or refused")


def _policy_folders(path: Path) -> list[Path]:
    checkpoints = sorted(path.glob("checkpoints/[0-9]*/policy"), reverse=True) if os.path.isdir(path) else []
    return [folder for folder in (path / "policy", path, *checkpoints) if os.path.exists(folder / "policy.json")]


def largest_tensors(directory: Path, encoder: str | None = None) -> int:
    """How many bytes policy.safetensors may have, by what the folder's policy.json says; nonsense is refused."""
    try:
        described = parse_json(read_bounded(directory / "policy.json", LARGEST_TEXT))
        _check_named(directory, described["encoder"], encoder)
        spec = PolicySpec.from_json(described, encoder)
        return LARGEST_HEADER + sum(blank.nbytes for blank in spec.blank_tensors(spec.blank_network()).values())
    except EncoderNotNamed:
        raise
    except Exception as error:  # whatever a stranger's description provokes is damage
        raise CorruptRunError(f"policy.json describes no policy: {type(error).__name__}: {error}")


def _load(directory: Path, encoder: str | None) -> Policy:
    """The description comes first: it says how large the tensors may be, and they must be just what it says."""
    described = parse_json(read_bounded(directory / "policy.json", LARGEST_TEXT))
    if described["format"] != FORMAT:
        raise ValueError(f"its format is {described['format']!r}, this version reads {FORMAT}")
    _check_named(directory, described["encoder"], encoder)
    spec = PolicySpec.from_json(described, encoder)
    network = spec.blank_network()
    blanks = spec.blank_tensors(network)
    largest = LARGEST_HEADER + sum(blank.nbytes for blank in blanks.values())
    content = read_bounded(directory / "policy.safetensors", largest)
    if sha256(content) != described["sha256"]:
        raise ValueError("policy.safetensors does not match the checksum in policy.json")
    tensors = load(check_header(content))
    _check_alike(tensors, blanks)
    network.load_state_dict({name: tensors[name] for name, _ in network.named_parameters()}, assign=True)
    return Policy(_restore_bounds(spec, tensors), network, _normalizer(described, spec, tensors))


def _check_named(directory: Path, recorded: object, encoder: str | None) -> None:
    """Nothing that a file names is imported unless the user names it too."""
    if encoder is not None and ":" in encoder and encoder != recorded:
        raise EncoderNotNamed(f"--encoder {encoder} is not that of the policy in {directory}: it has {recorded}")
    if encoder is None and isinstance(recorded, str) and ":" in recorded:
        raise EncoderNotNamed(
            f"the policy in {directory} has an encoder of yours: repeat --encoder {recorded} to import it"
        )


def _check_alike(tensors: dict[str, torch.Tensor], blanks: dict[str, torch.Tensor]) -> None:
    for name in sorted(tensors.keys() | blanks.keys()):
        found, described = (_form(one.get(name)) for one in (tensors, blanks))
        if found != described:
            raise ValueError(f"tensor {name!r} is {found}, policy.json describes {described}")


def _form(tensor: torch.Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"


def _restore_bounds(spec: PolicySpec, tensors: dict[str, torch.Tensor]) -> PolicySpec:
    """With the bounds of a Box of actions, which are numbers and stand among the tensors."""
    if not isinstance(spec.action_space, gym.spaces.Box):
        return spec
    low, high = tensors["action.low"].numpy(), tensors["action.high"].numpy()
    space = gym.spaces.Box(low, high, dtype=low.dtype)
    resolve_action_scale(space, spec.distribution, spec.action_scale)  # refuses bounds that it could not map to
    return dataclasses.replace(spec, action_space=space)


def _normalizer(described: dict, spec: PolicySpec, tensors: dict[str, torch.Tensor]) -> ObservationNormalizer:
    mode = described["normalize_observation"]
    if mode not in ("shared", "off"):
        raise ValueError(f"normalize_observation {mode!r} is unknown")
    normalizer = ObservationNormalizer(mode, 1, spec.layout.continuous_size, spec.layout.dtype)
    for name in ("mean", "variance", "count"):
        getattr(normalizer.moments, name)[:] = tensors[f"normalizer.{name}"].numpy()
    return normalizer
