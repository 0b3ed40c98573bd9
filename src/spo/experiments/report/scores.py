"""Scores over all tasks, with intervals as numbers and as lines."""

from spo.experiments import statistics
from spo.experiments.report.markup import Html, element, interval, join, label, section, table
from spo.experiments.results import Results
from spo.experiments.scores import Comparison, compare_variants
from spo.experiments.statistics import Interval
from spo.runtime.formatting import plural

STATISTICS = {"median": "median", "iqm": "IQM", "mean": "mean", "optimality_gap": "optimality gap (lower is better)"}
ENOUGH_SEEDS = 10
COVERAGE = (
    "On synthetic, skewed scores of six tasks such 95\u00a0% intervals of the IQM held the true value in 93\u00a0% of"
    " the cases with 10 seeds, in 90\u00a0% with 5 and in 88\u00a0% with 3."
)


def score_section(results: Results) -> Html:
    """Nothing where no variant is there to normalise by, or where one task makes all aggregates the same."""
    if not results.plan.baseline or len(results.plan.tasks) == 1:
        return Html()
    comparison = compare_variants(results)
    parts = [element("p", "No task has returns of all variants.")]
    if comparison.tasks:
        parts = [f(results, comparison) for f in (_pooled_scores, _caution, _per_seed_scores)]
    notes = [element("p", f"Left out: {sentence}.", class_="trouble") for sentence in comparison.left_out]
    return section("scores", "Scores over all tasks", *parts, *notes)


def _pooled_scores(results: Results, comparison: Comparison) -> Html:
    base = results.plan.label(results.plan.baseline)
    words = (
        f"Scores over {plural(len(comparison.tasks), 'task')}: 0 is the lowest and 1 the highest mean return of an"
        f" iteration of {base} in training, of all its seeds together. Brackets: 95\u00a0% intervals of a stratified"
        f" bootstrap over the seeds. Last column: how likely a run is better than one of {base}. "
    )
    improvement = comparison.improvement()
    better = [improvement.get(variant) for variant in comparison.returns]
    chances = [_bar(found, [Interval(0.5, 0, 1)], "{:.0%}") if found else "–" for found in better]
    rows = [[*row, chance] for row, chance in zip(_score_rows(results, comparison, "pooled"), chances)]
    head = ["variant", *STATISTICS.values(), f"better than {base}"]
    return table(head, rows, join([words, label(results.plan.note)]), class_="scores")


def _per_seed_scores(results: Results, comparison: Comparison) -> Html:
    base = results.plan.label(results.plan.baseline)
    words = (
        f"The same with the extremes of each seed of {base}, averaged over its seeds: how much that choice matters. "
    )
    caption = join([words, label(results.plan.note)])
    return table(
        ["variant", *STATISTICS.values()], _score_rows(results, comparison, "per-seed"), caption, class_="scores"
    )


def _caution(results: Results, comparison: Comparison) -> Html:
    seeds = min(comparison.seed_counts)
    if seeds >= ENOUGH_SEEDS:
        return Html()
    words = f"There are tasks with {plural(seeds, 'seed')} only: intervals from so few are too narrow. {COVERAGE}"
    return element("p", words, class_="caution")


def _score_rows(results: Results, comparison: Comparison, seeds: str) -> list[list[object]]:
    intervals = {variant: statistics.aggregates(own) for variant, own in comparison.scores(seeds).items()}
    columns = {name: [own[name] for own in intervals.values()] for name in STATISTICS}
    return [
        [results.plan.label(variant), *(_bar(own[name], columns[name]) for name in STATISTICS)]
        for variant, own in intervals.items()
    ]


def _bar(found: Interval, column: list[Interval], form: str = "{:.2f}") -> Html:
    """The numbers, and the interval as a line on the scale of its column."""
    ends, text = [found.value, found.low, found.high], element("div", interval(found, form))
    first, last = min(other.low for other in column), max(other.high for other in column)
    middle, start, end = (f"{5 + 90 * (end - first) / (last - first or 1):.1f}" for end in ends)
    line, point = element("line", x1=start, x2=end, y1=4, y2=4), element("circle", cx=middle, cy=4, r=3)
    return join([text, element("svg", line, point, viewBox="0 0 100 8", aria_hidden="true")])
