"""The figures by name. A new one is a line in FIGURES, with a module whose `make` draws and saves where it is not of
training curves.

Drawing needs plain numbers and no torch: where a figure's numbers are computed with it, its maker imports that late.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from spo.errors import SpoError, suggest
from spo.experiments.figures import appendix_a, fig2, fig3, fig4, fig7, objectives, score_bars, width
from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.learning_curves import make_curves, make_training
from spo.experiments.figures.style import COLUMN, pyplot


@dataclass(frozen=True)
class Figure:
    """What a figure shows, the function that makes its files, and the arguments it reads besides `out`."""

    description: str
    make: Callable[[FigureArguments], list[Path]]
    options: tuple[str, ...] = ()


RUNS, SWEEP, CURVES = ("runs", "iteration", "follow"), ("sweep",), ("sweep", "tasks", "variants")
OPTIONS = (*RUNS, *CURVES)
FIG1 = partial(make_training, suite="fig1", columns=1, width=COLUMN, height=2.2)
FIG5 = partial(make_training, suite="table1", columns=3, height=2.3, has_deviations=True)
"""Both depths in one panel, because what depth does to each objective is what the figure is about."""
FIG6 = partial(make_training, suite="fig6", columns=4, height=2.3, has_deviations=True, referred=("spo-cnn", "ppo-cnn"))
APPENDIX_C_RESNET = partial(make_training, suite="atari-resnet", columns=6, height=0.6)
FIGURES = {
    "objectives": Figure("f and its slope over the ratio, for every objective", objectives.make),
    "curves": Figure("training and ratio deviations of any sweep", make_curves, CURVES),
    "fig1": Figure("training on Breakout with a CNN and ResNet-18, of suite fig1", FIG1, CURVES),
    "fig2": Figure("the losses of SPO and PPO, and every sample's ratio per epoch of two runs", fig2.make, RUNS),
    "fig3": Figure("which samples PPO and SPO leave without a gradient", fig3.make),
    "fig4": Figure("SPO and its baselines aggregated over all tasks, of suite fig4", fig4.make, SWEEP),
    "fig5": Figure("training and ratio deviations with 3 and 7 layers, of suite table1", FIG5, CURVES),
    "fig6": Figure("training and ratio deviations with ResNet-18, of suite fig6", FIG6, CURVES),
    "fig7": Figure("surrogate and ratio deviation while three objectives are optimised on one batch", fig7.make),
    "appendix-a": Figure("SPO relative to PPO on 35 Atari games, of suite atari35", appendix_a.make, SWEEP),
    "appendix-c": Figure("aggregates over layers × minibatches, of suite layers-minibatches", score_bars.make, SWEEP),
    "appendix-c-resnet": Figure(
        "training with ResNet-18 on 54 Atari games, of suite atari-resnet", APPENDIX_C_RESNET, CURVES
    ),
    "width": Figure("realised ratio deviation against return at both depths, of suite width", width.make, SWEEP),
}


def make_figure(arguments: FigureArguments) -> list[Path]:
    """Draw the named figure and return the paths written."""
    if arguments.name not in FIGURES:
        nearest = suggest(arguments.name, FIGURES)
        raise SpoError(f"figure {arguments.name!r} is unknown{nearest}; accepted: {', '.join(FIGURES)}")
    figure = FIGURES[arguments.name]
    for option in OPTIONS:
        given = getattr(arguments, option)
        if given not in ((), None) and given is not False and option not in figure.options:
            raise SpoError(f"--{option} is not accepted: figure {arguments.name} does not read it")
    pyplot()  # a missing package is told before anything is computed
    return figure.make(arguments)


def overview() -> str:
    """The figures with what they show, for the command's help."""
    return "\n\n".join(f"{name}: {figure.description}" for name, figure in FIGURES.items())
