"""Where the numbers come from: failures, settings, versions, exactness, commands."""

import shlex
from collections.abc import Mapping

from spo.experiments.command_lines import sweep_command
from spo.experiments.plan import Cell, Plan
from spo.experiments.report.markup import Html, element, section, table
from spo.experiments.results import Result, Results
from spo.runtime.formatting import plural

NOT_SETTINGS = ("env", "seed", "out", "config", "quiet")
"""What differs from run to run by intention, or has no part in what a run comes to."""
UNSET = "default"
"""How a setting reads that nobody has set."""


def failure_section(results: Results) -> Html:
    """Nothing where every run has a return."""
    pairs = [(task, variant) for task in results.plan.tasks for variant in results.plan.variants]
    runs = [run for pair in pairs for run in results.runs_of(*pair) if not run.has_return]
    if not runs:
        return Html()
    rows = [[str(run.cell), run.state, _progress(run), run.failure_reason or "–"] for run in runs]
    return section("failures", "Failed and unfinished runs", table(["run", "state", "steps", "reason"], rows))


def _progress(run: Result) -> str:
    steps = run.status.get("env_steps")
    return f"{steps:,}" if isinstance(steps, int) else "–"


# Settings


def setting_section(results: Results) -> Html:
    """Common to all runs, and of each variant, as the runs recorded them."""
    plan = results.plan
    values = {variant: _values(results, variant) for variant in plan.variants}
    begun = [own for own in values.values() if own]
    names = sorted({name for own in begun for name in own})
    common = {name: begun[0][name] for name in names if len({own.get(name) for own in begun}) == 1}
    own = [name for name in names if name not in common]
    common = {name: value for name, value in common.items() if value != UNSET}  # mostly those of other objectives
    parts = [element("p", _length(plan))]
    if own:
        rows = [[plan.label(variant), *(found.get(name, "–") for name in own)] for variant, found in values.items()]
        parts.append(table(["variant", *own], rows, "What differs between the variants."))
    pairs = [element("div", element("dt", name), element("dd", value)) for name, value in common.items()]
    everything = element(
        "details", element("summary", f"{plural(len(common), 'setting')} that all runs share"), element("dl", *pairs)
    )
    return section("settings", "Settings", *parts, everything if common else element("p", "No run has begun."))


def _length(plan: Plan) -> str:
    sizes = [plural(len(plan.tasks), "task"), plural(len(plan.variants), "variant"), plural(plan.seeds, "seed")]
    return f"{' × '.join(sizes)}, {plan.steps:,} environment steps each; preset {plan.preset or 'of each environment'}."


def _values(results: Results, variant: str) -> dict[str, str]:
    """Each setting of a variant's runs in words; more than one value is a mixture."""
    found: dict[str, dict[str, None]] = {}
    for run in (run for task in results.plan.tasks for run in results.runs_of(task, variant) if run.config):
        own = run.config["resolved"].get("objective_settings")
        for name, value in (run.config["settings"] | (own if isinstance(own, Mapping) else {})).items():
            if name not in NOT_SETTINGS:
                found.setdefault(name, {})[_words(value)] = None
    return {name: " | ".join(texts) for name, texts in found.items()}


def _words(value: object) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items()) or "none"
    return {None: UNSET, True: "yes", False: "no"}[value] if value is None or isinstance(value, bool) else str(value)


# Versions and exactness


def version_section(results: Results) -> Html:
    """Every version and machine; a mixture is marked, with the runs of each."""
    rows = []
    for name, values in (results.versions() | results.circumstances()).items():
        if len(values) == 1:
            rows.append([name, next(iter(values))])
        else:
            lines = [element("div", element("b", value), f": {_runs(cells)}") for value, cells in values.items()]
            rows.append([name, element("td", element("b", "mixed"), *lines, class_="caution")])
    content = table(["", "version or value"], rows) if rows else element("p", "No run has begun.")
    return section("versions", "Versions and machines", content)


def mixtures(results: Results) -> list[str]:
    """What is not the same in all runs though a comparison wants it so."""
    return [name for name, values in (results.versions() | results.circumstances()).items() if len(values) > 1]


def _runs(cells: list[Cell], most: int = 6) -> str:
    more = f" and {len(cells) - most} more" if len(cells) > most else ""
    return f"{plural(len(cells), 'run')} ({'; '.join(map(str, cells[:most]))}{more})"


def inexact_section(results: Results) -> Html:
    """Nothing where every run is to the bit what an uninterrupted one would be."""
    departed = [run for run in results.runs.values() if run.inexact_reasons]
    rows = [[str(run.cell), "; ".join(run.inexact_reasons)] for run in departed]
    content = table(["run", "how it differs from an uninterrupted one"], rows)
    return section("departures", "Runs that are not bit-exact", content) if rows else Html()


# Commands


def command_section(results: Results) -> Html:
    plan = results.plan
    whole = sweep_command(plan, results.sweep.path.resolve().name)
    first = [element("p", "The whole:"), element("pre", whole)] if whole else []
    lines = [_train_command(results, run) for run in results.runs.values() if run.config]
    summary = element("summary", f"A command for each of the {plural(len(lines), 'run')}, in the sweep’s directory")
    runs = [element("details", summary, element("pre", "\n".join(lines)))] if lines else []
    return section("commands", "Commands", *first, *runs)


def _train_command(results: Results, run: Result) -> str:
    path = run.directory.config.relative_to(results.sweep.path)
    return shlex.join(["spo", "train", run.cell.task, "--config", str(path)])
