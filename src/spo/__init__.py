"""Simple Policy Optimization: an on-policy trainer whose policy objective is a plug-in.

The names below are imported when they are first used, so that tools which only read run directories need no torch.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "Config": "spo.config.config",
    "ConfigError": "spo.errors",
    "CorruptRunError": "spo.errors",
    "DivergenceError": "spo.errors",
    "EnvError": "spo.errors",
    "Policy": "spo.models.policy",
    "Run": "spo.runs.start",
    "SpoError": "spo.errors",
    "evaluate": "spo.runs.evaluate",
    "load": "spo.runs.evaluate",
    "make_config": "spo.config.sources",
    "resume": "spo.runs.resume",
    "set_library_env": "spo.runtime.library_env",
    "train": "spo.runs.start",
}

_MODULES = ("objectives",)

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str):
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"spo.{name}")
    raise AttributeError(f"module 'spo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__ + ["__version__"])
