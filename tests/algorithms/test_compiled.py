"""What torch compiles is what it does without: part of make test-rest, because compilers take their time."""

import os
import subprocess
import sys

import pytest
import torch
from torch._inductor import list_options
from torch._inductor.cpu_vec_isa import pick_vec_isa

import spo
from crash import SHORT, remains, start_or_resume
from probes import accepts_box, iterate, training
from spo.algorithms.adam import AdamState
from spo.objectives import INPUTS, OBJECTIVES
from spo.runs.directory import RunDirectory
from spo.runtime.torch_tuning import ON_CPU, compile_method


def test_a_compiled_run_resumes_exactly(tmp_path):
    """And its first iteration is the eager one's but for what kernels differ by, which Adam's ε keeps small."""
    settings = {"compile": "on", "adam_eps": 1e-3}
    for name, compile in (("whole", "on"), ("eager", "off")):
        start_or_resume(tmp_path / name, "CartPole-v1", settings | {"compile": compile})
    expected, eager = remains(tmp_path / "whole"), remains(tmp_path / "eager")
    for name, value in eager["metrics"][0].items():
        assert expected["metrics"][0][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    spo.train(
        "CartPole-v1", **SHORT | settings, out=str(tmp_path / "run"), callback=lambda _, row: row["iteration"] < 5
    )
    start_or_resume(tmp_path / "run", "CartPole-v1", settings)
    assert remains(tmp_path / "run") == expected
    assert RunDirectory(tmp_path / "run").read_config()["resolved"]["update"] == "compiled"


PATHS = {
    "spo-adaptive": "discrete", "ppo-penalty": "continuous", "rpo-reflective": "continuous", "espo": "discrete",
    "trpo": "continuous",
}  # fmt: skip
"""Objectives whose updates are compiled from unlike parts: feedback, a divergence with it, the next sample, an end, and
the critic alone. A compilation takes 14 s of a processor."""
TASKS = {"discrete": "CartPole-v1", "continuous": "Pendulum-v1"}
PAIRS = [(name, space) for space in TASKS for name in OBJECTIVES if space == "discrete" or accepts_box(name)]
OTHERS = [(objective, space) for objective, space in PAIRS if PATHS.get(objective) != space]


@pytest.mark.parametrize(
    "objective, space", [*PATHS.items(), *(pytest.param(*pair, marks=pytest.mark.long) for pair in OTHERS)]
)
def test_the_compiled_update_equals_the_eager_one(objective, space):
    """Every parameter agrees to 1e-5 after an iteration from equal weights and batch.

    Two kernels give gradients that differ by some 1e-7. Adam divides by their size plus its ε: with one of 1e-3 a step
    of rate 1e-3 differs by no more than they do, however small they are. And so few steps reach no kink at 1 ± ε.
    """
    settings = {"objective": objective, "envs": 4, "horizon": 64, "epochs": 2, "minibatches": 2, "hidden": (16,)}
    settings |= {"entropy_coef": 0.01, "adam_eps": 1e-3}
    eager, compiled = (training(TASKS[space], **settings) for _ in range(2))
    compiled.update.compile(compiled.example_batch())
    if objective == "spo-adaptive":  # a width that is fed back later reaches the step that was compiled before
        for run in (eager, compiled):
            run.update.adaptive_values["epsilon"] = 0.05
    rows = [iterate(run, 1)[0] for run in (eager, compiled)]
    torch.testing.assert_close(compiled.parameters.vector, eager.parameters.vector, rtol=0, atol=1e-5)
    torch.testing.assert_close(
        compiled.update.epochs.adam.second, eager.update.epochs.adam.second, rtol=1e-3, atol=1e-6
    )
    assert rows[0].keys() == rows[1].keys()
    for name, value in rows[0].items():
        assert rows[1][name] == pytest.approx(value, rel=1e-3, abs=1e-4), name


class Everything:
    """The values of all objectives and the slopes of their sum in every input, as one function of tensors."""

    def __call__(self, inputs: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], list[torch.Tensor]]:
        return torch.func.grad(self.total, has_aux=True)(inputs)

    def total(self, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        values = [each.function(*(inputs[name] for name in each.inputs)) for each in OBJECTIVES.values()]
        return torch.stack(values).sum(), values


def test_every_objective_compiled_equals_itself():
    """On both sides of every bound and trigger, in one compilation."""
    draw = torch.Generator().manual_seed(0)
    uniform = {name: torch.rand(512, generator=draw) for name in INPUTS}
    inputs = uniform | {name: 0.5 + uniform[name] for name in ("ratio", "next_ratio")}
    inputs |= {"log_ratio": inputs["ratio"].log(), "has_next": (uniform["has_next"] > 0.5).float()}
    inputs |= {name: 4 * uniform[name] - 2 for name in ("advantage", "next_advantage")}
    inputs |= {name: 0.1 * uniform[name] for name in ("kl", "kl_reverse")} | {"old_log_prob": -uniform["old_log_prob"]}
    expected = Everything()(inputs)  # first, because it fills caches that a compilation cannot look into
    slopes, values = compile_method(Everything().__call__, torch.device("cpu"))(inputs)
    for name, slope in expected[0].items():
        torch.testing.assert_close(slopes[name], slope, rtol=1e-4, atol=1e-4, msg=name)
    for name, value, other in zip(OBJECTIVES, values, expected[1], strict=True):
        torch.testing.assert_close(value, other, rtol=1e-5, atol=1e-5, msg=name)


TANH = """
import torch
from spo.runtime.torch_tuning import compile_method

class Tanh:
    def __call__(self, x):
        return x.tanh()

x = torch.linspace(-12, 12, 4001)
print((compile_method(Tanh().__call__, torch.device("cpu"))(x).double() - x.double().tanh()).abs().max().item())
"""


@pytest.mark.long
def test_what_another_processor_left_in_torchs_cache_is_not_taken(tmp_path):
    """A cache outlives a processor: on machines that are moved, in a home that several share."""
    for capability in ("avx512", "avx2", "default"):
        own = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "ATEN_CPU_CAPABILITY": capability}
        done = subprocess.run([sys.executable, "-c", TANH], env=os.environ | own, capture_output=True, text=True)
        assert done.returncode == 0 and float(done.stdout) < 2.5e-7, (capability, done.stderr[-2000:])


def test_a_compilation_is_of_this_processors_width(monkeypatch):
    given = {}
    monkeypatch.setattr(torch, "compile", lambda method, **keywords: given.update(keywords["options"]))
    compile_method(AdamState.like(torch.zeros(1)).corrections, torch.device("cpu"))
    assert given["cpp.simdlen"] == pick_vec_isa().bit_width()


def test_the_compiler_knows_our_settings_and_its_tanh_stays_one():
    class Tanh:
        def __call__(self, x):
            return x.tanh()

    assert ON_CPU.keys() <= set(list_options())
    x = torch.linspace(-12, 12, 4001)
    error = compile_method(Tanh().__call__, torch.device("cpu"))(x).double() - x.double().tanh()
    assert 0 < error.abs().max() < 2.5e-7


def test_more_networks_can_be_compiled_in_one_process_than_torch_compiles_of_one_code_object():
    """It gives up after eight; here after one, to be sooner there."""

    class Doubled:
        def __init__(self, rows):
            self.rows = rows

        def __call__(self, x):
            return x * 2 + self.rows

    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        for rows in (1, 2, 3):
            doubled = compile_method(Doubled(rows).__call__, torch.device("cpu"))
            assert doubled(torch.ones(rows)).tolist() == [2.0 + rows] * rows
