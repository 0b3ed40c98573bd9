"""Fig. 1: Breakout, trained by PPO and SPO with a CNN and with ResNet-18."""

from pathlib import Path

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.learning_curves import draw_training, training_curves
from spo.experiments.figures.style import COLUMN, save
from spo.experiments.figures.sweep_notes import open_results


def make(arguments: FigureArguments) -> list[Path]:
    curves = training_curves(open_results(arguments, "fig1"))
    return save(draw_training(curves, columns=1, width=COLUMN, height=2.2), "fig1", arguments.out)
