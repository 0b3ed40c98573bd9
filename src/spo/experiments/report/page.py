"""The report of a sweep: one page that needs nothing but itself, and its numbers as CSV. No torch, script or date."""

from collections import Counter
from importlib import resources
from pathlib import Path

from spo.errors import SpoError
from spo.experiments.answer import answer
from spo.experiments.figures.style import pyplot
from spo.experiments.report import agreement, outcomes, provenance, scores, verdict
from spo.experiments.report.markup import Html, element
from spo.experiments.results import Results, curves_csv
from spo.experiments.sweep import open_sweep_or_run
from spo.runtime.files import replace_file, translate_os_errors
from spo.runtime.formatting import plural

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Nothing is loaded, and nothing runs."""
MEANING = (
    "Ratio deviation says how far an update moved the policy away from the one that gathered its data: 0 is not at all,"
    " and at 0.2 the probabilities of the actions taken have changed by a fifth on average. Much of it is bad: what"
    " the update then maximises says little about the return, and learning may break down."
)
SECTIONS = {
    "results": ("Results", outcomes.outcome_section),
    "curves": ("Learning curves", outcomes.curve_section),
    "deviations": ("Ratio deviation", outcomes.deviation_section),
    "widths": ("Width", outcomes.width_section),
    "scores": ("Scores", scores.score_section),
    "verdict": ("Verdict", verdict.verdict_section),
    "paper": ("Agreement with the paper", agreement.agreement_section),
    "failures": ("Failures", provenance.failure_section),
    "settings": ("Settings", provenance.setting_section),
    "versions": ("Versions", provenance.version_section),
    "departures": ("Not bit-exact", provenance.inexact_section),
    "commands": ("Commands", provenance.command_section),
}


def make_report(directory: Path, out: Path | None = None) -> list[Path]:
    """Write the page (unset: report.html in the directory), and results.csv and curves.csv beside it."""
    out = out or directory / "report.html"
    return write_report(read_for_report(directory, out), out)


def read_for_report(directory: Path, out: Path) -> Results:
    """What a directory holds; that no page can be made of it there is told before anything is read."""
    if out.suffix not in (".html", ".htm"):
        raise SpoError(f"--out {out} is not accepted: it must be a file that ends in .html")
    pyplot()  # a missing package
    return Results(open_sweep_or_run(directory))


def write_report(results: Results, out: Path) -> list[Path]:
    """Write the page, and the tables beside it."""
    tables = {"results.csv": results.csv(), "curves.csv": curves_csv(results)}
    contents = {out: page(results)} | {out.with_name(name): text for name, text in tables.items()}
    with translate_os_errors(f"--out {out}"):
        out.parent.mkdir(parents=True, exist_ok=True)
        for path, text in contents.items():
            replace_file(path, text.encode("utf-8", "backslashreplace"), durable=False)
    return list(contents)


def page(results: Results) -> str:
    """The same sweep gives the same text."""
    sections = {anchor: make(results) for anchor, (_, make) in SECTIONS.items()}
    links = [element("a", SECTIONS[anchor][0], href=f"#{anchor}") for anchor, part in sections.items() if part]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", results.plan.title),
        element("style", Html(resources.files("spo.experiments.report").joinpath("report.css").read_text())),
    )
    main = element("main", *sections.values())
    nav = element("nav", *links, aria_label="Contents")
    return "<!doctype html>\n" + element("html", head, element("body", heading(results), nav, main), lang="en") + "\n"


def heading(results: Results) -> Html:
    """What this is, in what it is less than it claims to be, and how far it got."""
    plan = results.plan
    parts = [element("h1", plan.title), headline(results), element("p", describe_plan(results), class_="source")]
    if plan.note:
        parts.append(element("p", plan.note, class_="label"))
    parts.append(_state(results))
    if results.origin:
        parts.append(
            element("p", f"Read from {results.origin}; the numbers of runs are at full precision.", class_="source")
        )
    parts += [
        element("p", words, " ", element("a", "See which.", href=f"#{to}"), class_="caution")
        for words, to in _cautions(results)
    ]
    return element("header", *parts)


def headline(results: Results) -> Html:
    """The answer, and what the second measure means."""
    answers = [element("p", sentence, class_="answer") for sentence in answer(results)]
    return element("div", *answers, element("p", MEANING, class_="caption"))


def describe_plan(results: Results) -> str:
    """What was run, and whose question it was."""
    plan = results.plan
    where = plan.tasks[0] if len(plan.tasks) == 1 else plural(len(plan.tasks), "task")
    size = f"{plural(len(plan.variants), 'variant')} on {where}, {plan.steps:,} environment steps"
    return f"{size}, {plural(plan.seeds, 'seed')} each; {plan.source}."


def _state(results: Results) -> Html:
    total = plural(len(results.runs), "run")
    if results.is_complete():
        words = f"all {total} are" if len(results.runs) > 1 else "the run is"
        return element("p", f"Complete: {words} finished.", class_="complete")
    counts = Counter(run.state for run in results.runs.values())
    others = ", ".join(f"{count} {state}" for state, count in counts.items() if state != "finished")
    text = f"Not complete: {counts['finished']} of {total} are finished; {others}."
    return element("p", text, " ", element("a", "Why.", href="#failures"), class_="caution")


def _cautions(results: Results) -> list[tuple[str, str]]:
    """Sentences that a reader must not miss, and the section of each."""
    mixed, departed = provenance.mixtures(results), [run for run in results.runs.values() if run.inexact_reasons]
    found = [(f"The runs are a mixture. Not the same in all of them: {', '.join(mixed)}.", "versions")] if mixed else []
    if departed:
        words = f"{plural(len(departed), 'run')} departed from what, to the bit, an uninterrupted run would be."
        found.append((words, "departures"))
    return found
