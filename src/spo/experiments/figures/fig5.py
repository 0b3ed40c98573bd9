"""Fig. 5: returns and ratio deviations of PPO and SPO with policies of 3 and 7 layers."""

from pathlib import Path

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.learning_curves import draw_training, training_curves
from spo.experiments.figures.style import save
from spo.experiments.figures.sweep_notes import open_results


def make(arguments: FigureArguments) -> list[Path]:
    """Both depths in one panel, because what depth does to each objective is what the figure is about."""
    curves = training_curves(open_results(arguments, "table1"), has_deviations=True)
    return save(draw_training(curves, columns=3, height=2.3), "fig5", arguments.out)
