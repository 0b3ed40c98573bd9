"""Which of the paper's effects the sweep shows again, and which it does not."""

from spo.experiments.agreement import Comparison, Effect, comparisons
from spo.experiments.report.markup import Html, element, join, label, number, section, table
from spo.experiments.results import Results
from spo.runtime.formatting import plural, with_sign

TITLE = "What agrees with the paper"
RULE = (
    "The rule: SPO minus PPO, with all else equal, has the sign that it has in the paper. Sizes are not compared:"
    " returns at another length or of other seeds are other numbers. Brackets: Welch’s 95\u00a0% interval of our"
    " difference; where it holds 0, or there is one seed, our own sign is not sure. "
)
HEAD = ("task", "difference", "return: ours", "paper", "sign", "ratio deviation: ours", "paper", "sign")


def agreement_section(results: Results) -> Html:
    """Nothing where the paper gives no numbers for what was run."""
    found = comparisons(results)
    if not found:
        return Html()
    where = " at this length" if results.plan.reductions else ""
    counts = [
        _count("Return", [one.gain for one in found], where),
        _count("Ratio deviation", [one.deviation for one in found], where),
    ]
    rows = [_row(results, one) for one in found]
    caption = join([RULE, label(results.plan.note)])
    return section("paper", TITLE, element("ul", *counts), table(HEAD, rows, caption, class_="agreement"))


def _count(what: str, effects: list[Effect], where: str) -> Html:
    verdicts = [effect.agrees for effect in effects]
    parts = [f"{verdicts.count(True)} of {plural(len(effects), 'difference')} with the paper’s sign{where}"]
    parts.append(f"{verdicts.count(False)} with the other")
    parts += [f"{verdicts.count(None)} not known, because runs are missing"] if None in verdicts else []
    unsure, known = sum(bool(effect.doubt) for effect in effects), len(verdicts) - verdicts.count(None)
    parts += [f"of the {known} that are known, {unsure} are not sure"] if unsure else []
    return element("li", element("b", what), ": ", "; ".join(parts), ".")


def _row(results: Results, one: Comparison) -> list[object]:
    names = f"{results.plan.label(one.spo)} − {results.plan.label(one.ppo)}"
    cells = [[_ours(effect), with_sign(effect.paper), _verdict(effect)] for effect in (one.gain, one.deviation)]
    return [one.task, names, *cells[0], *cells[1]]


def _ours(effect: Effect) -> object:
    if effect.ours is None:
        return "–"
    ends = (effect.interval.low, effect.interval.high) if effect.interval else ()
    interval = ", ".join(with_sign(end, effect.ours) for end in ends)
    return join([number(effect.ours, with_sign(effect.ours)), element("small", f" [{interval}]") if interval else ""])


def _verdict(effect: Effect) -> Html:
    if effect.agrees is None:
        return element("td", "runs are missing", class_="trouble")
    word = "agrees" if effect.agrees else "differs"
    return element("td", f"{word}, {effect.doubt}" if effect.doubt else word, class_="unsure" if effect.doubt else word)
