"""The trainer: the composition of all its parts, its one state, and the loop of Algorithm 1."""

import copy
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from spo.algorithms.batch import Batch, example_batch, make_batch
from spo.algorithms.losses import Loss, make_loss, ratios
from spo.algorithms.metrics import Row, action_statistics, episode_statistics, explained_variance
from spo.algorithms.minibatch_update import MinibatchUpdate
from spo.algorithms.ratio_samples import RatioSampler
from spo.algorithms.trpo import TRPOUpdate
from spo.config.config import Config
from spo.envs import VecEnv
from spo.envs.factory import choose_backend, make_envs
from spo.envs.make import EnvMaker
from spo.errors import ConfigError, DivergenceError, SpoError, place_of
from spo.models.actors import actor_for
from spo.models.choose_distribution import resolve_action_scale, resolve_distribution
from spo.models.networks import ActorCritic, FlatParameters
from spo.models.normalization import ObservationNormalizer, RewardNormalizer
from spo.models.policy import Policy, PolicySpec
from spo.models.policy_files import load_newest_policy
from spo.rollout import Collector, Rollout, gae
from spo.runtime.seeding import derive_seed, generator
from spo.runtime.timing import Timer
from spo.runtime.torch_tuning import keep_freed_memory, useful_threads

Record = Callable[[Row, list[Row]], object]
"""Takes an iteration's row of metrics and the episodes that ended in it; returning False ends the run."""
Callback = Callable[["Trainer", Row], object]
"""Called after every iteration with the trainer and its newest metrics row; returning False ends the run."""
COMPILE_FROM = 4000
"""Gradient steps from which a compiled update pays for its compilation (10 to 30 s once, then cached)."""


class Trainer:
    """A run in progress: everything that changes while it goes on."""

    def __init__(self, config: Config, make_env: EnvMaker):
        self.config, self.make_env = config, make_env
        self.iteration, self.wall_time, self.ratio_deviation_run_max = 0, 0.0, 0.0
        self.episodes_cut = 0
        self.timer = Timer()
        self.initial_policy: Path | None = None  # the folder that it was read from, with --init-from
        self.ratios: dict[str, np.ndarray] | None = None  # of the newest iteration, where they are asked for
        self.ratio_sample: dict[str, np.ndarray] | None = None  # likewise of some samples, for spo watch
        self.inexact_reasons: list[str] = []  # why this run is not bit-exact: not what an uninterrupted one would be
        cores = config.threads or os.cpu_count() or 1
        self.backend, self.backend_reason = choose_backend(config, cores)
        self.envs = make_envs(config, make_env, self.backend, cores)
        try:
            self._build(cores)
        except BaseException:
            self.envs.close()  # nothing that was started stays behind
            raise

    def _build(self, cores: int) -> None:
        config = self.config
        self.spec = _policy_spec(config, self.envs)
        self.distribution = self.spec.make_distribution()
        blank = self.spec.blank_network()  # refuses what would not fit, before it takes any memory
        self.torch_threads = min(cores, useful_threads(blank))
        self.threads = max(self.torch_threads, self.envs.stepping_threads) if self.backend == "gymnasium" else cores
        torch.set_num_threads(self.torch_threads)
        keep_freed_memory()
        self.network = self.spec.network(derive_seed(config.seed, "network")).to(_device(config.device))
        self.observation_normalizer = self._make_normalizer()
        if config.init_from:
            encoder = config.encoder if ":" in config.encoder else None
            policy, self.initial_policy = load_newest_policy(config.init_from, encoder)
            self._start_from(policy)
        self.parameters = FlatParameters(self.network)
        self.collector = self._make_collector()
        loss = make_loss(self.parameters, self.distribution, config)
        rule = TRPOUpdate if config.resolved_objective.trust_region else MinibatchUpdate
        self.update = rule(loss, config, generator(config.seed, "minibatches"))

    def _make_normalizer(self) -> ObservationNormalizer:
        layout, mode = self.envs.layout, self.config.normalize_observation
        return ObservationNormalizer(mode, self.config.envs, layout.continuous_size, layout.dtype)

    def _make_collector(self) -> Collector:
        config, reset_on = self.config, "termination" if self.config.paper else "end"
        return Collector(
            self.envs,
            actor_for(self.network, config.device),
            self.distribution,
            self.observation_normalizer,
            RewardNormalizer(config.normalize_reward, config.envs, config.gamma, reset_on),
            generator(config.seed, "actions"),
            config.horizon,
            config.truncation,
            count_final_observations=config.paper,
            clip_reward_sign=config.clip_reward == "sign",
            timer=self.timer,
        )

    def _start_from(self, policy: Policy) -> None:
        """Take over another run's weights and observation statistics, where they mean the same."""
        self._check_alike(policy)
        try:
            self.network.load_state_dict(policy.network.state_dict())
        except RuntimeError:
            raise ConfigError(f"--init-from {self.config.init_from} holds a policy of another shape: {policy.spec}")
        self.observation_normalizer.start_from(policy.normalizer)

    def _check_alike(self, policy: Policy) -> None:
        """Refuse a policy whose tensors may fit, but would see, compute or do something else."""
        then = policy.spec.meaning | {"normalize-observation": policy.normalizer.switch}
        now = self.spec.meaning | {"normalize-observation": self.observation_normalizer.switch}
        for what in (what for what in then if then[what] != now[what]):
            problem = f"{what} {then[what]}, and this run has {now[what]}"
            raise ConfigError(f"--init-from {self.config.init_from} holds a policy with {problem}")

    def _copy_network(self) -> ActorCritic:
        """The network as it is; a new one would be made orthogonal first, for nothing."""
        return copy.deepcopy(self.network).cpu()

    def snapshot_policy(self) -> Policy:
        """A copy of the current policy with its statistics, frozen."""
        return Policy(self.spec, self._copy_network(), self.observation_normalizer.freeze())

    def policy_at(self, state: dict) -> Policy:
        """The policy that a state holds, frozen."""
        network = self._copy_network()
        FlatParameters(network).vector.copy_(torch.from_numpy(state["parameters"]))
        normalizer = self._make_normalizer()
        normalizer.moments.restore(state["collector"]["observation_moments"])
        return Policy(self.spec, network, normalizer.freeze())

    def choose_update_path(self) -> tuple[str, str]:
        """Compiled where it pays and works, eager elsewhere: the path, and why."""
        steps = self.config.gradient_steps
        if self.config.compile == "off":
            return "eager", "as asked"
        if not self.will_compile:
            return "eager", f"{steps:,} gradient steps; compiling pays from {COMPILE_FROM:,}"
        started = time.monotonic()
        try:
            self.update.compile(self.example_batch())
            return "compiled", f"in {time.monotonic() - started:.1f} s"
        except Exception as error:  # whatever a compiler throws, training goes on without it
            first_line = (str(error).strip().splitlines() or [""])[0]
            return "eager", f"compiling failed: {type(error).__name__}: {first_line}"

    def example_batch(self) -> Batch:
        """A minibatch of zeros with the shapes and types of this run's, to compile with."""
        size, is_masked = self.config.minibatch_size, self.collector.mask is not None
        return example_batch(self.spec.layout, self.distribution, size, is_masked, self.update.needs_next_step)

    @property
    def will_compile(self) -> bool:
        """Whether the settings ask for a compiled update, or leave it open and the run is long enough to gain."""
        is_long = self.config.gradient_steps >= COMPILE_FROM
        return self.config.compile == "on" or (self.config.compile == "auto" and is_long)

    def make_first_step(self) -> None:
        """Step every environment once, so that its faults come before a compilation and not after it."""
        with self._errors_name_the_iteration():
            self.collector.make_first_step()

    def fit(self, record: Record, callback: Callback | None = None) -> None:
        """Train until all iterations are made, or until the record or the callback returns False."""
        while self.iteration < self.config.iterations:
            started = time.perf_counter()
            row, episodes = self.iterate()
            row = self.add_times(row, time.perf_counter() - started)
            has_enough = _is_false(record(row, episodes))
            if (callback and _is_false(callback(self, row))) or has_enough:
                return

    def iterate(self) -> tuple[Row, list[Row]]:
        """Collect a rollout, estimate its advantages, update the policy: a row of metrics and the finished episodes."""
        learning_rate, widths = self.config.learning_rate_at(self.iteration), self.config.widths_at(self.iteration)
        with self._errors_name_the_iteration():
            rollout = self.collector.collect()
            with self.timer("advantage"):
                batch = self.advantages(rollout)
            ratios, sampler = self._ratio_record(batch), self._ratio_sampler()
            with self.timer("update"):
                stats = self.update(batch, learning_rate, ratios, sampler, widths)
            self._check_finite(stats)
        self.ratios = ratios.arrays() if ratios else None
        self.ratio_sample = sampler.arrays(stats.get("epsilon", self.config.clip_range)) if sampler else None
        self.iteration += 1
        if self.is_at_rebuild:
            self.episodes_cut += self.collector.rebuild_envs()
        stats |= episode_statistics(rollout.episodes) | action_statistics(self.distribution, rollout)
        return self._row(stats, batch, learning_rate), [episode.as_row() for episode in rollout.episodes]

    @contextmanager
    def _errors_name_the_iteration(self) -> Iterator[None]:
        try:
            yield
        except SpoError as error:
            raise type(error)(
                f"{error}{place_of(error.__cause__)}, in iteration {self.iteration + 1}"
            ) from error.__cause__

    def _ratio_record(self, batch: Batch) -> "RatioRecord | None":
        is_wanted = self.iteration + 1 in self.config.record_ratios
        return RatioRecord(self.update.loss, batch) if is_wanted else None

    def _ratio_sampler(self) -> RatioSampler | None:
        every = self.config.watch_every
        is_wanted = every > 0 and (self.iteration + 1) % every == 0
        return RatioSampler(self.config.batch_size) if is_wanted else None

    def _row(self, stats: Row, batch: Batch, learning_rate: float | None) -> Row:
        self.ratio_deviation_run_max = max(self.ratio_deviation_run_max, stats["ratio_deviation_max"])
        return {
            "iteration": self.iteration,
            "env_steps": self.collector.env_steps,
            "learning_rate": stats["learning_rate"] if learning_rate is None else learning_rate,
            **stats,
            "tv": stats["ratio_deviation"] / 2,
            "ratio_deviation_run_max": self.ratio_deviation_run_max,
            "explained_variance": explained_variance(batch.old_value, batch.value_target),
            **self._interruption_counts(),
        }

    def add_times(self, row: Row, seconds: float) -> Row:
        """The row with the iteration's time, which counts for the run's."""
        self.wall_time += seconds
        return row | {"wall_time": self.wall_time, "steps_per_second": self.config.batch_size / seconds}

    def advantages(self, rollout: Rollout) -> Batch:
        """Estimate the rollout's advantages and flatten it to one batch."""
        values = (rollout.reward, rollout.value, rollout.next_value, rollout.terminated, rollout.done)
        advantage = gae(*values, self.config.gamma, self.config.lam)
        return make_batch(rollout, advantage, self.distribution, self.config.device, self.update.needs_next_step)

    def _check_finite(self, stats: dict[str, float]) -> None:
        """No state that is not finite ever reaches a checkpoint."""
        for name, value in stats.items():
            if not math.isfinite(value):
                raise DivergenceError(f"training diverged: the {name.replace('_', ' ')} became {value}")
        adam = self.update.epochs.adam
        tensors = {"parameters": self.parameters.vector, "first moments": adam.first, "second moments": adam.second}
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise DivergenceError(f"training diverged: {(~tensor.isfinite()).sum()} of the {name} are not finite")

    @property
    def rebuild_every(self) -> int | None:
        """Iterations between rebuilds, for environments that can only be resumed at one."""
        steps = self.envs.rebuild_after_steps
        return steps and math.ceil(steps / self.config.horizon)

    @property
    def is_at_rebuild(self) -> bool:
        """Whether the environments are made anew after this iteration; the last one always ends with that."""
        every = self.rebuild_every
        return every is not None and (self.iteration % every == 0 or self.iteration == self.config.iterations)

    @property
    def can_resume_here(self) -> bool:
        return self.rebuild_every is None or self.is_at_rebuild

    def _interruption_counts(self) -> Row:
        counts: Row = {} if self.rebuild_every is None else {"episodes_cut": self.episodes_cut}
        if self.config.on_env_error == "restart":
            counts["env_restarts"] = self.collector.env_restarts
        return counts

    def state(self) -> dict[str, object]:
        """A copy of everything that changes during training: what is not in here is a mistake."""
        return {
            "iteration": self.iteration,
            "wall_time": self.wall_time,
            "ratio_deviation_run_max": self.ratio_deviation_run_max,
            "episodes_cut": self.episodes_cut,
            "departures": list(self.inexact_reasons),
            "parameters": self.parameters.vector.cpu().numpy().copy(),
            "improve": self.update.state(),
            "collector": self.collector.state(),
        }

    def restore(self, state: dict) -> None:
        for name in ("iteration", "wall_time", "ratio_deviation_run_max", "episodes_cut"):
            setattr(self, name, state[name])
        self.parameters.vector.copy_(torch.from_numpy(state["parameters"]))
        self.update.restore(state["improve"])
        failures = self.collector.restore(state["collector"])
        self.episodes_cut += len(failures)
        lost = [f"environment {index} started a new episode: {why}" for index, why in failures.items()]
        self.inexact_reasons = [*state["departures"], *lost]


class RatioRecord:
    """Every sample's ratio after each epoch of an iteration, and the advantage that the objective saw in that epoch."""

    def __init__(self, loss: Loss, batch: Batch):
        self.loss, self.batch = loss, batch
        self.ratio: list[torch.Tensor] = []
        self.advantage: list[torch.Tensor] = []

    def __call__(self, advantage: torch.Tensor) -> None:
        self.ratio.append(ratios(self.loss, self.batch))
        self.advantage.append(advantage)

    def arrays(self) -> dict[str, np.ndarray]:
        """Both (epochs, samples)."""
        rows = {"ratio": self.ratio, "advantage": self.advantage}
        return {name: torch.stack(tensors).cpu().numpy() for name, tensors in rows.items()}


def _is_false(answer: object) -> bool:
    """Whether it is Python's or NumPy's False; None, 0 and what is empty are no answer."""
    return isinstance(answer, bool | np.bool_) and not answer


def _policy_spec(config: Config, envs: VecEnv) -> PolicySpec:
    spaces = (envs.observation_space, envs.action_space)
    distribution = resolve_distribution(envs.action_space, config.distribution)
    action_scale = resolve_action_scale(envs.action_space, distribution, config.action_scale)
    return PolicySpec(
        config.env,
        config.objective,
        *spaces,
        config.hidden,
        config.critic_hidden,
        config.activation,
        config.encoder,
        distribution,
        action_scale,
    )


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # the device "meta" has no numbers
        return device
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"--device {name} cannot be used here: {str(error).splitlines()[0]}")
