"""The shape of the code: imports point one way, functions stay short, nothing unsafe is loaded."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "spo"
MODULES = sorted(SOURCE.rglob("*.py"))

# A module may import from its own layer (without cycles) and from those to its right.
LAYERS = [
    {"cli", "__main__"},
    {"api", "bench", "doctor", "theory"},
    {"trainer"},
    {"profile"},
    {"recording"},
    {"training"},
    {"presets"},
    {"checks"},
    {"trust_region", "evaluation", "metrics"},
    {"improve", "checkpoint"},
    {"losses", "policy"},
    {"rollout"},
    {"networks", "envs", "normalize", "rundir"},
    {"config"},
    {"encoders"},
    {"distributions", "flags", "spaces"},
    {"integrations"},
    {"objectives", "seeding", "errors", "interrupts", "libraries", "speed"},
]
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
WITHOUT_TORCH = {"libraries", "rundir", "checkpoint", "interrupts", "errors", "seeding", "normalize", "flags", "theory"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def own_imports(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imports(path) if name.startswith("spo.")} & set(DEPTH)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path):
    if name_of(path) == "__init__":
        return
    for other in own_imports(path) - {name_of(path)}:
        assert DEPTH[other] >= DEPTH[name_of(path)], f"{name_of(path)} imports {other}"


def test_no_two_modules_import_each_other():
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        graph.setdefault(name_of(path), set()).update(own_imports(path) - {name_of(path)})
    for name, others in graph.items():
        for other in others:
            assert name not in graph.get(other, set()), f"{name} and {other} import each other"


def test_integrations_need_the_objectives_alone():
    """So that a host imports no trainer, and its users need none of the trainer's libraries."""
    for path in MODULES:
        if name_of(path) == "integrations":
            assert own_imports(path) <= {"integrations", "objectives", "errors"}, path


def test_what_reads_runs_needs_no_torch():
    for path in MODULES:
        if name_of(path) in WITHOUT_TORCH:
            assert not any(name.split(".")[0] == "torch" for name in imports(path)), path
    objectives = {name.split(".")[0] for name in imports(SOURCE / "objectives.py")}
    assert objectives <= {
        "torch",
        "inspect",
        "collections",
        "dataclasses",
        "functools",
        "importlib",
        "math",
        "types",
        "typing",
    }


def test_importing_the_package_is_light():
    import subprocess
    import sys

    code = "import sys, spo, spo.rundir; print('torch' in sys.modules, 'gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def functions():
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                yield f"{path.name}:{node.name}", node.end_lineno - node.lineno + 1


def test_functions_and_files_stay_short():
    lengths = sorted(length for _, length in functions())
    assert lengths[len(lengths) // 2] <= 10
    assert [name for name, length in functions() if length > 60] == []
    assert [path.name for path in MODULES if len(path.read_text().splitlines()) > 400] == []


REWRITES_HOSTS = SOURCE / "integrations" / "rewriting.py"
"""May run what it compiles: the host's own installed function, of which it has replaced one expression."""


def test_nothing_unsafe_is_loaded():
    forbidden = {"pickle", "cloudpickle", "marshal", "shelve", "yaml", "dill"}
    for path in MODULES:
        assert not {name.split(".")[0] for name in imports(path)} & forbidden, path
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                allowed = {"exec"} if path == REWRITES_HOSTS else set()
                assert node.func.id not in {"eval", "exec", "__import__"} - allowed, f"{path}:{node.lineno}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) != ("torch", "load"), f"{path}:{node.lineno}"
