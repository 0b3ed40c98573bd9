"""Appendix A: the final return of SPO relative to PPO, game by game."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from spo.errors import SpoError
from spo.experiments.command_lines import sweep_command
from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.style import COLUMN, SMALL, pyplot, save, style_of, write_note
from spo.experiments.figures.sweep_notes import last_share, note_of, open_results, seed_count
from spo.experiments.plan import read_suite
from spo.experiments.random_scores import EPISODES, random_scores
from spo.experiments.results import Results

SPO, PPO = "spo-cnn", "ppo-cnn"


@dataclass(frozen=True)
class Gains:
    """By game, in per cent; None where neither beats random play."""

    gains: dict[str, float | None]
    note: str


def make(arguments: FigureArguments) -> list[Path]:
    results = open_results(arguments, "atari35")
    return save(draw_gains(gains(results)), "appendix-a", arguments.out)


def gains(results: Results) -> Gains:
    """100·(SPO − PPO)/(max(SPO, PPO) − random) of each game with finished runs of both, the largest first."""
    spo, ppo = (_means(results, variant) for variant in (SPO, PPO))
    games = [game for game in results.plan.tasks if game in spo and game in ppo]
    if not games:
        path = results.sweep.path
        command = sweep_command(results.plan, str(path))
        raise SpoError(f"--sweep {path} has no game with finished runs of SPO and of PPO; {command} goes on with it")
    random = random_scores(games)
    found = {game: relative_gain(spo[game], ppo[game], random[game]) for game in games}
    order = sorted(games, key=lambda game: (found[game] is None, -(found[game] or 0), game))
    return Gains({game: found[game] for game in order}, _note(results, games))


def relative_gain(spo: float, ppo: float, random: float) -> float | None:
    best = max(spo, ppo)
    return 100 * (spo - ppo) / (best - random) if best > random else None


def _means(results: Results, variant: str) -> dict[str, float]:
    if variant not in results.plan.variants:
        plan = dataclasses.replace(results.plan, variants={variant: read_suite("atari35").variants[variant]})
        path = results.sweep.path
        raise SpoError(f"--sweep {path} has no variant {variant}; {sweep_command(plan, str(path))} adds it")
    return {task: float(scores.mean()) for task, scores in results.scores(variant).items()}


def _note(results: Results, games: list[str]) -> str:
    counts = [len(results.entry(game, variant).returns) for game in games for variant in (SPO, PPO)]
    missing = [game for game in results.plan.tasks if game not in games]
    return note_of(
        results,
        f"left out, because unfinished: {', '.join(missing)}" if missing else "",
        f"means over {seed_count(counts)}",
        last_share(results),
        f"random: the mean of {EPISODES} games with the same pre-processing",
        results.plan.source.partition("; ")[2],
    )


def draw_gains(data: Gains):
    """A bar for each game, to the right where SPO is ahead."""
    count = len(data.gains)
    figure, axis = pyplot().subplots(figsize=(COLUMN * 1.25, 0.9 + 0.165 * count))
    for row, gain in enumerate(data.gains.values()):
        _draw_gain(axis, row, gain)
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.set_yticks(range(count), list(data.gains), fontsize=SMALL)
    axis.set_ylim(count - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.tick_params(axis="x", labelsize=8)
    axis.spines["left"].set_visible(False)
    axis.margins(x=0.16)
    axis.set_xlabel("100 · (SPO − PPO) / (max(SPO, PPO) − random)", fontsize=8)
    ahead = sum((gain or 0) > 0 for gain in data.gains.values())
    axis.set_title(f"SPO ahead in {ahead} of {count} games", fontsize=9)
    figure.tight_layout()
    write_note(figure, data.note)
    return figure


def _draw_gain(axis, row: int, gain: float | None) -> None:
    style = {"va": "center", "fontsize": SMALL - 1, "textcoords": "offset points"}
    if gain is None:
        axis.annotate("neither beats random play", (0, row), xytext=(3, 0), ha="left", color="0.35", **style)
        return
    colour = style_of("spo" if gain > 0 else "ppo-clip").colour
    axis.barh(row, gain, 0.7, color=colour, alpha=0.8)
    side = 1 if gain >= 0 else -1
    text = f"{gain:+.0f} %".replace("-", "−")
    axis.annotate(text, (gain, row), xytext=(3 * side, 0), ha="left" if side > 0 else "right", **style)
