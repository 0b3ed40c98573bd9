"""The settings of a run: one flat, frozen record in named groups. Derived numbers are properties.

A setting is one field: its type and range, its default if it is not a preset's, and below it its help.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from spo.config import fields
from spo.errors import ConfigError, suggest
from spo.models import LARGEST_LAYER, MOST_LAYERS
from spo.models.choose_distribution import FOR_BOX
from spo.models.image_encoders import ENCODER_NAMES
from spo.objectives import OBJECTIVES, QUADRATIC_KL, SETTINGS, Objective, find_objective, settings_of

OBJECTIVE_SETTINGS = {name: value for objective in OBJECTIVES.values() for name, value in objective.settings.items()}
"""The settings that belong to an objective rather than to the trainer, with some objective's default."""
BACKENDS = {"gymnasium": "sync", "shared": "shared_memory", "process": "subproc", "envpool": "envpool"}
"""What steps the environments, by name: the modules of spo.envs whose `make_envs` is asked for them."""
LAYERS = fields.Range(
    f"up to {MOST_LAYERS} whole numbers from 1 to {LARGEST_LAYER}",
    lambda sizes: len(sizes) <= MOST_LAYERS and all(1 <= size <= LARGEST_LAYER for size in sizes),
)
ENCODER = fields.Range(
    f"one of {', '.join(ENCODER_NAMES)}, or package.module:Class", lambda name: name in ENCODER_NAMES or ":" in name
)
WATCHED_STEPS = 8192
"""Environment steps in which ratios are kept once: four iterations of the paper's MuJoCo settings."""


def make_objective_field(name: str) -> tuple[str, object, None]:
    """Make the field of an objective's setting; None means the objective's own default."""
    (help, interval), is_count = SETTINGS[name], isinstance(OBJECTIVE_SETTINGS[name], int)
    optional = fields.NumberOrOff if interval.endswith("off") else fields.OptionalNumber
    accepted = fields.COUNT if is_count else fields.interval(interval)
    kind = fields.OptionalCount if is_count else optional
    return name, Annotated[kind, accepted, tyro.conf.arg(help=help)], None


if TYPE_CHECKING:
    DistributionName = str
    BackendName = str

    @dataclass(frozen=True, kw_only=True)
    class ObjectiveSettings:
        """What the objective takes besides."""

else:
    DistributionName = Literal["auto", *FOR_BOX]
    BackendName = Literal["auto", *BACKENDS]
    ObjectiveSettings = dataclasses.make_dataclass(
        "ObjectiveSettings", [make_objective_field(name) for name in OBJECTIVE_SETTINGS], frozen=True, kw_only=True
    )
    ObjectiveSettings.__doc__ = "What the objective takes besides."


@dataclass(frozen=True, kw_only=True)
class Essential:
    """What is set most often."""

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """A Gymnasium id, such as HalfCheetah-v4, module:Class or module:Env-v0 of yours, or an Atari game: Breakout."""
    steps: Annotated[fields.Steps, fields.whole(1, 10**15)]
    """Environment steps over all environments, such as 1e6, 1M or 200k; rounded down to whole iterations."""
    seed: Annotated[int, fields.COUNT_OR_ZERO] = 1
    """Every random draw of the run derives from it."""
    objective: str = "spo"
    """The policy objective; `spo objectives` lists them."""
    envs: Annotated[int, fields.whole(1, 2**16)]
    """Environments stepped together."""
    hidden: Annotated[fields.Numbers, LAYERS]
    """Hidden layers of the policy; the paper's deep policy is 256 256 128 128 64 64."""
    learning_rate: Annotated[float, fields.ABOVE_ZERO]
    """Adam's step size at the start."""
    out: fields.OptionalText = None
    """The run directory, which must not hold a run yet (unset: runs/ENV-OBJECTIVE-sSEED-TIME)."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where all other settings and the first weights come from."""

    preset: str
    """A set of defaults: mujoco, atari, atari-resnet, atari-resnet-fixed (all the paper's), classic, dm-control."""
    paper: bool = False
    """The authors' behaviour: a time limit counts as an end, statistics per environment, their wrappers of Atari."""
    config: fields.OptionalText = None
    """A TOML or JSON file with settings, or a run's config.json; flags win over it."""
    init_from: fields.OptionalText = None
    """A run whose policy and statistics to start from."""
    objective_arg: fields.KeyValues = dataclasses.field(default_factory=dict)
    """Settings of an objective of your own, as key=value."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How an iteration learns from its batch."""

    horizon: Annotated[int, fields.whole(1, 2**20)]
    """Steps of each environment per iteration."""
    epochs: Annotated[int, fields.COUNT]
    """Passes over the batch per iteration."""
    minibatches: Annotated[int, fields.COUNT]
    """Gradient steps per epoch."""
    lr_schedule: Literal["linear", "constant", "adaptive-kl"]
    """Linear decays to zero over the run; adaptive-kl (beyond the paper; not for spo) follows each minibatch's KL."""
    lr_kl_target: Annotated[float, fields.ABOVE_ZERO] = 0.01
    """The KL that --lr-schedule adaptive-kl aims at."""
    epsilon_schedule: Literal["constant", "linear"] = "constant"
    """Linear decays the objective's epsilon to zero over the run; the value clip stays where it starts."""
    schedule_steps: Annotated[fields.ScheduleSteps, fields.whole(1, 10**15)] = None
    """Steps over which linear schedules fall to zero (unset: --steps); more of them make the start of a longer run."""
    adam_eps: Annotated[float, fields.ABOVE_ZERO]
    """Adam's epsilon."""
    max_grad_norm: Annotated[float, fields.ABOVE_ZERO]
    """Bound on the norm of the joint gradient."""
    gamma: Annotated[float, fields.UP_TO_ONE]
    """Discount factor."""
    lam: Annotated[float, fields.UP_TO_ONE]
    """Lambda of generalised advantage estimation."""
    value_coef: Annotated[float, fields.NOT_NEGATIVE]
    """Weight of the value loss (c1)."""
    entropy_coef: Annotated[float, fields.NOT_NEGATIVE]
    """Weight of the entropy (c2)."""
    value_clip: Annotated[fields.NumberOrOff, fields.interval("(0, ∞) or off")] = None
    """Bound on the value's change in its loss, or off (unset: the objective's epsilon, else 0.2)."""
    target_kl: Annotated[fields.OptionalNumber, fields.ABOVE_ZERO] = None
    """Ends an iteration's epochs once the mean KL(old‖new) over the batch exceeds it (not with trpo)."""
    normalize_advantage: Literal["minibatch", "batch", "off"] = "minibatch"
    """Over what advantages are normalised."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """Where a time limit cuts an episode: the value of its last observation still counts, or nothing follows."""


@dataclass(frozen=True, kw_only=True)
class Networks:
    """The networks besides --hidden."""

    critic_hidden: Annotated[fields.Numbers, LAYERS]
    """Hidden layers of the value network, whatever --hidden is."""
    activation: Literal["tanh", "relu", "elu", "silu"]
    """Activation between layers."""
    encoder: Annotated[str, ENCODER, tyro.conf.arg(metavar=f"{{{','.join(ENCODER_NAMES)}}}|MODULE:CLASS")]
    """How images are read: auto is nature from 36 × 36 on, else small; mlp flattens them; or a class of your own."""
    distribution: DistributionName = "auto"
    """How Box actions are drawn: auto is gaussian; gaussian-state has a deviation for every state; squashed, beta."""
    action_scale: Literal["auto", "off", "bounds"] = "auto"
    """Whether actions of ±1 are mapped to the bounds; auto does it where the bounds are far from ±1."""


@dataclass(frozen=True, kw_only=True)
class Environments:
    """How environments are made and stepped, and what of them the networks see."""

    normalize_observation: Literal["shared", "per-env", "off"]
    """Running statistics of observations: one for all environments, one for each, or none."""
    normalize_reward: Literal["shared", "per-env", "off"]
    """Running statistics of returns: one for all environments, one for each, or none."""
    clip_reward: Literal["sign", "off"]
    """Whether learning sees only the sign of a reward; reported returns are always raw."""
    backend: BackendName = "auto"
    """What steps the environments: this process; also helpers that share its memory; workers alone; EnvPool."""
    env_timeout: Annotated[float, fields.interval("(0, 1000000]")] = 300.0
    """Seconds after which an environment that does not answer ends the run."""
    on_env_error: Literal["stop", "restart"] = "stop"
    """After an error in an environment's step: the run stops, or its episode does and the environment is made anew."""
    wrapper: Annotated[tuple[str, ...], fields.WRAPPERS, fields.SHOWN_IF_SET] = ()
    """Wrappers around each environment, from the inside out: module:Class, each followed by its key=value arguments."""
    env_arg: fields.KeyValues = dataclasses.field(default_factory=dict)
    """Arguments for the environment's constructor, as key=value."""
    atari_wrappers: Literal["standard", "authors"] = "standard"
    """How Atari games are pre-processed: as Gymnasium does, or as the paper's authors do."""
    replay_limit: Annotated[int, fields.COUNT] = 100_000
    """The longest running episode, in steps, that resuming replays; a longer one starts again."""
    rebuild_every: Annotated[fields.OptionalCount, fields.COUNT, tyro.conf.arg(aliases=["--seam-every"])] = None
    """Iterations after which EnvPool is made anew, so that a run can resume there (unset: 4 full episodes)."""


@dataclass(frozen=True, kw_only=True)
class Records:
    """What a run writes and prints."""

    checkpoint_every: Annotated[int, fields.COUNT_OR_ZERO] = 20
    """Writes a checkpoint every so many iterations, and one at the end (0: only at the end)."""
    keep: Annotated[int, fields.COUNT] = 2
    """How many checkpoints to keep."""
    eval_every: Annotated[int, fields.COUNT_OR_ZERO] = 0
    """Evaluates the frozen policy every so many iterations (0: never)."""
    keep_best: bool = False
    """Keeps the policy with the best of these evaluations in best/; `spo eval --best` plays it."""
    stop_at: Annotated[fields.OptionalNumber, fields.NUMBER] = None
    """Ends the run once an evaluation's mean return reaches it, or that of 100 episodes where --eval-every is 0."""
    record_ratios: Annotated[fields.Numbers, fields.ITERATIONS] = ()
    """Iterations of which every sample's ratio is kept after each epoch, in ratios/ITERATION.safetensors."""
    watch_ratios: Annotated[fields.OptionalCount, fields.COUNT_OR_ZERO] = None
    """Keeps ratios of some samples every so many iterations for `spo watch` (0: never; unset: once in 8,192 steps)."""
    tensorboard: bool = False
    """Also writes TensorBoard files into the run directory."""
    track: Annotated[tuple[Literal["wandb", "mlflow", "trackio", "tensorboard"], ...], fields.SHOWN_IF_SET] = ()
    """Experiment trackers that get the metrics too; WANDB_MODE, MLFLOW_TRACKING_URI and the like are theirs."""
    profile: bool = False
    """Ends with a table of where the time went, and the one change that would help most."""
    quiet: bool = False
    """Prints nothing but errors."""
    verbose: bool = False
    """Prints a table of numbers after every iteration, instead of one live line."""
    overwrite: bool = False
    """Lets --out name the directory of an earlier run, as long as that has no checkpoint; its files are removed."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How this machine is used."""

    compile: Literal["auto", "on", "off"] = "auto"
    """Whether the update is compiled; auto does it where the run is long enough to gain."""
    threads: Annotated[fields.OptionalCount, fields.CORES] = None
    """Cores to use, for stepping and for networks that are large enough (unset: all)."""
    device: str = "cpu"
    """A torch device."""


@dataclass(frozen=True, kw_only=True)
class Config(Machine, Records, Environments, Networks, Learning, Sources, ObjectiveSettings, Essential):
    """Trains a policy on a Gymnasium environment."""

    # A dataclass counts the fields of its last base first: the essential ones come first.

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
    def watch_every(self) -> int:
        """Iterations from one whose ratios are kept to the next: unset, so many that short ones pay no more for it."""
        return math.ceil(WATCHED_STEPS / self.batch_size) if self.watch_ratios is None else self.watch_ratios

    @property
    def gradient_steps(self) -> int:
        return self.iterations * self.epochs * self.minibatches

    @cached_property
    def resolved_objective(self) -> Objective:
        try:
            return find_objective(self.objective)
        except LookupError as error:
            raise ConfigError(f"--objective {self.objective} {error}{suggest(self.objective, OBJECTIVES, ALIASES)}")

    @property
    def objective_settings(self) -> dict[str, float]:
        """The objective's settings: its own defaults, replaced by what was given."""
        return self.resolved_objective.settings | self.given_objective_settings

    @property
    def given_objective_settings(self) -> dict[str, float]:
        flagged = {name: getattr(self, name) for name in OBJECTIVE_SETTINGS if getattr(self, name) is not None}
        return flagged | self.objective_arg

    def settings_for(self, function: Callable[..., Any]) -> dict[str, float]:
        """The values of a function's keyword-only parameters."""
        return {name: self.objective_settings[name] for name in settings_of(function)}

    def bind(self, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Fill the objective's settings into one of its functions."""
        return partial(function, **self.settings_for(function)) if function else None

    @property
    def clip_range(self) -> float:
        """The ε that metrics and value clipping use: the objective's (at the start), or 0.2 where it has none."""
        return self.objective_settings.get("epsilon", 0.2)

    @property
    def value_clip_range(self) -> float | None:
        """How far the value may move in its loss; None is no bound."""
        if isinstance(self.value_clip, str):  # off
            return None
        return self.clip_range if self.value_clip is None else self.value_clip

    @property
    def outruns_kl_target(self) -> bool:
        """Whether adaptive-kl would raise the learning rate to its cap, because the objective keeps the KL below it."""
        follows = self.lr_schedule == "adaptive-kl" and self.resolved_objective.is_quadratic
        least = 0.0 if self.epsilon_schedule == "linear" else self.clip_range
        return follows and self.lr_kl_target > QUADRATIC_KL * least**2

    def learning_rate_at(self, iteration: int) -> float | None:
        """lr·(1 − i/iterations), from iteration 0; None where the update adapts it by itself."""
        if self.lr_schedule == "adaptive-kl":
            return None
        return self.learning_rate * (self._share_at(iteration) if self.lr_schedule == "linear" else 1.0)

    def widths_at(self, iteration: int) -> dict[str, float]:
        """ε·(1 − i/iterations), from iteration 0, of each width that is on a schedule."""
        if self.epsilon_schedule == "constant":
            return {}
        own = self.settings_for(self.resolved_objective.function)
        return {name: own[name] * self._share_at(iteration) for name in WIDTHS if name in own}

    def _share_at(self, iteration: int) -> float:
        """What a linear schedule has left: 1 − i/iterations, of this run or of the one that it is the start of."""
        whole = self.iterations if self.schedule_steps is None else self.schedule_steps // self.batch_size
        return 1 - iteration / whole


WIDTHS = ("epsilon", "epsilon_high", "epsilon_next")
"""The settings of objectives that say how wide a ratio bound is."""
ALIASES = {"ppo": "ppo-clip", "ppo2": "ppo-clip"}
"""What other libraries call an objective."""
