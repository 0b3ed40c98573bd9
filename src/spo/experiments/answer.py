"""The answer of a sweep in words: who is ahead, by how much and how surely, and who left the bound on the ratio."""

from dataclasses import dataclass

from spo.experiments.results import Entry, Result, Results
from spo.experiments.statistics import difference_of_means
from spo.runtime.formatting import plural, short, with_sign

MOST_TASKS = 6
"""Of how many tasks a sentence has the returns."""
MOST_RIVALS = 3
"""How many variants the best one is compared with, where there is one task."""
ERROR = 0.05
"""How often, of equal variants, one may be called ahead by more than chance."""
SINGLE = "from single seeds, so it may be chance"


@dataclass(frozen=True)
class Rival:
    """A variant with a lower mean return than the best one's, or the same."""

    variant: str
    mean: float
    seeds: int  # the fewer of its own and the best one's
    ends: tuple[float, float] | None  # Welch's 95 % interval of the difference; None with one seed
    is_surely_behind: bool  # also if one asks of every pair of variants and takes the widest


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

    @property
    def level(self) -> list[str]:
        """The variants that have the highest mean, of which there may be several."""
        return [self.first, *(rival.variant for rival in self.rivals if rival.mean == self.mean)]

    @property
    def behind(self) -> list[Rival]:
        return [rival for rival in self.rivals if rival.mean < self.mean]


def answer(results: Results) -> list[str]:
    """The verdict as sentences, each computed from the runs."""
    return [sentence for sentence in (compare_returns(results), judge_deviations(results)) if sentence]


# Returns


def compare_returns(results: Results) -> str:
    """Who has the higher return, by how much, and whether the seeds make it sure."""
    leads = [lead for task in results.plan.tasks if (lead := find_lead(results, task))]
    if not leads:
        return _describe_alone(results)
    is_one = len(results.plan.tasks) == 1
    words = _describe_lead(results, leads[0]) if is_one else _count_leads(results, leads)
    return words + _describe_gaps(results)


def find_lead(results: Results, task: str) -> Lead | None:
    """The best variant of a task beside the others, if two have returns there."""
    entries = {variant: results.entry(task, variant) for variant in results.plan.variants}
    known = sorted(
        (name for name, entry in entries.items() if len(entry.returns)), key=lambda name: -entries[name].mean
    )
    if len(known) < 2:
        return None
    first, *others = known
    pairs = len(known) * len(others) // 2  # each of which could have been the best and the next
    rivals = [_make_rival(name, entries[first], entries[name], pairs) for name in others]
    return Lead(task, first, entries[first].mean, rivals)


def _make_rival(variant: str, first: Entry, own: Entry, pairs: int) -> Rival:
    seeds = min(len(first.returns), len(own.returns))
    if seeds < 2:
        return Rival(variant, own.mean, seeds, None, False)
    interval = difference_of_means(first.returns, own.returns)
    strict = difference_of_means(first.returns, own.returns, 1 - ERROR / pairs)
    return Rival(variant, own.mean, seeds, (interval.low, interval.high), strict.low > 0)


def _describe_lead(results: Results, lead: Lead) -> str:
    label, rivals = results.plan.label, lead.behind[:MOST_RIVALS]
    names = _list_names([label(variant) for variant in lead.level])
    words = f"{names} {'is ahead' if len(lead.level) == 1 else 'are level'} on {lead.task}"
    words += f" with a return of {short(lead.mean)}"
    if not rivals:
        return f"{words}."
    is_single = all(rival.ends is None for rival in rivals)
    against = _list_names([_describe_rival(lead, label(rival.variant), rival, is_single) for rival in rivals])
    return f"{words} against {against}{f', {SINGLE}' if is_single else ''}."


def _describe_rival(lead: Lead, label: str, rival: Rival, is_single: bool) -> str:
    words, gap = f"{short(rival.mean)} of {label}", lead.mean - rival.mean
    if rival.ends is None:
        return words if is_single else f"{words} ({with_sign(gap)}, {SINGLE})"
    ends = " to ".join(with_sign(end, gap) for end in rival.ends)
    is_apart = rival.ends[0] > 0
    unsure = "which among so many variants may be chance" if is_apart else "so it may be chance"
    sure = "which is more than chance between these seeds" if rival.is_surely_behind else unsure
    return f"{words} ({with_sign(gap)}, 95\u00a0% interval {ends}, {sure})"


def _count_leads(results: Results, leads: list[Lead]) -> str:
    """Who leads on how many tasks; of few tasks, with the returns."""
    by_names: dict[tuple[str, ...], list[Lead]] = {}
    for lead in leads:
        by_names.setdefault(tuple(lead.level), []).append(lead)
    has_seeds, has_room = any(lead.rivals[0].ends for lead in leads), len(leads) <= MOST_TASKS
    parts = []
    for names, own in sorted(by_names.items(), key=lambda item: -len(item[1])):
        does = "has the highest return" if len(names) == 1 else "are level"
        words = f"{_list_names(list(map(results.plan.label, names)))} {does} on"
        words += f" {len(own)} of {plural(len(leads), 'task')}"
        pairs = [_pair(one) for one in own]
        returns = f" ({', '.join(pairs)})" if has_room else ""
        sure = f", {sum(lead.is_sure for lead in own) or 'none'} of them by more than chance between the seeds"
        parts.append(words + returns + (sure if has_seeds and len(names) == 1 else ""))
    return "; ".join(parts) + ("." if has_seeds else f", {SINGLE}.")


def _pair(lead: Lead) -> str:
    against = f" against {short(lead.behind[0].mean)}" if lead.behind else ""
    return f"{lead.task} {short(lead.mean)}{against}"


def _describe_gaps(results: Results) -> str:
    """Where runs are missing: of how many variants the best one is the best."""
    variants, tasks = results.plan.variants, results.plan.tasks
    known = {task: sum(bool(len(results.entry(task, variant).returns)) for variant in variants) for task in tasks}
    gaps = [f"{count} on {task}" for task, count in known.items() if count < len(variants)]
    return f" Of {len(variants)} variants there are returns of {_list_names(gaps)}." if gaps else ""


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
