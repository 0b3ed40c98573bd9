"""Where the time of a run goes: a clock around each part, for `--profile` alone."""

import time
from collections.abc import Callable

from spo.runs.recorder import Recorder
from spo.trainer import Trainer

PARTS = ("stepping", "acting", "normalising", "advantage", "update", "logging", "checkpoint")
UNNAMED = "the rest"


class Profile:
    """Seconds spent in each part; what is called within a part counts for the outer one alone."""

    def __init__(self):
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self.is_inside = False
        self.started = time.perf_counter()

    def around(self, part: str, function: Callable) -> Callable:
        def timed(*arguments, **keywords):
            if self.is_inside:
                return function(*arguments, **keywords)
            self.is_inside, started = True, time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                self.is_inside = False
                self.seconds[part] += time.perf_counter() - started

        return timed

    def shares(self) -> dict[str, float]:
        """Of all the time since the start, in the order of the parts."""
        total = time.perf_counter() - self.started
        shares = {part: seconds / total for part, seconds in self.seconds.items()}
        return shares | {UNNAMED: max(0.0, 1 - sum(shares.values()))}


class Timed:
    """An object that is called, under a clock; all else of it is as it was."""

    def __init__(self, thing: Callable, profile: Profile, part: str, methods: tuple[str, ...] = ()):
        self._thing, self._call = thing, profile.around(part, thing)
        for name in methods:
            setattr(self, name, profile.around(part, getattr(thing, name)))

    def __call__(self, *arguments, **keywords):
        return self._call(*arguments, **keywords)

    def __getattr__(self, name: str):
        return getattr(self._thing, name)


def profiled(training: Trainer, recorder: Recorder) -> Profile:
    """Puts a clock around every part of a run that is about to start."""
    profile, collector = Profile(), training.collector
    collector.envs.step = profile.around("stepping", collector.envs.step)
    collector.actor = Timed(collector.actor, profile, "acting", ("value",))
    observation = collector.observation_normalizer
    collector.observation_normalizer = Timed(observation, profile, "normalising", ("update",))
    collector.reward_normalizer = Timed(collector.reward_normalizer, profile, "normalising")
    training.advantages = profile.around("advantage", training.advantages)
    training.improve = Timed(training.improve, profile, "update")
    recorder.checkpoint = profile.around("checkpoint", recorder.checkpoint)
    for sink in recorder.sinks:
        sink.write = profile.around("logging", sink.write)
    return profile


def table(profile: Profile, training: Trainer) -> str:
    """The shares, largest first, and the one change that would help most."""
    shares = dict(sorted(profile.shares().items(), key=lambda item: -item[1]))
    rows = [f"  {part:12} {share:6.1%}" for part, share in shares.items()]
    return "\n".join(["where the time went", *rows, f"what would help most: {advice(next(iter(shares)), training)}"])


def advice(part: str, training: Trainer) -> str:
    """By rule, from the part that takes most."""
    config = training.config
    if part == "stepping":
        return _faster_stepping(training)
    if part == "update":
        is_eager = training.improve.epochs.step == training.improve.epochs.stepper.__call__
        return "--compile on" if is_eager else f"fewer --epochs than {config.epochs}, or smaller layers"
    if part in ("acting", "normalising", UNNAMED):
        return f"more --envs than {config.envs}: their cost is per step, not per environment"
    if part == "logging":
        return "no --tensorboard" if config.tensorboard else "a faster disk for the run directory"
    if part == "checkpoint":
        return f"a larger --checkpoint-every than {config.checkpoint_every}"
    return f"a longer --horizon than {config.horizon}, with fewer --envs"


def _faster_stepping(training: Trainer) -> str:
    if training.backend == "gymnasium" and not training.envs.can_use_threads:
        return "--backend shared with --threads 2 or more, or --backend envpool, if it has the task"
    if training.backend == "process":
        return "a cheaper environment, or more cores"
    return f"more --threads than {training.threads}, up to the cores that are free"
