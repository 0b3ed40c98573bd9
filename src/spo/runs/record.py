"""config.json: what was asked for, what was chosen, and with which versions on which machine."""

import os
import platform
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata

import torch

from spo.config.validation import config_from_dict, use_current_names
from spo.errors import SpoError
from spo.runs.checkpoint import StateDict
from spo.runtime.files import unsealed
from spo.trainer import Trainer

PACKAGES = ("simple-policy-optimization", "torch", "numpy", "gymnasium", "mujoco", "ale-py", "envpool", "safetensors")
"""Whose versions a run records."""


def record_of(training: Trainer) -> StateDict:
    """config.json: what was asked for, what was chosen (the update's path comes later), and with which versions."""
    config = training.config
    resolved = {
        "update": None,
        "backend": training.backend,
        "threads": training.threads,
        "total_steps": config.total_steps,
        "iterations": config.iterations,
        "objective_settings": config.objective_settings,
        "value_bound": config.value_clip_range,
        "rebuild_every": training.rebuild_every,
        "env_from": "callable" if callable(training.make_env.env) else "id",
    }
    return {"settings": asdict(config), "resolved": resolved, "versions": versions(), "machine": machine()}


KINDS = {
    "update": str | None,
    "backend": str,
    "threads": int,
    "total_steps": int,
    "iterations": int,
    "rebuild_every": int | None,
    "env_from": str,
}
"""What of the resolved choices a resumed run goes by."""


LATER_SETTINGS = {"action_scale": "off"}
"""How runs of earlier versions were made, whose records do not name these settings, where the default is another."""


def read_record(content: bytes) -> StateDict:
    """A config.json that proves itself and has everything that resuming needs, or ValueError."""
    record = unsealed(content)
    for name in ("settings", "resolved", "versions", "machine"):
        if not isinstance(record.get(name), dict):
            raise ValueError(f"its {name} are missing")
    record |= {name: use_current_names(record[name]) for name in ("settings", "resolved")}
    record["settings"] = LATER_SETTINGS | record["settings"]
    for name, kind in KINDS.items():
        if not isinstance(record["resolved"].get(name, ...), kind):
            raise ValueError(f"its {name} is {record['resolved'].get(name)!r}")
    try:
        config_from_dict(record["settings"])
    except SpoError as refusal:
        raise ValueError(str(refusal))
    return record


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


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
