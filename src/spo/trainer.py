"""One training run: its state, its loop, and the composition of all its parts."""

import dataclasses
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from spo.config import Config
from spo.distributions import distribution_for
from spo.encoders import TRUNKS
from spo.envs import VecEnv
from spo.envs.atari import is_atari
from spo.envs.backends import choose_backend, make_envs
from spo.envs.making import EnvMaker, MakeEnv
from spo.envs.watchdog import Watched
from spo.errors import Refusal
from spo.evaluation import evaluate_policy
from spo.improve import FirstOrder, explained_variance
from spo.losses import example_batch, make_batch, make_loss
from spo.metrics import JsonLines, Progress, Row, Sink, TensorBoard, announce, print_summary
from spo.networks import FlatParameters, actor_for
from spo.normalize import ObservationNormalizer, RewardNormalizer
from spo.policy import Policy, PolicySpec, load_policy, save_policy
from spo.presets import make_config
from spo.rollout import Collector, gae
from spo.rundir import RunDirectory, append_row, write_json
from spo.seeding import derived_seed, generator
from spo.trust_region import TrustRegion

COMPILE_FROM = 4000
"""Gradient steps from which a compiled update pays for its compilation (10 to 30 s once, then cached)."""

PACKAGES = ("simple-policy-optimization", "torch", "numpy", "gymnasium", "mujoco", "ale-py", "envpool", "safetensors")
"""Whose versions a run records."""

Callback = Callable[["Training", Row], object]
"""Called after every iteration with the training and its newest metrics row; returning False ends the run."""


class Training:
    """A run in progress: everything that changes while it goes on."""

    def __init__(self, config: Config, make_env: EnvMaker):
        self.config, self.make_env = config, make_env
        self.iteration, self.wall_time, self.ratio_deviation_run_max = 0, 0.0, 0.0
        self.threads = config.threads or default_threads(config)
        torch.set_num_threads(self.threads)
        self.backend, self.backend_reason = choose_backend(config, self.threads)
        self.envs = make_envs(config, make_env, self.backend, self.threads)
        try:
            self._build()
        except BaseException:
            self.envs.close()  # nothing that was started stays behind
            raise

    def _build(self) -> None:
        config = self.config
        self.spec = _policy_spec(config, self.envs)
        self.distribution = distribution_for(self.spec.action_space)
        self.network = self.spec.network(derived_seed(config.seed, "network")).to(_device(config.device))
        numbers = self.envs.layout.numbers
        self.observation_normalizer = ObservationNormalizer(config.normalize_observation, config.envs, numbers)
        if config.init_from:
            self._start_from(load_policy(config.init_from))
        self.parameters = FlatParameters(self.network)
        self.collector = self._collector()
        loss = make_loss(self.parameters, self.distribution, config, masked=self.collector.mask is not None)
        rule = TrustRegion if config.resolved_objective.trust_region else FirstOrder
        self.improve = rule(loss, config, generator(config.seed, "minibatches"))

    def _collector(self) -> Collector:
        config = self.config
        return Collector(
            self.envs,
            actor_for(self.network, config.device),
            self.distribution,
            self.observation_normalizer,
            RewardNormalizer(config.normalize_reward, config.envs, config.gamma, authors=config.paper),
            generator(config.seed, "actions"),
            config.horizon,
            config.truncation,
            counts_final_observations=config.paper,
            clips_reward=config.clip_reward == "sign",
        )

    def _start_from(self, policy: Policy) -> None:
        """Takes over another run's weights and observation statistics."""
        try:
            self.network.load_state_dict(policy.network.state_dict())
        except RuntimeError:
            raise Refusal(f"--init-from {self.config.init_from} holds a policy of another shape: {policy.spec}")
        self.observation_normalizer.start_from(policy.normalizer)

    @property
    def policy(self) -> Policy:
        """The current policy with its statistics, frozen."""
        network = self.spec.network()
        network.load_state_dict(self.network.state_dict())
        return Policy(self.spec, network, self.observation_normalizer.frozen())

    def choose_update_path(self) -> tuple[str, str]:
        """Compiled where it pays and works, eager elsewhere: the path, and why."""
        steps = self.config.gradient_steps
        if self.config.compile == "off":
            return "eager", "as asked"
        if self.config.compile == "auto" and steps < COMPILE_FROM:
            return "eager", f"{steps:,} gradient steps; compiling pays from {COMPILE_FROM:,}"
        started = time.monotonic()
        try:
            size, is_masked = self.config.minibatch_size, self.collector.mask is not None
            self.improve.compile(example_batch(self.spec.layout, self.distribution, size, is_masked))
            return "compiled", f"in {time.monotonic() - started:.1f} s"
        except Exception as error:  # whatever a compiler throws, training goes on without it
            first_line = (str(error).strip().splitlines() or [""])[0]
            return "eager", f"compiling failed: {type(error).__name__}: {first_line}"

    def run(self, directory: RunDirectory, sinks: list[Sink], callback: Callback | None = None) -> None:
        """Collect, estimate advantages, improve, record, until the steps are made."""
        while self.iteration < self.config.iterations:
            started = time.perf_counter()
            row, episodes = self.iterate()
            row = self._timed(row, time.perf_counter() - started)
            for sink in sinks:
                sink.write(row, episodes)
            _write_status(self, directory, "running")
            self._evaluate_when_due(directory)
            if callback and callback(self, row) is False:
                return

    def iterate(self) -> tuple[Row, list[Row]]:
        """One iteration: its metrics row, times aside, and the episodes that ended in it."""
        config, learning_rate = self.config, self.config.learning_rate_at(self.iteration)
        rollout = self.collector.collect()
        advantage = gae(
            rollout.reward,
            rollout.value,
            rollout.next_value,
            rollout.terminated,
            rollout.done,
            config.gamma,
            config.lam,
        )
        batch = make_batch(rollout, advantage, self.distribution, config.device, self.improve.wants_successors)
        stats = self.improve(batch, learning_rate)
        self.iteration += 1
        self.ratio_deviation_run_max = max(self.ratio_deviation_run_max, stats["ratio_deviation_max"])
        row = {
            "iteration": self.iteration,
            "env_steps": self.collector.env_steps,
            "learning_rate": learning_rate,
            **stats,
            "tv": stats["ratio_deviation"] / 2,
            "ratio_deviation_run_max": self.ratio_deviation_run_max,
            "explained_variance": explained_variance(batch["old_value"], batch["value_target"]),
        }
        return row, [episode.as_row() for episode in rollout.episodes]

    def _timed(self, row: Row, seconds: float) -> Row:
        self.wall_time += seconds
        return row | {"wall_time": self.wall_time, "steps_per_second": self.config.batch_size / seconds}

    def _evaluate_when_due(self, directory: RunDirectory) -> None:
        every = self.config.eval_every
        if every and self.iteration % every == 0:
            result = evaluate_policy(self.policy, self.make_env, seed=self.config.seed)
            position = {"iteration": self.iteration, "env_steps": self.collector.env_steps}
            append_row(directory.evaluations, position | result.as_json())


@dataclass(frozen=True)
class Run:
    """A finished training run."""

    directory: Path
    policy: Policy
    summary: dict[str, float | bool | None]


def train(env: str | MakeEnv, *, callback: Callback | None = None, **settings) -> Run:
    """Trains a policy on a Gymnasium id, or on what a callable makes; settings are those of `Config`."""
    config = make_config(env if isinstance(env, str) else name_of(env), **settings)
    return run_training(config, EnvMaker(env, config.env_arg), callback)


def name_of(make_env: MakeEnv) -> str:
    """What a run calls an environment that a callable makes: with a dot, which no id or game has alone."""
    named = make_env if hasattr(make_env, "__qualname__") else type(make_env)
    return f"{named.__module__}.{named.__qualname__}"


def run_training(config: Config, make_env: EnvMaker, callback: Callback | None = None) -> Run:
    """The whole of a run, from the environments to the saved policy."""
    RunDirectory.check_unused(config.out)
    training = Training(config, make_env)
    directory = RunDirectory.create(config.out, f"{config.env}-{config.objective}-s{config.seed}")
    path, reason = training.choose_update_path()
    write_json(directory.config, _record(training, path))
    backend = f"backend {training.backend} ({training.backend_reason})"
    announce(config, f"update {path} ({reason}), {backend}, {training.threads} thread(s)")
    sinks = _sinks(config, directory)
    if isinstance(training.envs, Watched):
        training.envs.on_timeout = lambda reason: _write_status(training, directory, "failed", reason)
    try:
        training.run(directory, sinks, callback)
        save_policy(training.policy, directory.policy)
    except BaseException as error:
        state = "interrupted" if isinstance(error, KeyboardInterrupt | SystemExit) else "failed"
        _write_status(training, directory, state, str(error) or repr(error))
        raise
    finally:
        for sink in sinks:
            sink.close()
        training.envs.close()
    _write_status(training, directory, "finished")
    summary = directory.summary()
    print_summary(config, summary, directory)
    return Run(directory.path, training.policy, summary)


def _write_status(training: Training, directory: RunDirectory, state: str, reason: str | None = None) -> None:
    directory.write_status(state, training.iteration, training.collector.env_steps, reason)


def default_threads(config: Config) -> int:
    """All cores for convolutions; one for small networks, whose threads would only fight with the stepping."""
    return os.cpu_count() or 1 if is_atari(config.env) or config.encoder in TRUNKS else 1


def _sinks(config: Config, directory: RunDirectory) -> list[Sink]:
    sinks: list[Sink] = [JsonLines(directory)]
    if config.tensorboard:
        sinks.append(TensorBoard(directory))
    if not config.quiet:
        sinks.append(Progress(config.total_steps))
    return sinks


def _policy_spec(config: Config, envs: VecEnv) -> PolicySpec:
    spaces = (envs.observation_space, envs.action_space)
    layers = (config.hidden, config.critic_hidden, config.activation, config.encoder)
    return PolicySpec(config.env, config.objective, *spaces, *layers)


def _record(training: Training, update_path: str) -> dict[str, object]:
    """config.json: what was asked for, what was chosen, and with which versions."""
    config = training.config
    resolved = {
        "update": update_path,
        "backend": training.backend,
        "threads": training.threads,
        "total_steps": config.total_steps,
        "iterations": config.iterations,
        "objective_settings": config.objective_settings,
        "value_bound": config.value_bound,
    }
    return {"settings": dataclasses.asdict(config), "resolved": resolved, "versions": _versions()}


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        return device
    except (RuntimeError, AssertionError) as error:
        raise Refusal(f"--device {name} cannot be used here: {str(error).splitlines()[0]}")
