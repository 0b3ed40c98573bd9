"""The settings of a run: one flat, frozen record. Derived numbers are properties."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Literal

import tyro

from spo.config import fields
from spo.errors import SpoError
from spo.objectives import OBJECTIVES, QUADRATIC_KL, Objective, find_objective, settings_of


@dataclass(frozen=True, kw_only=True)
class Config:
    """Trains a policy on a Gymnasium environment."""

    env: Annotated[str, tyro.conf.Positional]
    """A registered Gymnasium id, such as HalfCheetah-v4 or module:Env-v0."""
    preset: str
    """Where the defaults come from: mujoco, atari, atari-resnet, atari-resnet-fixed (the paper's), or classic."""
    paper: bool = False
    """The authors' behaviour: truncation ends the value, statistics per environment, their wrappers of Atari."""
    config: fields.OptionalText = None
    """A TOML or JSON file with settings, or a run's config.json; flags win over it."""
    seed: int = 1
    """Every random draw of the run derives from it."""

    objective: str = "spo"
    """The policy objective; `spo objectives` lists them."""
    objective_arg: fields.KeyValues = dataclasses.field(default_factory=dict)
    """Settings of an objective of your own, as key=value."""
    epsilon: fields.OptionalNumber = None
    """Width of the ratio bound (spo-adaptive: at the start)."""
    epsilon_high: fields.OptionalNumber = None
    """Upper width of the ratio bound (clip-higher)."""
    epsilon_next: fields.OptionalNumber = None
    """Width of the successor's ratio bound (rpo-reflective)."""
    reflection: fields.OptionalNumber = None
    """Weight of the successor's term (rpo-reflective)."""
    alpha: fields.OptionalNumber = None
    """Slope of the rollback (ppo-rb, tr-ppo-rb), or weight of the KL in it (truly-ppo)."""
    beta: fields.OptionalNumber = None
    """Weight of the KL penalty at the start (ppo-penalty)."""
    kl_target: fields.NumberOrOff = None
    """Mean KL towards which beta is adapted, or off (ppo-penalty)."""
    temperature: fields.OptionalNumber = None
    """Lambda of spu: how much the advantage counts against the KL."""
    state_delta: fields.OptionalNumber = None
    """KL beyond which a state is left out (spu)."""
    delta: fields.OptionalNumber = None
    """KL bound of trigger (tr-ppo, tr-ppo-rb, truly-ppo), epochs (spu) or step (trpo); change of probability (drpo)."""
    dual_clip: fields.OptionalNumber = None
    """Lower bound of the objective in multiples of a negative advantage (ppo-dual-clip)."""
    deviation_limit: fields.OptionalNumber = None
    """Mean ratio deviation that ends an iteration's updates (espo)."""
    deviation_target: fields.OptionalNumber = None
    """Mean ratio deviation towards which epsilon is adapted (spo-adaptive)."""
    epsilon_min: fields.OptionalNumber = None
    """The least that epsilon is adapted to (spo-adaptive)."""
    epsilon_max: fields.OptionalNumber = None
    """The most that epsilon is adapted to (spo-adaptive)."""
    epsilon_gain: fields.OptionalNumber = None
    """How strongly epsilon follows the deviation: 0 not at all, 1 in full proportion (spo-adaptive)."""
    power: fields.OptionalNumber = None
    """How steep the wall at the ratio bound is; 2 is SPO (spo-power)."""
    damping: fields.OptionalNumber = None
    """Damping of the Fisher matrix (trpo)."""
    cg_steps: fields.OptionalCount = None
    """Steps of the conjugate gradient (trpo)."""
    backtrack: fields.OptionalNumber = None
    """Factor of the line search (trpo)."""
    backtrack_steps: fields.OptionalCount = None
    """Most trials of the line search (trpo)."""

    steps: fields.Steps
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
    lr_schedule: Literal["linear", "constant", "adaptive-kl"]
    """Linear decays to zero over the run; adaptive-kl (beyond the paper; not for spo) follows each minibatch's KL."""
    lr_kl_target: float = 0.01
    """The KL that --lr-schedule adaptive-kl aims at."""
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
    value_clip: fields.NumberOrOff = None
    """Bound on the value's change in its loss, or off (unset: the objective's epsilon, else 0.2)."""
    target_kl: fields.OptionalNumber = None
    """Ends an iteration's epochs once the mean KL(old‖new) over the batch exceeds it (not with trpo)."""
    normalize_advantage: Literal["minibatch", "batch", "off"] = "minibatch"
    """Over what advantages are normalised."""
    truncation: Literal["bootstrap", "terminal"] = "bootstrap"
    """Whether a truncated episode goes on in value, or ends as if terminated."""
    normalize_observation: Literal["shared", "per-env", "off"]
    """Whether running statistics of observations are shared by the environments."""
    normalize_reward: Literal["shared", "per-env", "off"]
    """Whether running statistics of returns are shared by the environments."""

    clip_reward: Literal["sign", "off"]
    """Whether learning sees only the sign of a reward; reported returns are always raw."""

    hidden: tuple[int, ...]
    """Hidden layers of the policy; the paper's deep policy is 256 256 128 128 64 64."""
    critic_hidden: tuple[int, ...]
    """Hidden layers of the value network, whatever --hidden is."""
    activation: Literal["tanh", "relu", "elu", "silu"]
    """Activation between layers."""
    encoder: Literal["auto", "mlp", "small", "nature", "resnet18"]
    """How images are read: auto takes nature from 36 × 36 on and small below; mlp flattens them."""

    distribution: Literal["auto", "gaussian", "gaussian-state", "squashed", "beta"] = "auto"
    """How Box actions are drawn: auto is gaussian; gaussian-state has a deviation for every state; squashed, beta."""
    action_scale: Literal["auto", "off", "bounds"] = "auto"
    """Whether actions of ±1 are mapped to the bounds; auto does it where the bounds are far from ±1."""
    backend: Literal["auto", "gymnasium", "shared", "process", "envpool"] = "auto"
    """What steps the environments: this process; also helpers that share its memory; workers alone; EnvPool."""
    env_timeout: float = 300.0
    """Seconds after which an environment that does not answer ends the run."""
    env_arg: fields.KeyValues = dataclasses.field(default_factory=dict)
    """Arguments for the environment's constructor, as key=value."""
    atari_wrappers: Literal["standard", "authors"] = "standard"
    """How Atari games are pre-processed: as Gymnasium does, or as the paper's authors do."""
    checkpoint_every: int = 20
    """Writes a checkpoint every so many iterations, and one at the end (0: only at the end)."""
    keep: int = 2
    """How many checkpoints to keep."""
    replay_limit: int = 100_000
    """The longest running episode, in steps, that resuming replays; a longer one starts again."""
    rebuild_every: Annotated[fields.OptionalCount, tyro.conf.arg(aliases=["--seam-every"])] = None
    """Iterations after which EnvPool is made anew, so that a run can resume there (unset: 4 full episodes)."""
    init_from: fields.OptionalText = None
    """A run whose policy and statistics to start from."""
    eval_every: int = 0
    """Evaluates the frozen policy every so many iterations (0: never)."""
    record_ratios: tuple[int, ...] = ()
    """Iterations of which every sample's ratio is kept after each epoch, in ratios/ITERATION.safetensors."""
    tensorboard: bool = False
    """Also writes TensorBoard files into the run directory."""
    compile: Literal["auto", "on", "off"] = "auto"
    """Whether the update is compiled; auto does it where the run is long enough to gain."""
    threads: fields.OptionalCount = None
    """Cores to use, for stepping and for networks that are large enough (unset: all)."""
    device: str = "cpu"
    """A torch device."""
    profile: bool = False
    """Ends with a table of where the time went, and the one change that would help most."""
    quiet: bool = False
    """Prints nothing but errors."""
    out: fields.OptionalText = None
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

    @cached_property
    def resolved_objective(self) -> Objective:
        try:
            return find_objective(self.objective)
        except LookupError as error:
            raise SpoError(f"--objective {self.objective} {error}")

    @property
    def objective_settings(self) -> dict[str, float]:
        """The objective's settings: its own defaults, replaced by what was given."""
        return self.resolved_objective.settings | self.given_objective_settings

    @property
    def given_objective_settings(self) -> dict[str, float]:
        flagged = {name: getattr(self, name) for name in OBJECTIVE_SETTINGS if getattr(self, name) is not None}
        return flagged | self.objective_arg

    def settings_for(self, function: Callable) -> dict[str, float]:
        """The values of a function's keyword-only parameters."""
        return {name: self.objective_settings[name] for name in settings_of(function)}

    def bound(self, function: Callable | None) -> Callable | None:
        """One of the objective's functions with its settings filled in."""
        return partial(function, **self.settings_for(function)) if function else None

    @property
    def ratio_bound(self) -> float:
        """The ε that metrics and value clipping use: the objective's (at the start), or 0.2 where it has none."""
        return self.objective_settings.get("epsilon", 0.2)

    @property
    def value_bound(self) -> float | None:
        """How far the value may move in its loss; None is no bound."""
        if self.value_clip == "off":
            return None
        return self.ratio_bound if self.value_clip is None else self.value_clip

    @property
    def outruns_kl_target(self) -> bool:
        """Whether adaptive-kl would raise the learning rate to its cap, because the objective keeps the KL below it."""
        follows = self.lr_schedule == "adaptive-kl" and self.resolved_objective.is_quadratic
        return follows and self.lr_kl_target > QUADRATIC_KL * self.ratio_bound**2

    def learning_rate_at(self, iteration: int) -> float | None:
        """lr·(1 − i/iterations), from iteration 0; None where the update adapts it by itself."""
        if self.lr_schedule == "adaptive-kl":
            return None
        share = 1 - iteration / self.iterations if self.lr_schedule == "linear" else 1.0
        return self.learning_rate * share


OBJECTIVE_SETTINGS = tuple({name: None for objective in OBJECTIVES.values() for name in objective.settings})
"""The settings that belong to an objective rather than to the trainer; None means the objective's own default."""
