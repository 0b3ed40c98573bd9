"""Appendix C: aggregate scores over layers × minibatches, and ResNet-18 with a fixed learning rate, game by game."""

from pathlib import Path

from spo.bench.figures.aggregates import aggregates, draw_aggregates
from spo.bench.figures.arguments import FigureArguments
from spo.bench.figures.style import save
from spo.bench.figures.sweeps import results_of
from spo.bench.figures.training import draw_training, training_curves


def make(arguments: FigureArguments) -> list[Path]:
    results = results_of(arguments, "layers-minibatches")
    return save(draw_aggregates(aggregates(results)), "appendix-c", arguments.out)


def make_games(arguments: FigureArguments) -> list[Path]:
    curves = training_curves(results_of(arguments, "atari-resnet"))
    return save(draw_training(curves, columns=6, height=0.6), "appendix-c-resnet", arguments.out)
