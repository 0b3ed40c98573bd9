"""Exported policies against the policies they were made of, and the page that runs them without this package."""

import json
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from spo.errors import SpoError
from spo.models.export import ExportedPolicy, describe, export_policy, input_names
from spo.models.normalization import ObservationNormalizer
from spo.models.policy import Policy, PolicySpec
from spo.spaces import at

DOCS = Path(__file__).parents[2] / "docs"
BATCH = 1000
NUMBERS = gym.spaces.Box(-np.inf, np.inf, (5,))
BYTES = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8)
TINY = gym.spaces.Box(0, 1, (4, 10, 10), np.bool_)
CHOICES = gym.spaces.MultiDiscrete([3, 2], start=[1, -1])
MIXED = gym.spaces.Dict(
    {
        "camera": gym.spaces.Box(0, 255, (16, 16, 3), np.uint8),
        "arm": gym.spaces.Dict({"angle": gym.spaces.Box(-3, 3, (2, 2), np.float64), "mode": gym.spaces.Discrete(3)}),
        "flags": gym.spaces.MultiBinary(2),
        "choice": CHOICES,
    }
)
FAR = gym.spaces.Box(np.array([0, -0.1], np.float32), np.array([100, 0.1], np.float32))
CASES = {
    "gaussian": (NUMBERS, gym.spaces.Box(-1, 1, (2, 2)), {}),
    "float64": (gym.spaces.Box(-1, 1, (3,), np.float64), gym.spaces.Box(-2, 2, (1,), np.float64), {}),
    "scaled": (NUMBERS, FAR, {"action_scale": "bounds"}),
    "gaussian-state": (NUMBERS, FAR, {"distribution": "gaussian-state"}),
    "squashed": (NUMBERS, FAR, {"distribution": "squashed"}),
    "beta": (NUMBERS, FAR, {"distribution": "beta"}),
    "discrete": (NUMBERS, gym.spaces.Discrete(4, start=2), {"activation": "relu"}),
    "multi-discrete": (gym.spaces.Discrete(6, start=-2), gym.spaces.MultiDiscrete([2, 5]), {"activation": "elu"}),
    "numbers by name": (
        gym.spaces.Dict([("z", gym.spaces.Box(-1, 1, ())), ("a", gym.spaces.Box(-1, 1, (2,)))]),
        gym.spaces.Box(-1, 1, (2,)),
        {},
    ),
    "multi-binary": (gym.spaces.Tuple([NUMBERS, gym.spaces.Discrete(3)]), gym.spaces.MultiBinary(3), {}),
    "dict": (MIXED, gym.spaces.Discrete(3), {"activation": "silu"}),
    "nature": (BYTES, gym.spaces.Discrete(3), {"encoder": "nature"}),
    "small": (TINY, gym.spaces.Discrete(3), {"encoder": "small"}),
    "resnet18": (gym.spaces.Box(0, 255, (3, 32, 32), np.uint8), gym.spaces.Discrete(3), {"encoder": "resnet18"}),
    "mlp": (gym.spaces.Box(0, 255, (8, 8, 3), np.uint8), gym.spaces.Discrete(3), {"encoder": "mlp"}),
}


def make_policy(observation_space: gym.Space, action_space: gym.Space, changes: dict[str, str]) -> Policy:
    """Make a policy with random statistics and heads that tell observations apart."""
    layers = {"hidden": (16,), "critic_hidden": (4,), "activation": "tanh", "encoder": "auto"}
    spec = PolicySpec("Some-v0", "spo", observation_space, action_space, **(layers | changes))
    network, draw = spec.network(seed=1), np.random.default_rng(2)
    with torch.no_grad():
        network.actor[-1].weight.mul_(100)
    normalizer = ObservationNormalizer("shared", 1, spec.layout.continuous_size)
    normalizer.moments.mean[:] = draw.normal(size=normalizer.moments.mean.shape)
    normalizer.moments.variance[:] = draw.uniform(0.1, 3, normalizer.moments.variance.shape)
    return Policy(spec, network, normalizer)


def observe(policy: Policy, count: int) -> tuple[object, dict[str, np.ndarray]]:
    """Draw observations: as a batch for `act`, and as the named inputs of an exported file."""
    space = policy.spec.observation_space
    space.seed(3)
    samples = [space.sample() for _ in range(count)]
    leaves = policy.spec.layout.leaves
    inputs = {
        name: np.stack([np.asarray(at(sample, path), leaf.dtype) for sample in samples])
        for name, (path, leaf) in zip(input_names(policy), leaves)
    }
    return samples, inputs


def act_on_each(policy: Policy, samples: list, masks: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return what the policy does, and the parameters that it does it by."""
    packed = np.stack([np.asarray(policy.spec.layout.pack(sample)) for sample in samples])
    params = policy.actor.dist_params(policy.normalizer(packed))
    if masks is not None:
        params = policy.distribution.mask(params, masks)
    return policy.distribution.to_env(policy.distribution.mode(params)), params


def check_parity(policy: Policy, action: np.ndarray, params: np.ndarray, expected: tuple[np.ndarray, np.ndarray]):
    expected_action, expected_params = expected
    unmasked = expected_params > -1e8
    scale = max(1.0, float(np.abs(expected_params[unmasked]).max()))
    np.testing.assert_allclose(params, expected_params, atol=1e-5 * scale)
    assert action.shape == expected_action.shape and action.dtype == expected_action.dtype
    if policy.distribution.is_continuous:
        widths = np.maximum(np.abs(policy.distribution.high - policy.distribution.low), 1)
        assert (np.abs(action - expected_action) <= 1e-5 * scale * widths).all()
        return
    is_close = (np.abs(params) < 1e-5 * scale).any(-1) | _has_close_choices(policy, expected_params, 1e-5 * scale)
    assert is_close.mean() < 0.01 and np.array_equal(action[~is_close], expected_action[~is_close])
    assert len(np.unique(action, axis=0)) > 1  # a policy that always does the same would show nothing


def _has_close_choices(policy: Policy, params: np.ndarray, margin: float) -> np.ndarray:
    """Where the two best of a choice are so close that either may be taken."""
    sizes = getattr(policy.distribution, "sizes", ())
    parts = np.split(params, np.cumsum(sizes)[:-1], axis=-1) if sizes else []
    gaps = [np.diff(np.sort(part)[:, -2:])[:, 0] for part in parts]
    return np.min(gaps, axis=0) < margin if gaps else np.zeros(len(params), bool)


@pytest.mark.parametrize("name", CASES)
def test_an_onnx_file_acts_like_the_policy(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    policy = make_policy(*CASES[name])
    samples, inputs = observe(policy, BATCH)
    session = runtime.InferenceSession(export_policy(policy, tmp_path / "policy.onnx"))
    assert {value.name for value in session.get_inputs()} == set(inputs)
    action, params = session.run(["action", "distribution_params"], inputs)
    check_parity(policy, action, params, act_on_each(policy, samples))
    one = session.run(["action"], {name: array[:1] for name, array in inputs.items()})[0]
    assert one.shape == (1, *action.shape[1:])
    described = json.loads(session.get_modelmeta().custom_metadata_map["policy.json"])
    assert described == json.loads(json.dumps(describe(policy, list(inputs))))


def test_a_file_tells_the_bounds_of_actions():
    described = describe(make_policy(*CASES["scaled"]), ["observation"])["action_space"]
    assert described["low"] == pytest.approx([0, -0.1]) and described["high"] == pytest.approx([100, 0.1])
    unbounded = make_policy(NUMBERS, gym.spaces.Box(-np.inf, np.inf, (1, 1)), {})
    assert describe(unbounded, [])["action_space"]["low"] == [None]  # JSON has no infinity


@pytest.mark.parametrize("name", ["discrete", "multi-discrete"])
def test_an_onnx_file_can_take_masks(name, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    policy = make_policy(*CASES[name])
    samples, inputs = observe(policy, BATCH)
    masks = np.random.default_rng(4).random((BATCH, policy.distribution.params_size)) < 0.5
    starts = np.cumsum([0, *policy.distribution.sizes[:-1]])
    masks[:, starts] = True  # something is always allowed
    session = runtime.InferenceSession(export_policy(policy, tmp_path / "policy.onnx", has_mask=True))
    action, params = session.run(["action", "distribution_params"], inputs | {"action_mask": masks})
    check_parity(policy, action, params, act_on_each(policy, samples, masks))


@pytest.mark.parametrize("name", CASES)
def test_a_program_of_torch_export_acts_like_the_policy(name, tmp_path):
    policy = make_policy(*CASES[name])
    samples, inputs = observe(policy, BATCH)
    extra = {"policy.json": ""}
    program = torch.export.load(str(export_policy(policy, tmp_path / "policy.pt2")), extra_files=extra)
    tensors = [torch.from_numpy(array) for array in inputs.values()]
    action, params = (output.numpy() for output in program.module()(*tensors))
    check_parity(policy, action, params, act_on_each(policy, samples))
    assert json.loads(extra["policy.json"])["env"] == "Some-v0"


def test_what_cannot_be_exported_is_refused(tmp_path, monkeypatch):
    policy = make_policy(*CASES["gaussian"])
    with pytest.raises(SpoError, match="policy.txt is not accepted: the name must end in .onnx or .pt2"):
        export_policy(policy, tmp_path / "policy.txt")
    with pytest.raises(SpoError, match="an action mask is not accepted for action space Box"):
        export_policy(policy, tmp_path / "policy.onnx", has_mask=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(SpoError, match="file"):
        export_policy(policy, tmp_path / "file" / "policy.pt2")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(SpoError, match=r"policy.onnx needs: pip install 'simple-policy-optimization\[export\]'"):
        export_policy(policy, tmp_path / "policy.onnx")
    assert isinstance(ExportedPolicy(policy), torch.nn.Module) and len(list(tmp_path.iterdir())) == 1


def read_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_page_runs_the_file_without_this_package_or_torch(tmp_path):
    """In a Python that finds, beside its own library, onnxruntime and NumPy and what those need."""
    runtime = pytest.importorskip("onnxruntime")
    export_policy(make_policy(*CASES["gaussian"]), tmp_path / "policy.onnx")
    installed, alone = Path(runtime.__file__).parents[1], tmp_path / "alone"
    alone.mkdir()
    for pattern in ("onnxruntime", "numpy*", "flatbuffers", "google", "packaging"):
        for found in installed.glob(pattern):
            (alone / found.name).symlink_to(found)
    blocked = "import importlib.util as u; assert not any(map(u.find_spec, ('torch', 'spo', 'gymnasium')))"
    code = f"import sys; sys.path.append({str(alone)!r}); {blocked}\n{read_blocks('deploy.md')[0]}"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Some-v0 [")


def test_the_pages_numpy_is_the_policy(tmp_path, monkeypatch):
    from spo.models.policy_files import save_policy

    policy = make_policy(NUMBERS, gym.spaces.Box(-1, 1, (2,)), {"hidden": (16, 8)})
    save_policy(policy, tmp_path / "policy")
    monkeypatch.chdir(tmp_path)
    code = read_blocks("deploy.md")[1] + "\nimport sys; print(*act(np.linspace(-1, 1, 5)).tolist())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(
        np.array(done.stdout.split(), float), policy.act(np.linspace(-1, 1, 5).astype(np.float64)), atol=1e-6
    )
