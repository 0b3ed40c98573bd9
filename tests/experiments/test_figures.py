"""Figures from fixture data, and the numbers behind them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save as tensors_to_bytes

from spo import cli
from spo.errors import SpoError
from spo.experiments.figure_data import one_batch
from spo.experiments.figure_data.objective_curves import (
    SIGMAS,
    GradientPoints,
    gradient_points,
    kl_of_ratio,
    objective_at,
    objective_curves,
)
from spo.experiments.figure_data.recorded_ratios import read_ratios
from spo.experiments.figures import FIGURES
from spo.experiments.figures.fig2 import (
    LARGEST_DRAWN,
    MOST_FOLLOWED,
    MOST_POINTS,
    follow_samples,
    last_epoch,
    scatter_samples,
)
from spo.experiments.figures.fig3 import draw_gradients
from spo.experiments.figures.fig7 import draw_one_batch
from spo.experiments.figures.objectives import draw_objectives
from spo.experiments.figures.style import FORMATS, STYLES, pyplot, save, style_of
from spo.models.distributions import Gaussian
from spo.objectives import OBJECTIVES


def drawn_twice(figure: str, out: Path, *arguments: str, name: str | None = None) -> dict[str, bytes]:
    """The files that a figure writes by their ending, the same both times."""
    files = []
    for _ in range(2):
        cli.dispatch(["figures", figure, "--out", str(out), *arguments])
        files.append({ending: (out / f"{name or figure}.{ending}").read_bytes() for ending in FORMATS})
    assert files[0] == files[1]
    assert files[0]["png"].startswith(b"\x89PNG") and files[0]["pdf"].startswith(b"%PDF")
    return files[0]


def test_every_objective_has_a_look_of_its_own():
    assert set(STYLES) == set(OBJECTIVES)
    styles = STYLES.values()
    for kind in ([style.label for style in styles], [style.marker for style in styles]):
        assert len(set(kind)) == len(OBJECTIVES)
    assert len({(style.colour, style.line) for style in styles}) == len(OBJECTIVES)
    assert style_of("mine:function").label == "mine:function"


def test_drawing_needs_no_torch():
    modules = "spo.experiments.figures, spo.experiments.figure_data.recorded_ratios"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_an_unknown_figure():
    with pytest.raises(SpoError, match="figure 'fig99' is unknown.*; accepted: objectives, curves, fig1"):
        cli.dispatch(["figures", "fig99"])


def test_an_argument_that_a_figure_does_not_read(tmp_path):
    for arguments in (["--runs", "a"], ["--iteration", "0"]):
        with pytest.raises(SpoError, match=f"{arguments[0]} is not accepted: figure fig3 does not read it"):
            cli.dispatch(["figures", "fig3", "--out", str(tmp_path), *arguments])


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SpoError, match="--out .*file cannot be written to: "):
        cli.dispatch(["figures", "fig3", "--out", str(tmp_path / "file")])
    assert pyplot().get_fignums() == []


def test_help_lists_the_figures(capsys):
    with pytest.raises(SystemExit):
        cli.dispatch(["figures", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name, figure in FIGURES.items():
        assert f"{name}: {figure.description}" in text


# The objectives


def test_the_drawn_kl_is_that_of_a_moved_gaussian():
    """An action z deviations from the old mean, the mean moved by d: ratio and KL as the distribution gives them."""
    moves = torch.tensor([-0.5, 0.1, 0.6], dtype=torch.float64)
    old = torch.zeros(3, 2, dtype=torch.float64)
    new = torch.stack([moves, torch.zeros(3, dtype=torch.float64)], -1)
    action = torch.full((3, 1), SIGMAS, dtype=torch.float64)
    ratio = (Gaussian.log_prob(new, action) - Gaussian.log_prob(old, action)).exp()
    torch.testing.assert_close(kl_of_ratio(ratio), Gaussian.kl(old, new))


def test_curves_know_the_shapes():
    f, slope = objective_at(OBJECTIVES["spo"], [1.0, 1.2, 1.4], 1.0)
    assert f == pytest.approx([1.0, 1.1, 1.0]) and slope == pytest.approx([1.0, 0.0, -1.0], abs=1e-9)
    f, slope = objective_at(OBJECTIVES["ppo-clip"], [0.5, 1.0, 1.5], -1.0)
    assert f == pytest.approx([-0.8, -1.0, -1.5]) and slope == pytest.approx([0.0, -1.0, -1.0])
    f, slope = objective_at(OBJECTIVES["drpo"], [1.0, 1.5, 2.0], 1.0, delta=0.2)
    assert f == pytest.approx([1.0, 1.25, 1.0]) and slope == pytest.approx([1.0, 0.0, -1.0], abs=1e-9)


def test_the_figure_of_the_objectives(tmp_path):
    cli.dispatch(["figures", "objectives", "--out", str(tmp_path)])
    assert (tmp_path / "spo-and-ppo.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "spo-and-ppo.pdf").read_bytes().startswith(b"%PDF")
    drawn = {path.stem.removeprefix("objective-") for path in tmp_path.glob("objective-*.svg")}
    assert drawn == set(OBJECTIVES) - {"trpo"}
    first = (tmp_path / "objective-spo.svg").read_bytes()
    (again,) = save(draw_objectives(objective_curves(), ["spo"]), "again", tmp_path, ("svg",))
    assert again.read_bytes() == first


# Fig. 2


def write_run(path: Path, objective: str, iterations: dict[int, np.ndarray], epsilon: float = 0.2) -> Path:
    """A run directory with recorded ratios; a sample's advantage is its number, with the epoch as decimals."""
    (path / "ratios").mkdir(parents=True)
    settings = {"env": "Humanoid-v4", "objective": objective}
    config = {"settings": settings, "resolved": {"objective_settings": {"epsilon": epsilon}}}
    (path / "config.json").write_text(json.dumps(config))
    for iteration, ratio in iterations.items():
        advantage = np.arange(ratio.shape[1]) + np.arange(len(ratio))[:, None] / (2 * len(ratio))
        tensors = {"ratio": ratio, "advantage": advantage.astype(np.float32)}
        (path / "ratios" / f"{iteration}.safetensors").write_bytes(tensors_to_bytes(tensors))
    return path


def ratios(spread: float, epochs: int = 10, samples: int = 2048) -> np.ndarray:
    noise = np.random.default_rng(0).standard_normal((epochs, samples))
    return np.exp(spread * noise).astype(np.float32)


@pytest.fixture
def runs(tmp_path) -> list[str]:
    ppo = write_run(tmp_path / "ppo", "ppo-clip", {10: ratios(0.1), 100: ratios(3.0)})
    spo = write_run(tmp_path / "spo", "spo", {10: ratios(0.05), 100: ratios(0.1), 200: ratios(0.2)})
    return [str(ppo), str(spo)]


def test_figure_2_is_drawn_small(runs, tmp_path):
    files = drawn_twice("fig2", tmp_path / "out", "--runs", *runs)
    assert max(map(len, files.values())) < 500_000


def test_the_last_iteration_that_all_runs_recorded(runs):
    paths = tuple(map(Path, runs))
    ppo, spo = read_ratios(paths, None)
    assert (ppo.iteration, spo.iteration) == (100, 100)
    np.testing.assert_array_equal(ppo.ratio, ratios(3.0))
    assert (ppo.objective, spo.objective, spo.env, spo.epsilon) == ("ppo-clip", "spo", "Humanoid-v4", 0.2)
    assert [each.iteration for each in read_ratios(paths, 10)] == [10, 10]


def test_the_scatter_holds_samples_of_the_run(tmp_path):
    ratio = ratios(0.3, epochs=3, samples=3000)
    ratio[:, :1000] = 1e9
    (recorded,) = read_ratios((write_run(tmp_path / "run", "spo", {1: ratio}),), None)
    epoch, deviation, advantage = scatter_samples(recorded)
    assert len(epoch) == 3 * MOST_POINTS
    for number in (1, 2, 3):
        is_there = np.round(epoch) == number
        assert is_there.sum() == MOST_POINTS
        samples = advantage[is_there].astype(int)
        np.testing.assert_allclose(advantage[is_there] - samples, (number - 1) / 6, atol=1e-3)
        assert len(set(samples)) == MOST_POINTS
        np.testing.assert_array_equal(deviation[is_there], np.minimum(ratio[number - 1, samples] - 1, LARGEST_DRAWN))


def test_the_numbers_beside_the_scatter(tmp_path):
    ratio = np.array([[9.0, 9.0, 9.0, 9.0], [1.25, 0.5, 1.1, 0.9]], np.float32)
    (recorded,) = read_ratios((write_run(tmp_path / "run", "spo", {1: ratio}),), None)
    assert last_epoch(recorded) == "last epoch: 50% outside ±ε\nlargest |r − 1|: 0.5"
    (wider,) = read_ratios((write_run(tmp_path / "wider", "spo", {1: ratio}, epsilon=0.3),), None)
    assert last_epoch(wider).startswith("last epoch: 25%")


def test_a_width_that_is_adapted_is_that_of_the_iteration(tmp_path):
    run = write_run(tmp_path / "run", "spo-adaptive", {2: ratios(0.1)})
    for width, words in ((0.35, ""), ("wide", "says epsilon wide at iteration 2"), (1.5, "says epsilon 1.5")):
        rows = [{"iteration": 1, "epsilon": 0.2}, {"iteration": 2, "epsilon": width}]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        if not words:
            assert read_ratios((run,), None)[0].epsilon == width
            continue
        with pytest.raises(SpoError, match=words):
            read_ratios((run,), None)


def test_followed_samples_keep_their_ratio_and_advantage_from_epoch_to_epoch(tmp_path):
    ratio = ratios(0.3, epochs=100, samples=200)
    ratio[:, :100] = 1e9
    (recorded,) = read_ratios((write_run(tmp_path / "run", "spo", {1: ratio}),), None)
    deviation, advantage = follow_samples(recorded)
    assert deviation.shape == (101, MOST_FOLLOWED) and advantage.shape == (100, MOST_FOLLOWED)
    samples = advantage[0].astype(int)
    assert len(set(samples)) == MOST_FOLLOWED and (advantage.astype(int) == samples).all()
    assert (deviation[0] == 0).all()
    np.testing.assert_array_equal(deviation[1:], np.minimum(ratio[:, samples] - 1, LARGEST_DRAWN))


def test_the_authors_form_of_figure_2(runs, tmp_path):
    files = drawn_twice("fig2", tmp_path / "out", "--follow", "--runs", *runs, name="fig2-follow")
    assert max(map(len, files.values())) < 500_000 and "mean |r − 1|" in files["svg"].decode()
    with pytest.raises(SpoError, match="ppo-clip --envs 8 .* --epochs 100 --steps 64 --record-ratios 1 and spo train"):
        cli.dispatch(["figures", "fig2", "--follow"])
    with pytest.raises(SpoError, match="--follow is not accepted: figure fig3 does not read it"):
        cli.dispatch(["figures", "fig3", "--follow"])


def test_raw_advantages_of_earlier_versions_are_read_and_named(runs, tmp_path):
    run = write_run(tmp_path / "run", "spo", {})
    tensors = {"ratio": ratios(0.1, 3, 5), "advantage": np.arange(5, dtype=np.float32)}
    (run / "ratios" / "1.safetensors").write_bytes(tensors_to_bytes(tensors))
    (recorded,) = read_ratios((run,), None)
    assert recorded.is_raw and (recorded.advantage == np.arange(5)).all() and recorded.advantage.shape == (3, 5)
    cli.dispatch(["figures", "fig2", "--runs", str(run), "--out", str(tmp_path)])
    assert "raw advantage" in (tmp_path / "fig2.svg").read_text()
    cli.dispatch(["figures", "fig2", "--runs", *runs, "--out", str(tmp_path)])
    assert "raw advantage" not in (tmp_path / "fig2.svg").read_text()


def test_missing_ratios_name_the_command_that_makes_them(runs, tmp_path):
    with pytest.raises(
        SpoError, match="fig2 needs --runs.* spo train Humanoid-v4 --objective ppo-clip --record-ratios"
    ):
        cli.dispatch(["figures", "fig2"])
    sentence = r"ppo has no ratios of iteration 50 \(recorded: 10, 100\); spo train Humanoid-v4 --objective ppo-clip"
    with pytest.raises(SpoError, match=f"{sentence} --record-ratios 50 makes them"):
        cli.dispatch(["figures", "fig2", "--runs", *runs, "--iteration", "50"])
    none = write_run(tmp_path / "none", "spo", {})
    with pytest.raises(
        SpoError, match=r"\(recorded: none\); spo train Humanoid-v4 --objective spo --record-ratios 100"
    ):
        cli.dispatch(["figures", "fig2", "--runs", str(none)])
    with pytest.raises(SpoError, match="is not a run directory: it has no config.json"):
        cli.dispatch(["figures", "fig2", "--runs", str(tmp_path)])


@pytest.mark.parametrize(
    "content, sentence",
    [
        (b"nonsense", "cannot be read: "),
        (tensors_to_bytes({"ratio": np.ones((2, 3))}), "cannot be read: 'advantage'"),
        (tensors_to_bytes({"ratio": np.ones(3), "advantage": np.ones(3)}), r"holds ratio \(3,\) and advantage \(3,\)"),
        (tensors_to_bytes({"ratio": np.ones((2, 3)), "advantage": np.ones(2)}), r"accepted are \(epochs, samples\)"),
        (tensors_to_bytes({"ratio": np.ones((0, 3)), "advantage": np.ones(3)}), r"accepted are \(epochs, samples\)"),
        (tensors_to_bytes({"ratio": np.full((1, 1), np.nan), "advantage": np.ones(1)}), "values that are not finite"),
    ],
)
def test_a_file_that_holds_no_ratios(tmp_path, content, sentence):
    run = write_run(tmp_path / "run", "spo", {})
    (run / "ratios" / "7.safetensors").write_bytes(content)
    with pytest.raises(SpoError, match=f"7.safetensors .*{sentence}"):
        read_ratios((run,), 7)


# Fig. 3


def test_ppo_leaves_samples_beyond_the_bound_and_spo_none():
    data = gradient_points()
    ratio, advantage, epsilon = np.array(data.ratio), np.array(data.advantage), data.epsilon
    has_improved_enough = (ratio - 1) * np.sign(advantage) > epsilon
    np.testing.assert_array_equal(np.array(data.slope["ppo-clip"]) == 0, has_improved_enough)
    assert 0.2 < has_improved_enough.mean() < 0.4
    towards_the_bound = np.sign(1 + np.sign(advantage) * epsilon - ratio)
    np.testing.assert_array_equal(np.sign(data.slope["spo"]), towards_the_bound)


def test_figure_3(tmp_path):
    assert len(drawn_twice("fig3", tmp_path)["svg"]) < 500_000
    slope = {"ppo-clip": [1.0, 0.0, -1.0]}
    figure = draw_gradients(GradientPoints(0.2, ratio=[0.9, 1.3, 1.4], advantage=[1.0, 1.0, -1.0], slope=slope))
    (axis,) = figure.axes
    assert axis.get_title() == "PPO-Clip: 1 of 3 without gradient"
    lines = {line.get_label(): list(line.get_xdata()) for line in axis.lines}
    assert lines["no gradient"] == [1.3] and lines["pulled along the arrow, ∂f/∂r"] == [0.9, 1.4]
    pyplot().close(figure)


# Fig. 7


@pytest.fixture(scope="module")
def optimized() -> one_batch.OneBatch:
    return one_batch.one_batch_curves(seeds=1)


def test_what_figure_7_shows(optimized):
    """As the paper says: PPO is best at the surrogate and lets the ratios go; SPO beats the simple one."""
    surrogate = {name: np.array(curves.surrogate[0]) for name, curves in optimized.curves.items()}
    deviation = {name: np.array(curves.ratio_deviation[0]) for name, curves in optimized.curves.items()}
    epsilon = optimized.epsilon
    assert deviation["ppo-clip"][-1] > 2 * epsilon
    assert deviation["spo"].max() < epsilon and deviation["simple"].max() < epsilon
    assert (surrogate["ppo-clip"][2:] > surrogate["spo"][2:]).all()  # at r = 1 both take the same step
    assert (surrogate["spo"][1:] > surrogate["simple"][1:]).all()
    steps_to_the_bound = {name: int((curve > 0.9 * epsilon).argmax()) for name, curve in deviation.items()}
    assert 0 < steps_to_the_bound["ppo-clip"] < steps_to_the_bound["simple"] < steps_to_the_bound["spo"]


def test_a_few_samples_all_reach_their_bound():
    """Where the network can give each sample its ratio: mean|r − 1| = ε and mean(r·A) = ε·mean|A|, as A has mean 0."""
    data = one_batch.one_batch_curves(names=("spo", "simple"), seeds=1, steps=150, samples=32)
    best = 0.2 * one_batch.Problem.draw(1, 32).advantage.abs().mean().item()
    for curves in data.curves.values():
        assert curves.surrogate[0][0] == pytest.approx(0, abs=1e-6) and curves.ratio_deviation[0][0] == 0
        assert curves.surrogate[0][-1] == pytest.approx(best, abs=2e-3)
        assert curves.ratio_deviation[0][-1] == pytest.approx(0.2, abs=4e-3)
        assert len(curves.surrogate[0]) == 151
    assert data == one_batch.one_batch_curves(names=("spo", "simple"), seeds=1, steps=150, samples=32)


def test_figure_7(tmp_path, monkeypatch):
    curves = one_batch.BatchCurves(surrogate=[[0.0, 1.0], [0.0, 3.0]], ratio_deviation=[[0.0, 0.1], [0.0, 0.2]])
    data = one_batch.OneBatch(0.25, {"spo": curves, "simple": curves})
    monkeypatch.setattr(one_batch, "one_batch_curves", lambda: data)
    drawn_twice("fig7", tmp_path)
    figure = draw_one_batch(data)
    surrogate, deviation = figure.axes
    assert [line.get_ydata().tolist() for line in surrogate.lines] == [[0.0, 2.0], [0.0, 2.0]]
    assert deviation.lines[0].get_ydata()[-1] == pytest.approx(0.15)
    assert deviation.lines[-1].get_ydata() == [0.25, 0.25] and deviation.texts[0].get_text() == "ε = 0.25"
    assert figure.legends[0].get_title().get_text() == "mean and range over 2 seeds"
    pyplot().close(figure)
