"""What a reader wants to know first."""

from spo.experiments.answer import answer
from spo.experiments.report.markup import Html, element
from spo.experiments.results import Results

MEANING = (
    "Ratio deviation says how far an update moved the policy away from the one that gathered its data: 0 is not at all,"
    " and at 0.2 the probabilities of the actions taken have changed by a fifth on average. Much of it is bad: what"
    " the update then maximises says little about the return, and learning may break down."
)


def headline(results: Results) -> Html:
    """The answer, and what the second measure means."""
    return element("div", element("p", answer(results), class_="answer"), element("p", MEANING, class_="caption"))
