"""Fig. 6: ResNet-18 on Atari, with what a CNN reaches as horizontal lines."""

from pathlib import Path

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.learning_curves import draw_training, training_curves
from spo.experiments.figures.style import save
from spo.experiments.figures.sweep_notes import open_results

REFERENCES = ("spo-cnn", "ppo-cnn")


def make(arguments: FigureArguments) -> list[Path]:
    results = open_results(arguments, "fig6")
    referred = tuple(variant for variant in REFERENCES if variant in results.plan.variants)
    curves = training_curves(results, has_deviations=True, referred=referred)
    return save(draw_training(curves, columns=4, height=2.3), "fig6", arguments.out)
