"""Simple Policy Optimization: an on-policy trainer whose policy objective is a plug-in.

The names below are imported when they are first used, so that tools which only read run directories need no torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers and editors, which do not run __getattr__
    from spo import objectives as objectives
    from spo.config.config import Config as Config
    from spo.config.sources import make_config as make_config
    from spo.errors import ConfigError as ConfigError
    from spo.errors import CorruptRunError as CorruptRunError
    from spo.errors import DivergenceError as DivergenceError
    from spo.errors import EnvError as EnvError
    from spo.errors import SpoError as SpoError
    from spo.models.policy import Policy as Policy
    from spo.runs.evaluate import evaluate as evaluate
    from spo.runs.evaluate import load as load
    from spo.runs.resume import resume as resume
    from spo.runs.start import Run as Run
    from spo.runs.start import train as train
    from spo.runtime.library_env import set_library_env as set_library_env

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


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"spo.{name}")
    raise AttributeError(f"module 'spo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__ + ["__version__"])
