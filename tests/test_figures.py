"""Figures from fixture data, and the curves behind them."""

import pytest
import torch

from spo import cli
from spo.bench.curves import SIGMAS, kl_of_ratio, objective_curve
from spo.distributions import Gaussian
from spo.errors import Refusal
from spo.objectives import OBJECTIVES


def test_the_drawn_kl_is_that_of_a_moved_gaussian():
    """An action z deviations from the old mean, the mean moved by d: ratio and KL as the distribution gives them."""
    moves = torch.tensor([-0.5, 0.1, 0.6], dtype=torch.float64)
    old = torch.zeros(3, 2, dtype=torch.float64)
    new = torch.stack([moves, torch.zeros(3, dtype=torch.float64)], -1)
    action = torch.full((3, 1), SIGMAS, dtype=torch.float64)
    ratio = (Gaussian.log_prob(new, action) - Gaussian.log_prob(old, action)).exp()
    torch.testing.assert_close(kl_of_ratio(ratio), Gaussian.kl(old, new))


def test_curves_know_the_shapes():
    f, slope = objective_curve(OBJECTIVES["spo"], 1.0, [1.0, 1.2, 1.4])
    assert f == pytest.approx([1.0, 1.1, 1.0]) and slope == pytest.approx([1.0, 0.0, -1.0], abs=1e-9)
    f, slope = objective_curve(OBJECTIVES["ppo-clip"], -1.0, [0.5, 1.0, 1.5])
    assert f == pytest.approx([-0.8, -1.0, -1.5]) and slope == pytest.approx([0.0, -1.0, -1.0])


def test_the_figure_of_the_objectives(tmp_path):
    cli.dispatch(["figures", "objectives", "--out", str(tmp_path)])
    assert (tmp_path / "spo-and-ppo.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "spo-and-ppo.pdf").read_bytes().startswith(b"%PDF")
    drawn = {path.stem.removeprefix("objective-") for path in tmp_path.glob("objective-*.svg")}
    assert drawn == set(OBJECTIVES) - {"trpo"}
    first = (tmp_path / "objective-spo.svg").read_bytes()
    cli.dispatch(["figures", "objectives", "--out", str(tmp_path)])
    assert (tmp_path / "objective-spo.svg").read_bytes() == first


def test_an_unknown_figure():
    with pytest.raises(Refusal, match="figure 'fig99' is unknown; accepted: objectives"):
        cli.dispatch(["figures", "fig99"])
