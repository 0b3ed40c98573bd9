"""The answer of a sweep in words: who is ahead, by how much and how surely, and who left the bound on the ratio."""

from dataclasses import dataclass

from spo.experiments.agreement import difference
from spo.experiments.results import Entry, Result, Results
from spo.runtime.formatting import plural, short, with_sign

MOST_TASKS = 6
"""Of how many tasks a sentence has the returns."""
MOST_RIVALS = 3
"""How many variants the best one is compared with, where there is one task."""


@dataclass(frozen=True)
class Rival:
    """A variant with a lower mean return than the best one's."""

    variant: str
    mean: float
    ends: tuple[float, float] | None  # the 95 % interval of the difference; None with one seed

    @property
    def is_surely_behind(self) -> bool:
        return self.ends is not None and self.ends[0] > 0


@dataclass(frozen=True)
class Lead:
    """The variant with the highest mean return on a task, and the others from the next one down."""

    task: str
    first: str
    mean: float
    rivals: list[Rival]

    @property
    def is_sure(self) -> bool:
        return self.rivals[0].is_surely_behind


def answer(results: Results) -> list[str]:
    """The verdict as sentences, each computed from the runs."""
    return [sentence for sentence in (compare_returns(results), judge_deviations(results)) if sentence]


# Returns


def compare_returns(results: Results) -> str:
    """Who has the higher return, by how much, and whether the seeds make it sure."""
    leads = [lead for task in results.plan.tasks if (lead := find_lead(results, task))]
    if not leads:
        return _describe_alone(results)
    return _describe_lead(results, leads[0]) if len(results.plan.tasks) == 1 else _count_leads(results, leads)


def find_lead(results: Results, task: str) -> Lead | None:
    """The best variant of a task beside the others, if two have returns there."""
    entries = {variant: results.entry(task, variant) for variant in results.plan.variants}
    known = sorted(
        (name for name, entry in entries.items() if len(entry.returns)), key=lambda name: -entries[name].mean
    )
    if len(known) < 2:
        return None
    first, *others = known
    rivals = [_make_rival(name, entries[first], entries[name]) for name in others]
    return Lead(task, first, entries[first].mean, rivals)


def _make_rival(variant: str, first: Entry, own: Entry) -> Rival:
    has_seeds = min(len(first.returns), len(own.returns)) > 1
    interval = difference(first.returns, own.returns) if has_seeds else None
    return Rival(variant, own.mean, (float(interval.low), float(interval.high)) if interval else None)


def _describe_lead(results: Results, lead: Lead) -> str:
    label, rivals = results.plan.label, lead.rivals[:MOST_RIVALS]
    against = _list_names([_describe_rival(lead, label(rival.variant), rival) for rival in rivals])
    is_alone = not any(rival.ends for rival in rivals)
    end = ", but with one seed each this may be chance." if is_alone else "."
    return f"{label(lead.first)} is ahead on {lead.task} with a return of {short(lead.mean)} against {against}{end}"


def _describe_rival(lead: Lead, label: str, rival: Rival) -> str:
    words = f"{short(rival.mean)} of {label}"
    if rival.ends is None:
        return words
    gap = lead.mean - rival.mean
    ends = " to ".join(with_sign(end, gap) for end in rival.ends)
    sure = "which is more than chance between these seeds" if rival.is_surely_behind else "so it may be chance"
    return f"{words} ({with_sign(gap)}, 95\u00a0% interval {ends}, {sure})"


def _count_leads(results: Results, leads: list[Lead]) -> str:
    """Who leads on how many tasks; of few tasks, with the returns."""
    by_name: dict[str, list[Lead]] = {}
    for lead in leads:
        by_name.setdefault(lead.first, []).append(lead)
    has_seeds, has_room = any(lead.rivals[0].ends for lead in leads), len(leads) <= MOST_TASKS
    parts = []
    for name, own in sorted(by_name.items(), key=lambda item: -len(item[1])):
        words = f"{results.plan.label(name)} has the highest return on {len(own)} of {plural(len(leads), 'task')}"
        pairs = [f"{one.task} {short(one.mean)} against {short(one.rivals[0].mean)}" for one in own]
        returns = f" ({', '.join(pairs)})" if has_room else ""
        sure = f", {sum(lead.is_sure for lead in own) or 'none'} of them by more than chance between the seeds"
        parts.append(words + returns + (sure if has_seeds else ""))
    return "; ".join(parts) + ("." if has_seeds else ", with one seed each, so it may be chance.")


def _describe_alone(results: Results) -> str:
    """Where there is nothing to compare: what was reached."""
    cells = [(task, variant) for task in results.plan.tasks for variant in results.plan.variants]
    known = [(*cell, entry) for cell in cells if (entry := results.entry(*cell)).mean is not None]
    if not known:
        return "No run has a return yet."
    parts = [f"{short(entry.mean)} on {task} ({results.plan.label(variant)})" for task, variant, entry in known]
    return f"The return reached is {', '.join(parts)}."


# Ratio deviation


def judge_deviations(results: Results) -> str:
    """Which variants kept the mean ratio deviation of every minibatch within their ε, and how far others went."""
    runs = {variant: _runs_with_bound(results, variant) for variant in results.plan.variants}
    runs = {variant: own for variant, own in runs.items() if own}
    if not runs:
        return ""
    widths = sorted({run.epsilon for own in runs.values() for run in own})
    bound = f"ε = {widths[0]:g}" if len(widths) == 1 else "their own ε"
    inside = [variant for variant, own in runs.items() if not any(map(_is_outside, own))]
    parts = [_describe_inside(results, {name: runs[name] for name in inside}, bound)] if inside else []
    left = [_describe_outside(results.plan.label(name), runs[name]) for name in runs if name not in inside]
    parts += [f"{'The ratio deviation' if not parts else 'It'} left {bound} with {_list_names(left)}."] if left else []
    return " ".join(parts)


def _runs_with_bound(results: Results, variant: str) -> list[Result]:
    return [run for task in results.plan.tasks for run in results.finished_runs(task, variant) if run.epsilon]


def _is_outside(run: Result) -> bool:
    return run.summary["ratio_deviation_max"] > run.epsilon


def _describe_inside(results: Results, runs: dict[str, list[Result]], bound: str) -> str:
    names = _list_names([results.plan.label(variant) for variant in runs])
    return (
        f"The ratio deviation stayed within {bound} with {names} (at most {short(_largest(sum(runs.values(), [])))})."
    )


def _list_names(names: list[str]) -> str:
    """Names in a sentence; they may have commas themselves."""
    return " and ".join(filter(None, ["; ".join(names[:-1]), names[-1]]))


def _describe_outside(label: str, runs: list[Result]) -> str:
    where = f"in {sum(map(_is_outside, runs))} of {plural(len(runs), 'run')}, " if len(runs) > 1 else ""
    return f"{label} ({where}up to {short(_largest(runs))})"


def _largest(runs: list[Result]) -> float:
    return max(run.summary["ratio_deviation_max"] for run in runs)
