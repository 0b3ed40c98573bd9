"""What a reader wants to know first."""

from spo.experiments.answer import compare_returns, judge_deviations
from spo.experiments.report.markup import Html, element
from spo.experiments.results import Results

MEANING = (
    "Ratio deviation says how far an update moved the policy away from the one that gathered its data: 0 is not at all,"
    " and at 0.2 the probabilities of the actions taken have changed by a fifth on average. Much of it is bad: what"
    " the update then maximises says little about the return, and learning may break down."
)


def headline(results: Results) -> Html:
    """The answer, and what the second measure means."""
    sentences = filter(None, [compare_returns(results), judge_deviations(results)])
    answers = [element("p", sentence, class_="answer") for sentence in sentences]
    return element("div", *answers, element("p", MEANING, class_="caption"))
