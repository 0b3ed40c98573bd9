"""What the study `width` says about each rule."""

from spo.experiments.report.markup import Html, element, interval, join, label, section, table
from spo.experiments.results import Results
from spo.experiments.verdict import BASES, DEPTHS, MARGIN, SUITE, Standing, conclusion, verdicts

CRITERION = (
    "Lead: the rule’s IQM minus the higher of PPO’s and SPO’s at the same depth, in scores normalised as above, with"
    " its 95\u00a0% bootstrap interval. The criterion, written before the runs were made: with all seeds, at both"
    f" depths, the interval lies above −{MARGIN} and a run of the rule is at least as likely as not to beat one of PPO,"
    " and one of SPO. All rules are judged by the same runs, so one of several may pass by chance. "
)


def verdict_section(results: Results) -> Html:
    """Nothing where the sweep is not that study."""
    if results.plan.suite != SUITE:
        return Html()
    found = verdicts(results)
    measures = ("lead", *(f"beats {base.upper()}" for base in BASES))
    columns = [f"{depth} layers: {measure}" for depth in DEPTHS for measure in measures]
    rows = [
        [rule, *(cell for depth in DEPTHS for cell in _cells(verdict.standings.get(depth))), verdict.words]
        for rule, verdict in found.items()
    ]
    caption = join([CRITERION, label(results.plan.note)])
    summary = element("p", conclusion(found).capitalize(), ".")
    return section("verdict", "Verdict", summary, table(["rule", *columns, "verdict"], rows, caption, class_="verdict"))


def _cells(standing: Standing | None) -> list[object]:
    if standing is None:
        return ["–"] * (1 + len(BASES))
    return [interval(standing.lead, "{:+.2f}"), *(interval(standing.better[base], "{:.0%}") for base in BASES)]
