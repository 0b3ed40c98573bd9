"""What `--profile` prints: where the time of a run went, and what would help most."""

from spo.runtime.timing import UNNAMED
from spo.trainer import COMPILE_FROM, Trainer


def table(trainer: Trainer) -> str:
    """The shares, largest first, and the one change that would help most."""
    shares = dict(sorted(trainer.timer.shares().items(), key=lambda item: -item[1]))
    rows = [f"  {part:12} {share:6.1%}" for part, share in shares.items()]
    return "\n".join(["where the time went", *rows, f"what would help most: {advice(next(iter(shares)), trainer)}"])


def advice(part: str, trainer: Trainer) -> str:
    """The change that makes the slowest part faster."""
    config = trainer.config
    if part == "stepping":
        return _faster_stepping(trainer)
    if part == "update":
        is_eager = trainer.update.epochs.step == trainer.update.epochs.stepper.__call__
        would_pay = is_eager and config.gradient_steps >= COMPILE_FROM
        return "--compile on" if would_pay else f"fewer --epochs than {config.epochs}, or smaller layers"
    if part in ("acting", "normalising", UNNAMED):
        return f"more --envs than {config.envs}: their cost is per step, not per environment"
    if part == "logging":
        return "no --tensorboard" if config.tensorboard else "a faster disk for the run directory"
    if part == "checkpoint":
        return f"a larger --checkpoint-every than {config.checkpoint_every}"
    return f"a longer --horizon than {config.horizon}, with fewer --envs"


def _faster_stepping(trainer: Trainer) -> str:
    if trainer.backend == "gymnasium" and not trainer.envs.can_use_threads:
        return "--backend shared with --threads 2 or more, or --backend envpool, if it has the task"
    if trainer.backend == "process":
        return "a cheaper environment, or more cores"
    return f"more --threads than {trainer.threads}, up to the cores that are free"
