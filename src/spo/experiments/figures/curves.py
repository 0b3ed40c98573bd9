"""Returns and ratio deviations of any sweep, such as a comparison or a suite of one's own."""

from dataclasses import replace
from pathlib import Path

from spo.experiments.figures.arguments import FigureArguments
from spo.experiments.figures.learning_curves import draw_training, training_curves
from spo.experiments.figures.style import make_distinct, save
from spo.experiments.figures.sweep_notes import open_results
from spo.experiments.results import Results


def make(arguments: FigureArguments) -> list[Path]:
    """Draw a panel of returns and one of ratio deviations for each task."""
    return save(draw_sweep(open_results(arguments)), "curves", arguments.out)


def draw_sweep(results: Results):
    """Panels for each task of a sweep, with its variants told apart by more than colour."""
    curves = training_curves(results, has_deviations=True)
    curves = replace(curves, styles=make_distinct(curves.styles))
    return draw_training(curves, columns=min(3, len(curves.returns)), height=2.3)
