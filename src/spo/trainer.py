"""Training: the composition of all its parts, its one state, and the loop."""

import math
import os
import time

import numpy as np
import torch

from spo.algorithms.batch import Batch, example_batch, make_batch
from spo.algorithms.losses import Loss, make_loss, ratios
from spo.algorithms.metrics import Row, explained_variance
from spo.algorithms.minibatch_update import MinibatchUpdate
from spo.algorithms.ratio_samples import RatioSampler
from spo.algorithms.trpo import TRPOUpdate
from spo.config.config import Config
from spo.envs import VecEnv
from spo.envs.factory import choose_backend, make_envs
from spo.envs.make import EnvMaker
from spo.errors import SpoError
from spo.models.actors import actor_for
from spo.models.choose_distribution import resolve_action_scale, resolve_distribution
from spo.models.networks import FlatParameters
from spo.models.normalization import ObservationNormalizer, RewardNormalizer
from spo.models.policy import Policy, PolicySpec
from spo.models.policy_files import load_policy
from spo.rollout import Collector, Rollout, gae
from spo.runtime.seeding import derived_seed, generator
from spo.runtime.torch_tuning import keep_freed_memory, threads_worth

COMPILE_FROM = 4000
"""Gradient steps from which a compiled update pays for its compilation (10 to 30 s once, then cached)."""


class Trainer:
    """A run in progress: everything that changes while it goes on."""

    def __init__(self, config: Config, make_env: EnvMaker):
        self.config, self.make_env = config, make_env
        self.iteration, self.wall_time, self.ratio_deviation_run_max = 0, 0.0, 0.0
        self.episodes_cut = 0
        self.ratios: dict[str, np.ndarray] | None = None  # of the newest iteration, where they are asked for
        self.ratio_sample: dict[str, np.ndarray] | None = (
            None  # likewise of some samples, where spo watch may want them
        )
        self.departures: list[str] = []  # why this run is not to the bit what an uninterrupted one would be
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
        self.torch_threads = min(cores, threads_worth(blank))
        self.threads = max(self.torch_threads, self.envs.stepping_threads) if self.backend == "gymnasium" else cores
        torch.set_num_threads(self.torch_threads)
        keep_freed_memory()
        self.network = self.spec.network(derived_seed(config.seed, "network")).to(_device(config.device))
        numbers = self.envs.layout.numbers
        self.observation_normalizer = ObservationNormalizer(config.normalize_observation, config.envs, numbers)
        if config.init_from:
            self._start_from(load_policy(config.init_from))
        self.parameters = FlatParameters(self.network)
        self.collector = self._collector()
        loss = make_loss(self.parameters, self.distribution, config, masked=self.collector.mask is not None)
        rule = TRPOUpdate if config.resolved_objective.trust_region else MinibatchUpdate
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
            raise SpoError(f"--init-from {self.config.init_from} holds a policy of another shape: {policy.spec}")
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

    def iterate(self) -> tuple[Row, list[Row]]:
        """One iteration: its metrics row, times aside, and the episodes that ended in it."""
        try:
            row, episodes = self._iterated()
        except SpoError as refusal:
            raise SpoError(f"{refusal}, in iteration {self.iteration + 1}") from refusal.__cause__
        self.iteration += 1
        if self.is_at_seam:
            self.episodes_cut += self.collector.seam()
        return {"iteration": self.iteration} | row | self._cut_episodes(), episodes

    def timed(self, row: Row, seconds: float) -> Row:
        self.wall_time += seconds
        return row | {"wall_time": self.wall_time, "steps_per_second": self.config.batch_size / seconds}

    def _iterated(self) -> tuple[Row, list[Row]]:
        config, learning_rate = self.config, self.config.learning_rate_at(self.iteration)
        rollout = self.collector.collect()
        batch = self.advantages(rollout)
        record = RatioRecord(self.improve.loss, batch) if self.iteration + 1 in config.record_ratios else None
        sampler = RatioSampler(config.batch_size) if self._samples_next_iteration() else None
        stats = self.improve(batch, learning_rate, record, sampler)
        self.ratios = record.arrays() if record else None
        self.ratio_sample = sampler.arrays(stats.get("epsilon", config.clip_range)) if sampler else None
        self._check_finite(stats)
        self.ratio_deviation_run_max = max(self.ratio_deviation_run_max, stats["ratio_deviation_max"])
        row = {
            "env_steps": self.collector.env_steps,
            "learning_rate": learning_rate,
            **stats,
            "tv": stats["ratio_deviation"] / 2,
            "ratio_deviation_run_max": self.ratio_deviation_run_max,
            "explained_variance": explained_variance(batch["old_value"], batch["value_target"]),
        }
        return row, [episode.as_row() for episode in rollout.episodes]

    def _samples_next_iteration(self) -> bool:
        every = self.config.watch_ratios
        return every > 0 and (self.iteration + 1) % every == 0

    def advantages(self, rollout: Rollout) -> Batch:
        """The rollout with its advantages, as one batch."""
        values = (rollout.reward, rollout.value, rollout.next_value, rollout.terminated, rollout.done)
        advantage = gae(*values, self.config.gamma, self.config.lam)
        return make_batch(rollout, advantage, self.distribution, self.config.device, self.improve.wants_successors)

    def _check_finite(self, stats: dict[str, float]) -> None:
        """No state that is not finite ever reaches a checkpoint."""
        for name, value in stats.items():
            if not math.isfinite(value):
                raise SpoError(f"training diverged: the {name.replace('_', ' ')} became {value}")
        adam = self.improve.epochs.adam
        tensors = {"parameters": self.parameters.vector, "first moments": adam.first, "second moments": adam.second}
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise SpoError(f"training diverged: {(~tensor.isfinite()).sum()} of the {name} are not finite")

    @property
    def rebuild_every(self) -> int | None:
        """Iterations between seams, for environments that can only be resumed there."""
        steps = self.envs.rebuild_after_steps
        return steps and math.ceil(steps / self.config.horizon)

    @property
    def is_at_seam(self) -> bool:
        """Whether the environments are made anew after this iteration; the last one always ends at a seam."""
        every = self.rebuild_every
        return every is not None and (self.iteration % every == 0 or self.iteration == self.config.iterations)

    @property
    def can_resume_here(self) -> bool:
        return self.rebuild_every is None or self.is_at_seam

    def _cut_episodes(self) -> Row:
        return {} if self.rebuild_every is None else {"episodes_cut": self.episodes_cut}

    def state(self) -> dict[str, object]:
        """A copy of everything that changes during training: what is not in here is a mistake."""
        return {
            "iteration": self.iteration,
            "wall_time": self.wall_time,
            "ratio_deviation_run_max": self.ratio_deviation_run_max,
            "episodes_cut": self.episodes_cut,
            "departures": list(self.departures),
            "parameters": self.parameters.vector.cpu().numpy().copy(),
            "improve": self.improve.state(),
            "collector": self.collector.state(),
        }

    def restore(self, state: dict) -> None:
        for name in ("iteration", "wall_time", "ratio_deviation_run_max", "episodes_cut"):
            setattr(self, name, state[name])
        self.parameters.vector.copy_(torch.from_numpy(state["parameters"]))
        self.improve.restore(state["improve"])
        failures = self.collector.restore(state["collector"])
        self.episodes_cut += len(failures)
        lost = [f"environment {index} started a new episode: {why}" for index, why in failures.items()]
        self.departures = [*state["departures"], *lost]


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


def _policy_spec(config: Config, envs: VecEnv) -> PolicySpec:
    spaces = (envs.observation_space, envs.action_space)
    layers = (config.hidden, config.critic_hidden, config.activation, config.encoder)
    distribution = resolve_distribution(envs.action_space, config.distribution)
    action_scale = resolve_action_scale(envs.action_space, distribution, config.action_scale)
    return PolicySpec(config.env, config.objective, *spaces, *layers, distribution, action_scale)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # the device "meta" has no numbers
        return device
    except (RuntimeError, AssertionError) as error:
        raise SpoError(f"--device {name} cannot be used here: {str(error).splitlines()[0]}")
