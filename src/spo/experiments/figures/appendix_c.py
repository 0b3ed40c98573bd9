"""Appendix C: aggregate scores over layers × minibatches, and ResNet-18 with a fixed learning rate, game by game."""

from pathlib import Path

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.learning_curves import draw_training, training_curves
from spo.experiments.figures.score_bars import aggregates, draw_aggregates
from spo.experiments.figures.style import save
from spo.experiments.figures.sweep_notes import open_results


def make(arguments: FigureArguments) -> list[Path]:
    results = open_results(arguments, "layers-minibatches")
    return save(draw_aggregates(aggregates(results)), "appendix-c", arguments.out)


def make_games(arguments: FigureArguments) -> list[Path]:
    curves = training_curves(open_results(arguments, "atari-resnet"))
    return save(draw_training(curves, columns=6, height=0.6), "appendix-c-resnet", arguments.out)
