"""config.json: what was asked for, what was chosen, and with which versions on which machine."""

import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib import metadata
from typing import Any, get_type_hints

import torch

from spo.config.env_ids import names_module
from spo.config.validation import config_from_dict, use_current_names
from spo.errors import ConfigError, SpoError
from spo.runs.directory import RunDirectory
from spo.runtime.files import LARGEST_TEXT, add_checksum, read_bounded, verify_checksum, write_json
from spo.trainer import Trainer

PACKAGES = ("simple-policy-optimization", "torch", "numpy", "gymnasium", "mujoco", "ale-py", "envpool", "safetensors")
"""Whose versions a run records."""


ONLY_READ = ("objective_settings", "value_bound")
"""What only readers of results want of the resolved choices."""


@dataclass
class Resolved:
    """What a run chose where its settings left it open; a resumed run goes by it."""

    update: str | None  # None until the run has chosen between compiled and eager
    backend: str
    threads: int
    total_steps: int
    iterations: int
    objective_settings: dict[str, float]
    value_bound: float | None
    rebuild_every: int | None
    env_from: str  # "id" or "callable"

    @classmethod
    def read(cls, values: dict[str, Any]) -> "Resolved":
        """From config.json, or ValueError; what only readers of results want may be missing."""
        for name, kind in KINDS.items():
            if not isinstance(values.get(name, ...), kind):
                raise ValueError(f"its {name} is {values.get(name)!r}")
        known: dict[str, Any] = {field.name: values.get(field.name) for field in fields(cls)}
        return cls(**known)


KINDS = {name: kind for name, kind in get_type_hints(Resolved).items() if name not in ONLY_READ}
"""What of the resolved choices a resumed run goes by."""
LATER_SETTINGS = {"action_scale": "off"}
"""How runs of earlier versions were made, whose records do not name these settings, where the default is another."""


@dataclass
class RunRecord:
    """config.json: what was asked for, what was chosen, and with which versions on which machine."""

    settings: dict[str, Any]
    resolved: Resolved
    versions: dict[str, str]
    machine: dict[str, str | int]
    lengthened: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, trainer: Trainer) -> "RunRecord":
        """The record of a run that is about to start; how it updates is chosen later."""
        config = trainer.config
        resolved = Resolved(
            update=None,
            backend=trainer.backend,
            threads=trainer.threads,
            total_steps=config.total_steps,
            iterations=config.iterations,
            objective_settings=config.objective_settings,
            value_bound=config.value_clip_range,
            rebuild_every=trainer.rebuild_every,
            env_from="callable" if callable(trainer.make_env.env) else "id",
        )
        return cls(asdict(config), resolved, versions(), machine())

    @classmethod
    def parse(cls, content: bytes) -> "RunRecord":
        """A config.json whose checksum matches and that has everything that resuming needs, or ValueError."""
        record = verify_checksum(content)
        for name in ("settings", "resolved", "versions", "machine"):
            if not isinstance(record.get(name), dict):
                raise ValueError(f"its {name} are missing")
        settings, resolved = (use_current_names(record[name]) for name in ("settings", "resolved"))
        settings = LATER_SETTINGS | settings
        made = Resolved.read(resolved)
        try:
            config_from_dict(settings)
        except SpoError as refusal:
            raise ValueError(str(refusal))
        lengthened = record.get("lengthened")
        changes = lengthened if isinstance(lengthened, list) else []
        return cls(settings, made, record["versions"], record["machine"], changes)

    @classmethod
    def read(cls, directory: RunDirectory) -> "RunRecord":
        """The record of a run directory, or OSError, ValueError or RecursionError."""
        return cls.parse(read_bounded(directory.config, LARGEST_TEXT))

    def write(self, directory: RunDirectory) -> None:
        record = {name: value for name, value in asdict(self).items() if name != "lengthened" or value}
        write_json(directory.config, add_checksum(record), durable=True)

    def resume_command(self, directory: RunDirectory) -> str:
        """How to resume the run: on the command line, where that can import all that the run was made of."""
        env, path = self.settings["env"], str(directory.path)
        if self.resolved.env_from == "callable":
            module, _, name = env.rpartition(".")
            if not module or module.startswith("__main__") or "<" in env:
                return f"spo.resume({path!r}, env=...)"
            named = ["--env", f"{module}:{name}"]
        else:
            named = ["--env", env] if names_module([env, self.settings["env_arg"]]) else []
        for name in ("objective", "encoder"):
            named += [f"--{name}", self.settings[name]] if ":" in self.settings[name] else []
        named += ["--wrapper", *self.settings["wrapper"]] if self.settings["wrapper"] else []
        return shlex.join(["spo", "resume", path, *named])


def versions() -> dict[str, str]:
    found = {package: version for package in PACKAGES if (version := find_version(package))}
    return {"python": platform.python_version()} | found


@cache  # reading what is installed takes a process that starts many runs 5 ms a package
def find_version(package: str) -> str | None:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def machine() -> dict[str, str | int]:
    """What of the machine the last bit of a number can depend on."""
    model = ""
    with suppress(OSError), open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "")
    return {
        "processor": model or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "matrices": os.environ.get("OPENBLAS_CORETYPE", "as the processor has them"),
    }


def check_wrappers_repeated(settings: Mapping[str, Any], repeated: Sequence[str]) -> None:
    """Refuse to import wrappers that a file names, unless the user names them too: Gymnasium's own write files."""
    recorded = tuple(settings.get("wrapper", ()))
    if tuple(repeated) != recorded:
        instead = f"repeat --wrapper {' '.join(recorded)} to import them" if recorded else "it has none"
        raise ConfigError(f"--wrapper {' '.join(repeated) or 'unset'} is not accepted for this run: {instead}")
