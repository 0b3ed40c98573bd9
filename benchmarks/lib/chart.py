"""Charts of the benchmarks. This project is blue, all others grey; the simulation limit is a dashed orange line."""

from pathlib import Path

from lib.venvs import OURS
from spo.experiments.figures.style import pyplot, save

BLUE, GREY, ORANGE = "#0072B2", "#999999", "#D55E00"
FORMATS = ("svg", "png")


def draw_comparison(compared: dict[str, dict], out: Path) -> list[Path]:
    """One panel per task, one bar per library."""
    plt = pyplot()
    height = 0.32 * max(len(task["peers"]) for task in compared.values()) + 0.9
    figure, axes = plt.subplots(len(compared), 1, figsize=(6.4, height * len(compared)), squeeze=False)
    for axis, (name, task) in zip(axes[:, 0], compared.items()):
        draw_bars(axis, name, task)
    axes[-1, 0].set_xlabel("environment steps per second of training")
    figure.tight_layout()
    return save(figure, "peers", out, FORMATS)


def draw_bars(axis, name: str, task: dict) -> None:
    rows = {peer: row for peer, row in task["peers"].items() if "failed" not in row}
    order = sorted(rows, key=lambda peer: rows[peer]["steps_per_second"])
    speeds = [rows[peer]["steps_per_second"] for peer in order]
    bars = axis.barh(order, speeds, color=[BLUE if peer == OURS else GREY for peer in order])
    axis.bar_label(bars, [f"{speed:,.0f}" for speed in speeds], padding=3)
    limits = {way: max(speeds) for way, speeds in task["limits"].items()}
    for way, limit in limits.items():
        axis.axvline(limit, color=ORANGE, linestyle="--", linewidth=1, zorder=0)
        axis.text(limit, 0, f" {way}", rotation=90, va="bottom", ha="right", color=ORANGE, fontsize="x-small", zorder=0)
    axis.set_xlim(0, 1.12 * max([*speeds, *limits.values()], default=1))
    axis.set_title(f"{name} (dashed: the environments alone)", loc="left")


def draw_scaling(scaled: dict[str, list[dict]], out: Path) -> list[Path]:
    """Steps per second over environments and over width, a line for each number of threads."""
    figure, axes = pyplot().subplots(1, len(scaled), figsize=(7.2, 2.8))
    for axis, (name, rows) in zip(axes, scaled.items()):
        for threads, colour, style in ((1, BLUE, "o-"), (2, ORANGE, "s--")):
            line = [(row[name], row["steps_per_second"]) for row in rows if row["threads"] == threads]
            axis.plot(*zip(*line), style, color=colour, label=f"{threads} thread(s)", markersize=4)
        axis.set_xscale("log", base=2)
        values = sorted({row[name] for row in rows})
        axis.set_xticks(values, labels=values)
        axis.set_ylim(bottom=0)
        axis.set_xlabel({"envs": "environments", "width": "width of the hidden layers"}[name])
    axes[0].set_ylabel("steps per second")
    axes[0].legend(frameon=False)
    figure.tight_layout()
    return save(figure, "scaling", out, FORMATS)
