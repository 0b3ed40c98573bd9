"""Command lines that make what is there, or what is missing."""

import shlex
from collections.abc import Iterable, Mapping

from spo.experiments.plan import Plan, SingleRun, read_suite, suite_names


def sweep_command(plan: Plan, out: str) -> str:
    """The command that makes the sweep; nothing where no command line can say it."""
    if plan.suite in suite_names():
        return shlex.join(["spo", "bench", plan.suite, *_restriction_flags(plan), "--out", out])
    own = [set(settings) - {"label", "objective"} for settings in plan.variants.values()]
    if plan.whole or any(own) or isinstance(plan, SingleRun):
        return ""
    objectives = [str(settings.get("objective", name)) for name, settings in plan.variants.items()]
    sizes = ["--objectives", *objectives, "--seeds", str(plan.seeds), "--steps", str(plan.steps)]
    preset = ["--preset", plan.preset] if plan.preset else []
    return shlex.join(["spo", "compare", *plan.tasks, *sizes, *preset, *_flags(plan.settings), "--out", out])


def _restriction_flags(plan: Plan) -> Iterable[str]:
    full = read_suite(plan.suite)
    for name in ("steps", "seeds"):
        if getattr(plan, name) != getattr(full, name):
            yield from (f"--{name}", str(getattr(plan, name)))
    for name in ("tasks", "variants"):
        if list(getattr(plan, name)) != list(getattr(full, name)):
            yield from (f"--{name}", *getattr(plan, name))


def _flags(settings: Mapping[str, object]) -> Iterable[str]:
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        elif isinstance(value, Mapping):
            yield from (f"--{flag}", *(f"{key}={item}" for key, item in value.items()))
        elif isinstance(value, list | tuple):
            yield from (f"--{flag}", *map(str, value))
        elif value is not None:
            yield from (f"--{flag}", str(value))
