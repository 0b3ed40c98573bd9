"""What the numbers were measured on."""

import os
import platform
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "numpy", "gymnasium", "mujoco", "envpool", "ale-py")


def machine() -> dict[str, object]:
    """The processor, its cores, and the versions that this project ran with; no date."""
    found = {"cpu": cpu_model(), "cores": os.cpu_count(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
