"""The settings of a run: one flat, frozen record, where its values come from, and what is accepted."""

import dataclasses
import json
import math
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import tyro

from spo import flags
from spo.errors import Refusal
from spo.objectives import OBJECTIVES, Objective


@dataclass(frozen=True, kw_only=True)
class Config:
    """Trains a policy on a Gymnasium environment."""

    env: Annotated[str, tyro.conf.Positional]
    """A registered Gymnasium id, such as HalfCheetah-v4 or module:Env-v0."""
    preset: str
    """Where the defaults come from: mujoco (the paper's settings) or classic (small tasks)."""
    paper: bool = False
    """The authors' behaviour: truncation ends the value, statistics per environment."""
    config: flags.OptionalText = None
    """A TOML or JSON file with settings, or a run's config.json; flags win over it."""
    seed: int = 1
    """Every random draw of the run derives from it."""

    objective: str = "spo"
    """The policy objective; `spo objectives` lists them."""
    epsilon: flags.OptionalNumber = None
    """Width of the ratio bound (unset: the objective's own)."""

    steps: flags.Steps
    """Environment steps over all environments, such as 1e6, 1M or 200k; rounded down to whole iterations."""
    envs: int
    """Environments stepped together."""
    horizon: int
    """Steps of each environment per iteration."""
    epochs: int
    """Passes over the batch per iteration."""
    minibatches: int
    """Gradient steps per epoch."""
    learning_rate: float
    """Adam's step size at the start."""
    lr_schedule: Literal["linear", "constant"]
    """Linear decays to zero over the run."""
    adam_eps: float
    """Adam's epsilon."""
    max_grad_norm: float
    """Bound on the norm of the joint gradient."""
    gamma: float
    """Discount factor."""
    lam: float
    """Lambda of generalised advantage estimation."""
    value_coef: float
    """Weight of the value loss (c1)."""
    entropy_coef: float
    """Weight of the entropy (c2)."""
    value_clip: flags.NumberOrOff = None
    """Bound on the value's change in its loss, or off (unset: the objective's epsilon, else 0.2)."""
    target_kl: flags.OptionalNumber = None
    """Ends an iteration's epochs once the mean KL(old‖new) over the batch exceeds it."""
    normalize_advantage: Literal["minibatch", "batch", "off"] = "minibatch"
    """Over what advantages are normalised."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """Whether a truncated episode goes on in value, or ends as if terminated."""
    normalize_observation: Literal["shared", "per-env", "off"]
    """Whether running statistics of observations are shared by the environments."""
    normalize_reward: Literal["shared", "per-env", "off"]
    """Whether running statistics of returns are shared by the environments."""

    hidden: tuple[int, ...]
    """Hidden layers of the policy; the paper's deep policy is 256 256 128 128 64 64."""
    critic_hidden: tuple[int, ...]
    """Hidden layers of the value network, whatever --hidden is."""
    activation: Literal["tanh", "relu", "elu", "silu"]
    """Activation between layers."""

    env_arg: flags.KeyValues = dataclasses.field(default_factory=dict)
    """Arguments for the environment's constructor, as key=value."""
    init_from: flags.OptionalText = None
    """A run whose policy and statistics to start from."""
    eval_every: int = 0
    """Evaluates the frozen policy every so many iterations (0: never)."""
    tensorboard: bool = False
    """Also writes TensorBoard files into the run directory."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether the update is compiled; auto does it where the run is long enough to gain."""
    threads: flags.Threads = None
    """Threads of torch (unset: chosen by the size of the networks)."""
    device: str = "cpu"
    """A torch device."""
    quiet: bool = False
    """Prints nothing but errors."""
    out: flags.OptionalText = None
    """The run directory, which must not hold a run yet (unset: runs/ENV-OBJECTIVE-sSEED-TIME)."""

    @property
    def batch_size(self) -> int:
        return self.envs * self.horizon

    @property
    def minibatch_size(self) -> int:
        return self.batch_size // self.minibatches

    @property
    def iterations(self) -> int:
        return self.steps // self.batch_size

    @property
    def total_steps(self) -> int:
        """The environment steps that are really made: whole iterations."""
        return self.iterations * self.batch_size

    @property
    def gradient_steps(self) -> int:
        return self.iterations * self.epochs * self.minibatches

    @property
    def resolved_objective(self) -> Objective:
        return OBJECTIVES[self.objective]

    @property
    def objective_settings(self) -> dict[str, float]:
        """The objective's settings: its own defaults, replaced by the flags that were given."""
        given = {name: getattr(self, name) for name in OBJECTIVE_SETTINGS if getattr(self, name) is not None}
        return self.resolved_objective.settings | given

    @property
    def ratio_bound(self) -> float:
        """The ε that metrics and value clipping use: the objective's, or 0.2 where it has none."""
        return self.objective_settings.get("epsilon", 0.2)

    @property
    def value_bound(self) -> float | None:
        """How far the value may move in its loss; None is no bound."""
        if self.value_clip == "off":
            return None
        return self.ratio_bound if self.value_clip is None else self.value_clip

    def learning_rate_at(self, iteration: int) -> float:
        """lr·(1 − i/iterations), from iteration 0."""
        share = 1 - iteration / self.iterations if self.lr_schedule == "linear" else 1.0
        return self.learning_rate * share


OBJECTIVE_SETTINGS = ("epsilon",)
"""The settings that belong to an objective rather than to the trainer; None means the objective's own default."""

FIELDS = {field.name: field for field in dataclasses.fields(Config)}
HINTS = typing.get_type_hints(Config)

ABOVE_ZERO = ("a number above 0", lambda x: x > 0)
NOT_NEGATIVE = ("a number of at least 0", lambda x: x >= 0)
UP_TO_ONE = ("a number from 0 to 1", lambda x: 0 <= x <= 1)
BETWEEN_ZERO_AND_ONE = ("a number above 0 and below 1", lambda x: 0 < x < 1)
COUNT = ("a whole number of at least 1", lambda x: x >= 1)
LAYERS = ("whole numbers of at least 1", lambda sizes: all(size >= 1 for size in sizes))

RANGES = {
    "seed": ("a whole number from 0 to 2147483647", lambda x: 0 <= x < 2**31),
    "epsilon": BETWEEN_ZERO_AND_ONE,
    "steps": COUNT,
    "envs": COUNT,
    "horizon": COUNT,
    "epochs": COUNT,
    "minibatches": COUNT,
    "learning_rate": ABOVE_ZERO,
    "adam_eps": ABOVE_ZERO,
    "max_grad_norm": ABOVE_ZERO,
    "gamma": UP_TO_ONE,
    "lam": UP_TO_ONE,
    "value_coef": NOT_NEGATIVE,
    "entropy_coef": NOT_NEGATIVE,
    "value_clip": ("a number above 0, or off", lambda x: x == "off" or (not isinstance(x, str) and x > 0)),
    "target_kl": ABOVE_ZERO,
    "hidden": LAYERS,
    "critic_hidden": LAYERS,
    "eval_every": ("a whole number of at least 0", lambda x: x >= 0),
    "threads": (
        f"a whole number from 1 to {os.cpu_count()} (the cores of this machine)",
        lambda x: 1 <= x <= os.cpu_count(),
    ),
}
"""What each setting accepts, in words and as a test; the words are the error message."""


def make_config(env: str, preset: str | None = None, config: str | None = None, **settings) -> Config:
    """A checked Config; later sources win: preset, configuration file, --paper, explicit settings."""
    unchecked = unchecked_config(env, preset, config, settings.get("paper"))
    return checked(dataclasses.replace(unchecked, **_typed(settings)))


def unchecked_config(env: str, preset: str | None, config: str | None, paper: bool | None) -> Config:
    """The defaults that flags are laid over."""
    from_file = read_settings(Path(config)) if config else {}
    from_file.pop("env", None)
    preset = preset or from_file.get("preset") or default_preset(env)
    values = read_preset(preset) | from_file | {"env": env, "preset": preset, "config": config}
    if paper is None:
        paper = values.get("paper", False)
    if paper:
        values |= {"paper": True} | {
            name: value for name, value in paper_behaviour(values).items() if name not in from_file
        }
    return Config(**_typed(values))


def default_preset(env: str) -> str:
    return "mujoco"


def paper_behaviour(values: Mapping[str, object]) -> dict[str, str]:
    """What --paper changes; a normaliser that is off stays off."""
    normalizers = ("normalize_observation", "normalize_reward")
    per_env = {name: "per-env" for name in normalizers if values[name] != "off"}
    return {"truncation": "terminal"} | per_env


def preset_names() -> list[str]:
    names = [file.name.removesuffix(".toml") for file in resources.files("spo.presets").iterdir()]
    return sorted(name for name in names if not name.startswith("_"))


def read_preset(name: str) -> dict[str, object]:
    if name not in preset_names():
        raise Refusal(f"--preset {name} is unknown; accepted: {', '.join(preset_names())}")
    return tomllib.loads(resources.files("spo.presets").joinpath(f"{name}.toml").read_text())


def read_settings(path: Path) -> dict[str, object]:
    """Settings from a TOML or JSON file; a run's config.json keeps them under "settings"."""
    try:
        text = path.read_text()
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise Refusal(f"--config {path} cannot be read as TOML or JSON: {error}")
    if not isinstance(values, dict):
        raise Refusal(f"--config {path} holds a {type(values).__name__}; accepted is a table of settings")
    return {name: value for name, value in values.get("settings", values).items() if name not in ("out", "config")}


def _typed(values: Mapping[str, object]) -> dict[str, object]:
    """The values as the fields want them, or a refusal that names the field."""
    return {name: _as_field(name, value) for name, value in values.items()}


def _as_field(name: str, value: object) -> object:
    if name not in FIELDS:
        raise Refusal(f"setting {name!r} is unknown; accepted: {', '.join(FIELDS)}")
    accepted = HINTS[name]
    if name == "steps" and isinstance(value, str | float):
        value = flags.parse_steps(str(value))
    if isinstance(value, list):
        value = tuple(value)
    if not _fits(value, accepted):
        raise Refusal(f"{flag(name)} {value!r} is not accepted: it must be {_words(name, accepted)}")
    return float(value) if accepted is float else value


def _fits(value: object, accepted: object) -> bool:
    origin, arguments = typing.get_origin(accepted), typing.get_args(accepted)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, arguments[0]) for item in value)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, argument) for argument in arguments)
    if origin is dict:
        return isinstance(value, dict)
    if accepted in (int, float):
        return isinstance(value, (int, accepted)) and not isinstance(value, bool)
    return isinstance(value, accepted)


def _words(name: str, accepted: object) -> str:
    if typing.get_origin(accepted) is Literal:
        return "one of " + ", ".join(typing.get_args(accepted))
    if name in RANGES:
        return RANGES[name][0]
    kinds = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
    return kinds.get(accepted, "of another type")


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def checked(config: Config) -> Config:
    """The same config, or a refusal that names the value and what is accepted."""
    if config.objective not in OBJECTIVES:
        raise Refusal(f"--objective {config.objective} is unknown; accepted: {', '.join(OBJECTIVES)}")
    for name, (words, accepts) in RANGES.items():
        value = getattr(config, name)
        if value is not None and not (_is_finite(value) and accepts(value)):
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            raise Refusal(f"{flag(name)} {shown} is not accepted: it must be {words}")
    _check_objective_settings(config)
    _check_batch(config)
    return config


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _check_objective_settings(config: Config) -> None:
    own = config.resolved_objective.settings
    for name in OBJECTIVE_SETTINGS:
        if getattr(config, name) is not None and name not in own:
            settings = ", ".join(map(flag, own)) or "none"
            raise Refusal(f"{flag(name)} does not belong to objective {config.objective}; its settings: {settings}")


def _check_batch(config: Config) -> None:
    if config.batch_size % config.minibatches:
        raise Refusal(
            f"--minibatches {config.minibatches} does not divide the batch of {config.batch_size} samples"
            f" ({config.envs} envs × horizon {config.horizon})"
        )
    if config.normalize_advantage == "minibatch" and config.minibatch_size < 2:
        raise Refusal(
            f"--minibatches {config.minibatches} leaves minibatches of one sample, which cannot be normalised;"
            " use fewer, or --normalize-advantage batch"
        )
    if config.iterations < 1:
        raise Refusal(
            f"--steps {config.steps} is less than one iteration of {config.batch_size} steps"
            f" ({config.envs} envs × horizon {config.horizon})"
        )
