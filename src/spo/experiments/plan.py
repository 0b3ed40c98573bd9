"""What is run, of the paper or our own: suites as data, the TOML files in suites/."""

import dataclasses
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from spo.config.fields import parse_steps
from spo.errors import ConfigError, SpoError, suggest
from spo.runtime.files import read_bounded

if TYPE_CHECKING:
    from spo.config.config import Config

MOST_SEEDS = 10_000
LARGEST_SUITE = 1_000_000
"""Bytes of a suite's file."""
NAMED = ("tasks", "variants")
"""What of a plan is counted by its names."""
OF_ONE_RUN = {
    "env": "tasks names the environments",
    "seed": "--seeds says how many there are, from 1",
    "steps": "all runs have the same, which stand above all settings",
    "threads": "each run has one thread, and --jobs says how many run at once",
    "quiet": "each run prints into an output.txt of its own",
    "out": "--out of the command names the directory of all runs",
    "config": "settings stand in the suite itself",
}
"""Settings that are not for all runs, or a variant, to have; and what says instead what they would."""
COMPARISON = "a comparison of one’s own"
"""The source of a plan whose title names its tasks and variants."""
EARLIER_KEYS = {"last": "final_fraction", "normalizes": "baseline", "reduced": "reductions"}
"""Keys of plans on disk that were written under other names."""


class Cell(NamedTuple):
    """One run of a plan."""

    task: str
    variant: str
    seed: int

    def __str__(self) -> str:
        return f"{self.task} · {self.variant} · seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """What is run: tasks × variants × seeds, and in what it is less than its suite asks for."""

    suite: str
    title: str
    source: str
    preset: str | None
    steps: int
    seeds: int
    tasks: tuple[str, ...]
    variants: Mapping[str, Mapping[str, object]]  # by name: its label and the settings that make it what it is
    final_fraction: float = 0.1  # the share of the steps, at the end, that a return is taken over
    baseline: str | None = None  # the variant whose returns during training are the scale of scores
    settings: Mapping[str, object] = field(default_factory=dict)
    paper: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    reductions: tuple[str, ...] = ()
    extra: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # a suite's variants that run only if named
    whole: Mapping[str, int] = field(default_factory=dict)  # the sizes of one's own suite, of which this is a part

    def cells(self) -> list[Cell]:
        """Seed by seed, so that whatever there is time for is spread over all tasks and variants."""
        seeds = range(1, self.seeds + 1)
        return [Cell(task, variant, seed) for seed in seeds for task in self.tasks for variant in self.variants]

    def label(self, variant: str) -> str:
        return str(self.variants[variant].get("label", variant))

    def config(self, cell: Cell, out: Path | None = None) -> "Config":
        """The settings of one run: single-threaded and quiet, because one runs per core."""
        from spo.config.sources import make_config

        own = {name: value for name, value in self.variants[cell.variant].items() if name != "label"}
        common = {"seed": cell.seed, "steps": self.steps, "threads": 1, "quiet": True, "out": str(out) if out else None}
        return make_config(cell.task, **{"preset": self.preset} | dict(self.settings) | own | common)

    def as_json(self) -> dict[str, object]:
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "extra"}

    @property
    def note(self) -> str:
        """What every table and figure of a reduced plan says."""
        return f"reduced: {', '.join(self.reductions)}" if self.reductions else ""


@dataclass(frozen=True)
class SingleRun(Plan):
    """The plan of one run that is part of no sweep."""

    seed: int = 1

    def cells(self) -> list[Cell]:
        """The run, whatever its seed."""
        return [Cell(self.tasks[0], next(iter(self.variants)), self.seed)]


def suite_names() -> list[str]:
    return sorted(file.name.removesuffix(".toml") for file in _files() if file.name.endswith(".toml"))


def _files() -> Iterator:
    return resources.files("spo.experiments").joinpath("suites").iterdir()


def read_suite(name: str) -> Plan:
    """A suite of the project by its name, or one's own by its file."""
    if name.endswith(".toml"):
        return read_own_suite(Path(name))
    if name not in suite_names():
        accepted = f"{', '.join(suite_names())}, or a file that ends in .toml"
        raise SpoError(f"suite {name!r} is unknown{suggest(name, suite_names())}; accepted: {accepted}")
    return plan_from(
        tomllib.loads(resources.files("spo.experiments").joinpath("suites", f"{name}.toml").read_text()), name
    )


def read_own_suite(path: Path) -> Plan:
    """A suite from a TOML file: tasks, steps and variants, and what else a plan has if wanted."""
    try:
        values = tomllib.loads(read_bounded(path, LARGEST_SUITE).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"suite {path} cannot be read as TOML: {error}")
    if path.stem in suite_names():
        raise ConfigError(f"suite {path} has the name of a suite of the project; name the file otherwise")
    try:
        usual = {"title": path.stem, "source": "a suite of one’s own", "preset": None, "seeds": 1}
        fixed = {"suite": path.stem, "steps": parse_steps(str(values["steps"]))}
        plan = plan_from(usual | values | fixed, path.stem)
        check_plan(plan)
        check_seeds(plan.seeds)
        _check_settings(plan, path)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ConfigError(f"suite {path} is not a plan of tasks, steps and variants: {reason}")
    return dataclasses.replace(plan, whole=_sizes(vars(plan)))


def _check_settings(plan: Plan, path: Path) -> None:
    """Refuse what every run has from elsewhere, and would not take from here."""
    variants = dict(plan.variants) | dict(plan.extra)
    places = {"settings": plan.settings} | {f"variants.{name}": own for name, own in variants.items()}
    for place, settings in places.items():
        for name in settings.keys() & OF_ONE_RUN.keys():
            raise ConfigError(f"suite {path} is not accepted: {name} stands in [{place}]; {OF_ONE_RUN[name]}")


def check_plan(plan: Plan) -> None:
    """A plan that is read may hold anything; what uses it should not have to ask."""
    numbers = [number for row in plan.paper.values() for first, second in row.values() for number in (first, second)]
    texts = [plan.suite, plan.title, plan.source, *plan.tasks, *plan.variants, *plan.reductions]
    kinds = [
        ("text", str, texts),
        ("a whole number", int, [plan.steps, plan.seeds, *plan.whole.values()]),
        ("a number", int | float, [plan.final_fraction, *numbers]),
        ("a table", Mapping, [plan.settings, plan.extra, *plan.variants.values()]),
    ]
    for words, kind, values in kinds:
        for value in values:
            if not isinstance(value, kind):
                raise TypeError(f"{value!r} stands where {words} is needed")
    if not plan.tasks or not plan.variants or not 0 < plan.final_fraction <= 1:
        raise ValueError("a plan has tasks, variants, and a final_fraction above 0 and at most 1")
    if len(set(plan.tasks)) < len(plan.tasks):
        raise ValueError(f"tasks {', '.join(plan.tasks)} are not each named once")
    if plan.baseline not in (None, *plan.variants):
        raise ValueError(f"baseline {plan.baseline!r} is none of its variants")


def plan_from(values: Mapping[str, object], name: str) -> Plan:
    """A plan from the table of a suite or of a plan.json, whose keys may have their earlier names."""
    if isinstance(values["tasks"], str):
        raise TypeError(f"{values['tasks']!r} stands where a list of tasks is needed")
    renamed = {EARLIER_KEYS.get(key, key): value for key, value in values.items()}
    return Plan(**{"suite": name} | renamed | {"tasks": tuple(values["tasks"])})


def restrict(
    plan: Plan,
    scale: float | None = None,
    steps: str | None = None,
    seeds: int | None = None,
    tasks: tuple[str, ...] = (),
    variants: tuple[str, ...] = (),
) -> Plan:
    """A part of a plan, which says in what it is less."""
    if scale is not None and steps is not None:
        raise SpoError(f"--scale {scale} and --steps {steps} exclude each other")
    if scale is not None and not 0 < scale <= 1:
        raise SpoError(f"--scale {scale} is not accepted: it must be a number above 0 and at most 1")
    if seeds is not None:
        check_seeds(seeds)
    new = {
        "steps": parse_steps(steps) if steps else int(plan.steps * (scale or 1)),
        "seeds": seeds or plan.seeds,
        "tasks": _choose("--tasks", tasks, plan.tasks),
        "variants": _choose_variants(plan, variants),
    }
    if plan.baseline not in new["variants"]:
        new["baseline"] = None
    part = dataclasses.replace(plan, **new, extra={}, reductions=_reductions(plan, new))
    if scale is not None:
        _check_scale(scale, part, plan)
    return part


def _check_scale(scale: float, part: Plan, whole: Plan) -> None:
    """Refuse a share of the steps that is too short for a run, in terms of the share."""
    long = dataclasses.replace(part, steps=whole.steps)
    least = max(long.config(cell).batch_size for cell in long.cells() if cell.seed == 1)
    if part.steps < least:
        left = f"it leaves {part.steps:,} of {whole.steps:,} steps"
        raise SpoError(f"--scale {scale:g} is not accepted: {left}, less than one iteration of {least:,}")


def narrow(plan: Plan, tasks: tuple[str, ...], variants: tuple[str, ...]) -> Plan:
    """The part of what was run with these tasks and variants; a part of a suite says in what it is less than that."""
    if not tasks and not variants:
        return plan
    kept = {name: plan.variants[name] for name in _choose("--variants", variants, tuple(plan.variants))}
    baseline = plan.baseline if plan.baseline in kept else None
    part = dataclasses.replace(plan, tasks=_choose("--tasks", tasks, plan.tasks), variants=kept, baseline=baseline)
    return _fit_to_suite(part)


def _choose_variants(plan: Plan, wanted: tuple[str, ...]) -> dict[str, Mapping[str, object]]:
    """Those that are named, or all but the extra ones."""
    known = dict(plan.variants) | dict(plan.extra)
    return {name: known[name] for name in _choose("--variants", wanted or tuple(plan.variants), tuple(known))}


def check_seeds(seeds: int) -> None:
    if not 1 <= seeds <= MOST_SEEDS:
        raise SpoError(f"--seeds {seeds} is not accepted: it must be a whole number from 1 to {MOST_SEEDS}")


def check_length(config: "Config") -> None:
    """Refuse runs that may end before the others."""
    if config.stop_at is not None:
        raise ConfigError(f"--stop-at {config.stop_at:g} is not accepted here: runs that are compared have one length")


def _choose(flag: str, wanted: tuple[str, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    for name in wanted:
        if name not in known:
            raise SpoError(f"{flag} {name} is not in this suite; accepted: {', '.join(known)}")
    return tuple(name for name in known if name in wanted) if wanted else known


def _reductions(plan: Plan, new: Mapping) -> tuple[str, ...]:
    known = {name: own for name, own in new["variants"].items() if name in plan.variants}
    return _differences(_sizes({**new, "variants": known}), _sizes(vars(plan)))


def _sizes(values: Mapping) -> dict[str, int]:
    return {name: values[name] for name in ("steps", "seeds")} | {name: len(values[name]) for name in NAMED}


def _differences(sizes: Mapping[str, int], whole: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(f"{sizes[what]:,} of {full:,} {what}" for what, full in whole.items() if sizes[what] < full)


def path_component(name: str) -> str:
    """A name as one visible part of a path, another for every other name."""
    quoted = quote(name, safe="", errors="surrogatepass")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted or "%"


def merge(old: Plan, new: Plan, where: str) -> Plan:
    """Both plans' tasks, variants and seeds, if all else is the same."""
    fixed = ("suite", "steps", "preset", "settings", "final_fraction")
    for name in fixed:
        if getattr(old, name) != getattr(new, name):
            was, now = getattr(old, name), getattr(new, name)
            raise SpoError(f"{where} holds runs with {name} {was}, not {now}; name another directory")
    for name in set(old.variants) & set(new.variants):
        if old.variants[name] != new.variants[name]:
            raise SpoError(f"{where} holds another variant {name}; name another directory")
    tasks = tuple(dict.fromkeys((*old.tasks, *new.tasks)))
    variants = dict(old.variants) | dict(new.variants)
    merged = dataclasses.replace(
        new,
        tasks=tasks,
        variants=variants,
        seeds=max(old.seeds, new.seeds),
        baseline=old.baseline or new.baseline,
    )
    return _fit_to_suite(merged)


def make_title(tasks: Iterable[str], variants: Iterable[str]) -> str:
    """The title of what no suite has given one."""
    return f"{', '.join(tasks)}: {', '.join(variants)}"


def _fit_to_suite(plan: Plan) -> Plan:
    """Tasks and variants in the suite's order, however late they were named, and in what the plan is less."""
    if plan.suite not in suite_names():
        title = make_title(plan.tasks, plan.variants) if plan.source == COMPARISON else plan.title
        return dataclasses.replace(plan, title=title, reductions=_differences(_sizes(vars(plan)), plan.whole))
    suite = read_suite(plan.suite)
    tasks = tuple(_sort_like(plan.tasks, suite.tasks))
    variants = {name: plan.variants[name] for name in _sort_like(plan.variants, suite.variants)}
    now = {"steps": plan.steps, "seeds": plan.seeds, "tasks": tasks, "variants": variants}
    return dataclasses.replace(plan, tasks=tasks, variants=variants, reductions=_reductions(suite, now))


def _sort_like(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """Those that are known first, as they are known."""
    named = list(names)
    return [name for name in known if name in named] + [name for name in named if name not in known]
