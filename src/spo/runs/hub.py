"""Policies on the Hugging Face Hub: pushed as the files they are, and loaded like any file of others."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spo.errors import ConfigError, CorruptRunError, SpoError
from spo.models.policy import Policy
from spo.models.policy_files import largest_tensors, load_newest_policy, load_policy
from spo.runs.directory import RunDirectory
from spo.runtime.files import LARGEST_TEXT, canonical_json, read_json

INSTALL = "pip install 'simple-policy-optimization[hub]'"
SCHEME = "hf://"
NAME = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
DESCRIPTION, TENSORS = "policy.json", "policy.safetensors"
NOT_PUBLISHED = ("out", "config", "quiet", "init_from")
"""Settings that are paths of somebody's machine, or of no interest elsewhere."""
ENDPOINT: str | None = None
"""Where the Hub is (None: where huggingface_hub looks for it)."""
CACHE: str | None = None
"""Where its files are kept (None: in huggingface_hub's own cache)."""


def is_address(run: object) -> bool:
    """Whether a policy is named by its place on the Hub."""
    return isinstance(run, str) and run.startswith(SCHEME)


def load_from_hub(address: str, encoder: str | None = None) -> Policy:
    """The policy at hf://user/name or hf://user/name@revision. Runs no code; sizes and hashes are checked."""
    name, _, revision = address.removeprefix(SCHEME).partition("@")
    _check_name(name, address)
    with _errors_as_sentences(address) as hub:
        description, commit = _download(hub, name, DESCRIPTION, revision or None, LARGEST_TEXT)
        largest = largest_tensors(description.parent, encoder)
        _download(hub, name, TENSORS, commit, largest)
    return load_policy(description.parent, encoder)


def _download(hub: Any, name: str, file: str, revision: str | None, largest: int) -> tuple[Path, str | None]:
    """A file of the Hub's cache and its commit; one that says it is too large is not even fetched."""
    url = hub.hf_hub_url(name, file, revision=revision, endpoint=ENDPOINT)
    metadata = hub.get_hf_file_metadata(url, endpoint=ENDPOINT)
    if metadata.size is None or metadata.size > largest:
        raise CorruptRunError(f"{file} of {name} has {metadata.size} bytes; accepted are at most {largest}")
    commit = metadata.commit_hash or revision
    return Path(hub.hf_hub_download(name, file, revision=commit, endpoint=ENDPOINT, cache_dir=CACHE)), commit


def push(run: str | Path, name: str, video: str | None = None, private: bool = False) -> str:
    """Upload a run's policy, its settings and a card that describes them; return the address to load it from."""
    _check_name(name, name)
    directory = RunDirectory.open(run)
    _, folder = load_newest_policy(run)  # what is damaged is not published
    files = describe_run(directory, name) | {file: folder / file for file in (DESCRIPTION, TENSORS)}
    if video is not None:
        if not Path(video).is_file():
            raise ConfigError(f"--video {video} is not a file")
        files["replay.mp4"] = Path(video)
    with _errors_as_sentences(name) as hub:
        api = hub.HfApi(endpoint=ENDPOINT)
        api.create_repo(name, private=private, exist_ok=True)
        operations = [hub.CommitOperationAdd(path, content) for path, content in files.items()]
        api.create_commit(name, operations, commit_message="A policy trained with Simple Policy Optimization")
    return f"{SCHEME}{name}"


def _check_name(name: str, given: str) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError(f"{given!r} is not accepted: it must be user/name of letters, digits, '.', '_' and '-'")


@contextmanager
def _errors_as_sentences(what: str) -> Iterator[Any]:
    """The package, whose many kinds of errors become one sentence."""
    try:
        import huggingface_hub as hub
    except ImportError:
        raise SpoError(f"the Hugging Face Hub needs: {INSTALL}")
    try:
        yield hub
    except SpoError:
        raise
    except hub.errors.RepositoryNotFoundError:
        raise SpoError(f"{what} is not on the Hub, or not yours to see (hf auth login signs in)")
    except hub.errors.EntryNotFoundError:
        raise SpoError(f"{what} holds no policy: {DESCRIPTION} and {TENSORS} are what spo push puts there")
    except Exception as error:  # of HTTP, of connections, of the package
        raise SpoError(f"{what} cannot be had from the Hub: {type(error).__name__}: {' '.join(str(error).split())}")


# The card


def describe_run(directory: RunDirectory, name: str) -> dict[str, bytes]:
    """The card and the settings, which `spo train --config` takes."""
    settings = directory.read_config()["settings"]
    kept = {key: value for key, value in settings.items() if key not in NOT_PUBLISHED and value is not None}
    return {"README.md": write_card(directory, name, kept).encode(), "settings.json": canonical_json(kept)}


def write_card(directory: RunDirectory, name: str, settings: Mapping[str, Any]) -> str:
    """A model card: what was trained, what it came to, how to use it and how to train it again."""
    env, objective = settings["env"], settings["objective"]
    results = "".join(f"- {line}\n" for line in _results(directory))
    rows = "".join(f"| {_cell(key)} | {_cell(value)} |\n" for key, value in settings.items())
    head: dict[str, Any] = {"library_name": "simple-policy-optimization", "pipeline_tag": "reinforcement-learning"}
    head["tags"] = ["reinforcement-learning", "deep-reinforcement-learning", objective, env]
    front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in head.items())  # JSON is YAML
    return f"""---
{front}---

# {_cell(env)}, trained with {_cell(objective)}

{results}
```python
import spo

policy = spo.load("{SCHEME}{name}")  # runs no code; sizes and checksums are proved
action = policy.act(observation)
```

Trained again with `spo train {_cell(env)} --config settings.json`.

| setting | value |
|---|---|
{rows}"""


def _results(directory: RunDirectory) -> Iterator[str]:
    summary = directory.summary()
    if summary.get("return") is not None:
        yield f"return of the last 10 % of training: {summary['return']:.1f}"
    if summary.get("ratio_deviation_max") is not None:
        yield f"largest mean ratio deviation of a minibatch: {summary['ratio_deviation_max']:.3g}"
    if directory.evaluation.is_file():
        found = read_json(directory.evaluation)
        kind = "deterministic" if found.get("deterministic") else "stochastic"
        yield f"evaluation: {found['return_mean']:.1f} ± {found['return_std']:.1f} over {kind} episodes"


def _cell(value: object) -> str:
    """Text that stays in its cell of a table and is no markup."""
    return re.sub(r"([|`<>\[\]*_\\])", r"\\\1", " ".join(str(value).split()))
