"""The rewriter: what it finds, what it refuses, and what it leaves of the host's function."""

import ast
import inspect
import re
import subprocess
import sys
import traceback
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hosting import PAGE

from spo.errors import SpoError
from spo.integrations.hosts import HOSTS, Host, numbers
from spo.integrations.objective import GIVEN, fitting_objectives, make_hosted, why_not
from spo.integrations.rewriting import find_expressions, rewrite
from spo.objectives import OBJECTIVES, Objective, ppo_clip, ratio_of, spo

HOST = Host("example", "torch", oldest="1.0", tested="2.13.0", epsilon="clip_range")

# Forms in which hosts write the same thing: as functions and methods, negated, named before, inline.
FORMS = {
    "named products": """
    ratio = torch.exp(new - old)
    one = advantage * ratio
    two = advantage * torch.clamp(ratio, 1 - epsilon, 1 + epsilon)
    return torch.min(one, two)""",
    "maximum of negatives": """
    ratio = (new - old).exp()
    return -torch.max(-advantage * ratio, -advantage * ratio.clamp(1.0 - epsilon, 1.0 + epsilon))""",
    "negated product": """
    ratio = torch.exp(new - old)
    return -torch.maximum(-(ratio * advantage), -(torch.clip(ratio, 1 - epsilon, 1 + epsilon) * advantage))""",
    "clipped ratio of its own name": """
    ratio = torch.exp(new - old)
    clipped = torch.clamp(ratio, 1 - epsilon, 1 + epsilon)
    return torch.minimum(clipped * advantage, ratio * advantage)""",
    "keywords": """
    ratio = torch.exp(new - old)
    return torch.min(ratio * advantage, torch.clamp(ratio, min=1 - epsilon, max=1 + epsilon) * advantage)""",
    "reshaped": """
    ratio = (new - old).exp().float()
    ratio = ratio.reshape(-1)
    return torch.min(ratio * advantage, ratio.clamp(1 - epsilon, 1 + epsilon) * advantage)""",
}
OTHERS = {
    "dual clip alone": "return torch.max(advantage * torch.exp(new - old), 3 * advantage)",
    "value clip": "return torch.max((new - old) ** 2, (old + torch.clamp(new - old, -epsilon, epsilon)) ** 2)",
    "clip of something else": """
    ratio = torch.exp(new - old)
    return torch.min(ratio * advantage, advantage * torch.clamp(new, 1 - epsilon, 1 + epsilon))""",
    "the wrong sign": """
    ratio = torch.exp(new - old)
    return torch.max(ratio * advantage, advantage * torch.clamp(ratio, 1 - epsilon, 1 + epsilon))""",
    "two advantages": """
    ratio = torch.exp(new - old)
    return torch.min(ratio * advantage, new * torch.clamp(ratio, 1 - epsilon, 1 + epsilon))""",
    "an advantage that changes on the way": """
    ratio = torch.exp(new - old)
    one = advantage * ratio
    two = advantage * torch.clamp(ratio, 1 - epsilon, 1 + epsilon)
    advantage = advantage * 2
    return torch.min(one, two)""",
    "bounds that are not around 1": """
    ratio = torch.exp(new - old)
    return torch.min(ratio * advantage, advantage * torch.clamp(ratio, 1 / epsilon, 1 + epsilon))""",
}


def make(body: str, tmp_path, arguments: str = "new, old, advantage, epsilon", head: str = "import torch"):
    """A function of a file, as a host's are."""
    path = tmp_path / "host.py"
    path.write_text(f"{head}\n\n\ndef loss({arguments}):{body if body[0] == chr(10) else chr(10) + '    ' + body}\n")
    namespace: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    return namespace["loss"]


@pytest.fixture
def samples():
    generator = torch.Generator().manual_seed(3)
    new, old, advantage = torch.randn(3, 64, generator=generator)
    return new.requires_grad_(), old, advantage, 0.2


@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
def test_every_form_is_found_and_replaced(body, tmp_path, samples):
    host = make(body, tmp_path)
    new, old, advantage, epsilon = samples
    through = rewrite(host, HOST, make_hosted("ppo-clip", HOST))(*samples)
    assert torch.equal(through, host(*samples))
    ours = rewrite(host, HOST, make_hosted("spo", HOST))(*samples)
    assert torch.equal(ours, spo(torch.exp(new - old), advantage, epsilon=epsilon))
    gradients = [torch.autograd.grad(values.sum(), new)[0] for values in (through, host(*samples))]
    assert torch.allclose(*gradients, atol=1e-6)


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_nothing_else_is_taken_for_it(body, tmp_path):
    with pytest.raises(SpoError, match="has 0 expressions .* expected were 1"):
        rewrite(make(body, tmp_path), HOST, make_hosted("spo", HOST))


def test_two_places_are_refused_unless_expected(tmp_path, samples):
    twice = FORMS["keywords"].replace("return ", "first = ") + "\n    " + FORMS["keywords"].split("\n")[-1].strip()
    host = make(twice, tmp_path)
    with pytest.raises(SpoError, match=r"torch \d\S*: loss has 2 expressions .* pip install .torch==2.13.0."):
        rewrite(host, HOST, make_hosted("spo", HOST))
    assert rewrite(host, HOST, make_hosted("spo", HOST), expressions=2)(*samples).isfinite().all()


def test_what_cannot_be_read_is_refused(tmp_path):
    def enclosed():
        return tmp_path

    with pytest.raises(SpoError, match="enclosed depends on variables around it"):
        rewrite(enclosed, HOST)
    with pytest.raises(SpoError, match="has no source to read"):
        rewrite(torch.exp, HOST)
    gone = make(FORMS["keywords"], tmp_path)
    (tmp_path / "host.py").unlink()
    with pytest.raises(SpoError, match="has no source to read"):
        rewrite(gone, HOST)


def test_a_traceback_shows_the_hosts_line(tmp_path):
    host = make(FORMS["named products"], tmp_path)

    def fail(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        rewrite(host, HOST, fail)(torch.zeros(1), torch.zeros(1), torch.zeros(1), 0.2)
    frame = traceback.extract_tb(caught.value.__traceback__)[1]
    assert (frame.filename, frame.line) == (str(tmp_path / "host.py"), "return torch.min(one, two)")


def test_the_hosts_module_is_left_alone_and_its_flags_are_kept(tmp_path, samples):
    body = '\n    """Text\n  as it is."""' + FORMS["keywords"]
    head = "from __future__ import annotations\nimport torch"
    host = make(body, tmp_path, "new: Unknown, old, advantage, epsilon, *, scale: float = 2.0", head)
    before = dict(host.__globals__)
    ours = rewrite(host, HOST, make_hosted("spo", HOST))
    assert host.__globals__ == before and ours.__globals__ is host.__globals__
    assert (ours.__name__, ours.__doc__, inspect.signature(ours)) == ("loss", host.__doc__, inspect.signature(host))
    assert ours(*samples).isfinite().all()


def test_a_method_asks_its_instance(tmp_path, samples):
    body = FORMS["maximum of negatives"].replace("epsilon", "self.width")
    ours = rewrite(make(body, tmp_path, "self, new, old, advantage"), HOST)
    new, old, advantage, _ = samples
    instance = SimpleNamespace(width=0.3, hosted_objective=make_hosted("spo", HOST))
    expected = spo(torch.exp(new - old), advantage, epsilon=0.3)
    assert torch.equal(ours(instance, new, old, advantage), expected)


def test_what_else_an_objective_is_given_must_be_there(tmp_path, samples):
    host = make(FORMS["keywords"], tmp_path)
    seen = {}
    ours = rewrite(
        host, HOST, lambda ratio, advantage, low, **others: seen.update(others), inputs={"old_log_prob": "old"}
    )
    ours(*samples)
    assert seen == {"old_log_prob": samples[1]}
    with pytest.raises(SpoError, match="has no variable 'older' any more"):
        rewrite(host, HOST, inputs={"old_log_prob": "older"})


@pytest.mark.parametrize("log_ratio", [15.5, 20.0, 50.0, 88.0, 90.0])
def test_a_ratio_that_overflows_has_the_trainers_slope(log_ratio, tmp_path):
    """Through the whole of the host's function, so through the exponential that would give 0·∞."""
    host = make(FORMS["named products"], tmp_path)
    ours = rewrite(host, HOST, make_hosted("spo", HOST))
    new = torch.tensor([log_ratio, 0.1], requires_grad=True)
    value = ours(new, torch.zeros(2), torch.tensor([-1.0, 1.0]), 0.2)
    largest = torch.tensor(15.0).exp()
    (gradient,) = torch.autograd.grad(value.sum(), new)
    assert value.isfinite().all() and gradient.isfinite().all()
    slope = (-1 - (largest - 1) / 0.2) * largest
    assert torch.isclose(gradient[0], slope) and torch.isclose(value[0], -largest - (largest - 1) ** 2 / 0.4)


def test_a_ratio_that_does_not_overflow_keeps_its_bits():
    log_ratio = torch.cat([torch.linspace(-200, 15, 5001), torch.tensor([-torch.inf])]).requires_grad_()
    ours, plain = ratio_of(log_ratio), log_ratio.exp()
    assert torch.equal(ours, plain)
    weights = torch.linspace(-1, 1, len(log_ratio))
    gradients = [torch.autograd.grad((weights * ratio).sum(), log_ratio)[0] for ratio in (ours, plain)]
    assert torch.equal(*gradients)


def test_what_fits_follows_from_the_registry():
    always = {"spo", "spo-power", "ppo-clip", "simple", "ppo-rb", "ppo-dual-clip", "aspo", "clip-higher"}
    assert set(fitting_objectives()) == always
    assert set(fitting_objectives(keeps_state=True)) == always | {"spo-adaptive"}
    assert set(fitting_objectives((*GIVEN, "old_log_prob"))) == always | {"drpo"}
    never = {"ppo-penalty", "spu", "tr-ppo", "tr-ppo-rb", "rpo-reflective", "trpo", "espo", "truly-ppo"}
    assert not never & set(fitting_objectives(keeps_state=True))
    for name in never:
        with pytest.raises(SpoError, match=rf"objective '{name}' does not fit into torch .*: it .*; these fit: spo, "):
            make_hosted(name, HOST)


def test_bad_settings_are_refused_in_a_sentence():
    for name, settings, sentence in (
        ("sppo", {}, "objective 'sppo' is unknown; accepted: spo"),
        ("no_such_module:f", {}, "objective 'no_such_module:f' cannot be imported"),
        ("spo", {"epsilon": 0.1}, "epsilon 0.1 is not accepted: in torch .* its name is clip_range"),
        (
            "spo",
            {"alpha": 0.1},
            "objective 'spo' has no setting 'alpha'; it has epsilon, which in torch .* is clip_range$",
        ),
        ("ppo-rb", {"beta": 0.1}, "objective 'ppo-rb' has no setting 'beta'; it has alpha, epsilon, which in torch .*"),
        ("ppo-rb", {"alpha": "a"}, "setting alpha of objective 'ppo-rb' is 'a'; accepted is a number"),
    ):
        with pytest.raises(SpoError, match=sentence):
            make_hosted(name, HOST, settings)


def test_the_pages_example_of_a_setting_is_taken():
    example = r'`objective="(.+)"` and `objective_settings={"(.+)": (.+)}`'
    name, setting, value = re.search(example, PAGE.read_text()).groups()
    ratio, advantage, setting = torch.tensor([1.5, 0.5]), torch.ones(2), {setting: float(value)}
    expected = OBJECTIVES[name].function(ratio, advantage, epsilon=0.2, **setting)
    assert torch.equal(make_hosted(name, HOST, setting)(ratio, advantage, 0.2), expected)
    assert not torch.equal(expected, make_hosted(name, HOST)(ratio, advantage, 0.2))


def test_two_widths_go_to_the_side_that_they_bound():
    ratio, advantage = torch.tensor([1.5, 0.5, 1.5, 0.5]), torch.tensor([1.0, 1.0, -1.0, -1.0])
    widths = torch.where(advantage > 0, 0.3, 0.1)
    assert torch.equal(make_hosted("spo", HOST)(ratio, advantage, 0.1, 0.3), spo(ratio, advantage, epsilon=widths))
    clipped = torch.minimum(ratio * advantage, ratio.clamp(1 - 0.1, 1 + 0.3) * advantage)
    for name in ("ppo-clip", "clip-higher"):
        assert torch.equal(make_hosted(name, HOST)(ratio, advantage, 0.1, 0.3), clipped)
    higher = make_hosted("clip-higher", HOST, {"epsilon_high": 0.4})(ratio, advantage, 0.1)
    assert torch.equal(higher, torch.minimum(ratio * advantage, ratio.clamp(1 - 0.1, 1 + 0.4) * advantage))


def test_objectives_take_arrays_of_numpy():
    """JAX's are tried where JAX is, in test_sbx.py."""
    rng = np.random.default_rng(1)
    ratio, advantage = np.exp(rng.normal(size=300, scale=0.5)), rng.normal(size=300)
    for name in fitting_objectives():
        tensors = make_hosted(name, HOST)(torch.from_numpy(ratio), torch.from_numpy(advantage), 0.1, 0.3)
        arrays = make_hosted(name, HOST)(ratio, advantage, 0.1, 0.3)
        np.testing.assert_allclose(arrays, tensors.numpy(), rtol=1e-12)


def test_the_ratios_statistics_are_kept_and_begin_anew():
    hosted = make_hosted("spo", HOST)
    assert hosted.end_iteration() == {}
    for ratios in ([1.0, 1.5], [0.0, 1.0, 1.5]):
        hosted(torch.tensor(ratios), torch.ones(len(ratios)), 0.2)
    kept = hosted.end_iteration()
    assert kept == pytest.approx(
        {"ratio_deviation": 0.375, "ratio_deviation_max": 0.5, "ratio_deviation_sample_max": 1.0}
    )
    assert hosted.end_iteration() == {}


def test_a_setting_that_is_fed_back_starts_from_the_hosts(monkeypatch):
    def widened(epsilon: float, ratio_deviation: float, *, factor: float = 2.0) -> float:
        return epsilon * factor + ratio_deviation

    monkeypatch.setitem(OBJECTIVES, "widening", Objective("widening", spo, adapt=widened))
    assert why_not(OBJECTIVES["widening"]) == "adapts epsilon, for which the host has no place"
    hosted = make_hosted("widening", HOST, {"factor": 3.0}, keeps_state=True)
    ratio, advantage = torch.tensor([1.5]), torch.tensor([1.0])
    assert torch.equal(hosted(ratio, advantage, 0.2), spo(ratio, advantage, epsilon=0.2))
    assert hosted.end_iteration()["epsilon"] == 0.2
    assert hosted.adaptive_value == pytest.approx(1.1)
    assert torch.equal(hosted(ratio, advantage, 0.2), spo(ratio, advantage, epsilon=hosted.adaptive_value))


def test_an_objective_asks_for_the_log_ratio(monkeypatch):
    quadratic = Objective("quadratic", lambda log_ratio, advantage: advantage * log_ratio)
    monkeypatch.setitem(OBJECTIVES, "quadratic", quadratic)
    value = make_hosted("quadratic", HOST)(torch.tensor([0.0, 2.0]), torch.ones(2), 0.2)
    assert value.isfinite().all() and torch.isclose(value[1], torch.tensor(2.0).log())


def test_a_missing_an_old_and_a_changed_host_are_named():
    missing = Host("example", "no-such-host", oldest="2.0", tested="2.1", epsilon="clip")
    with pytest.raises(
        SpoError, match=r"spo.integrations.example needs no-such-host, .*policy-optimization\[example\]"
    ):
        missing.require()
    old = Host("example", "torch", oldest="99.0", tested="99.1", epsilon="clip")
    with pytest.raises(SpoError, match=r"torch \S+ is too old: supported is 99.0 or later; pip install 'torch==99.1'"):
        old.require()
    with pytest.raises(
        SpoError, match=r"torch \S+ is not as spo.integrations.example needs it: .*'gone'.*; supported are"
    ):
        with HOST.importing():
            from torch import gone  # noqa: F401
    with pytest.raises(
        SpoError, match=r"Adam has no leap; supported are releases 1.0 to 2.13.0: pip install 'torch==2"
    ):
        HOST.find(torch.optim.Adam, "leap")
    with pytest.raises(SpoError, match="Tensor has no leap"):
        HOST.find(torch.zeros(1), "leap")
    assert HOST.find(torch.optim.Adam, "step") is torch.optim.Adam.step
    assert numbers("2.10.0rc1") > numbers("2.9.2") and numbers("2.13.0+cpu") == (2, 13, 0)


def test_importing_the_package_imports_no_host():
    code = "import sys, spo, spo.integrations.rewriting; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    packages = {place[0].split("/")[0] for host in HOSTS.values() for place in host.places}
    assert packages and not packages & set(done.stdout.split())


def test_expressions_are_found_in_source_alone():
    tree = ast.parse(f"def loss(new, old, advantage, epsilon):{FORMS['named products']}\n")
    assert len(find_expressions(tree.body[0])) == 1
    assert ppo_clip is OBJECTIVES["ppo-clip"].function


def test_the_pages_lines_for_cleanrl_run(samples):
    section = PAGE.read_text().split("\n## CleanRL\n")[1].split("\n## ")[0]
    lines = [line[1:].strip() for line in section.splitlines() if line.startswith("+")]
    new, old, advantage, epsilon = samples
    names = {"ratio": torch.exp(new - old), "mb_advantages": advantage, "args": SimpleNamespace(clip_coef=epsilon)}
    exec("\n".join(lines), names)
    assert torch.equal(names["pg_loss"], -spo(names["ratio"], advantage, epsilon=epsilon).mean())
