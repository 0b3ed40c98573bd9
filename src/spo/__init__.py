"""Simple Policy Optimization: an on-policy trainer whose policy objective is a plug-in.

The names below are imported when they are first used, so that tools which only read run directories need no torch.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "Config": "spo.config",
    "Policy": "spo.policy",
    "Refusal": "spo.errors",
    "Run": "spo.trainer",
    "evaluate": "spo.api",
    "load": "spo.api",
    "resume": "spo.trainer",
    "train": "spo.trainer",
}

_MODULES = ("libraries", "objectives")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str):
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"spo.{name}")
    raise AttributeError(f"module 'spo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__ + ["__version__"])
