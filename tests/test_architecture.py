"""The shape of the code: imports point one way, functions stay short, nothing unsafe is loaded."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import spo

SOURCE = Path(__file__).parent.parent / "src" / "spo"
MODULES = sorted(SOURCE.rglob("*.py"))

# A package or module of the top may import from its own layer (without cycles) and from those below it.
LAYERS = [
    {"cli", "__main__"},
    {"watch"},
    {"experiments", "theory"},
    {"runs"},
    {"evaluation", "trainer"},
    {"algorithms", "rollout"},
    {"envs"},
    {"config"},
    {"models"},
    {"objectives", "spaces", "runtime", "errors", "integrations"},
]
DEPTH = {name: depth for depth, layer in enumerate(LAYERS) for name in layer}
# The same inside experiments, whose files are many.
EXPERIMENTS = [
    {"report", "tune"},
    {"run_sweep", "compare", "pack"},
    {"figures"},
    {"console", "command_lines", "executors", "verdict", "figure_data"},
    {"answer"},
    {"run_time", "scores", "agreement", "worker", "tune_worker"},
    {"results", "random_scores"},
    {"sweep", "history"},
    {"plan", "statistics"},
]
READ_WITHOUT_TORCH = (
    "spo.models.choose_distribution",
    "spo.models.image_encoders",
    "spo.runs.console",
    "spo.runs.directory",
    "spo.runs.summary",
    "spo.runs.checkpoint",
    "spo.runtime.files",
    "spo.experiments.results",
    "spo.experiments.report.page",
    "spo.experiments.figures",
    "spo.envs.shared_memory",
    "spo.envs.subproc",
    "spo.theory.findings",
    "spo.watch.command",
    "spo.watch.text",
    "spo.watch.catalogue",
)


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


def test_files_of_experiments_point_one_way():
    depth = {name: number for number, layer in enumerate(EXPERIMENTS) for name in layer}
    for path in (SOURCE / "experiments").rglob("*.py"):
        name = path.relative_to(SOURCE / "experiments").parts[0].removesuffix(".py")
        others = {other.split(".")[2] for other in imports(path) if other.startswith("spo.experiments.")} & set(depth)
        for other in others - {name}:
            assert depth[other] > depth[name], f"{name} imports {other}"


@pytest.mark.parametrize("module", READ_WITHOUT_TORCH)
def test_what_reads_runs_or_steps_environments_needs_no_torch(module):
    code = f"import sys, {module}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_objectives_need_torch_alone():
    found = {name.split(".")[0] for name in imports(SOURCE / "objectives.py")}
    own = {"__future__", "inspect", "collections", "dataclasses", "functools", "importlib", "math", "types", "typing"}
    assert found <= {"torch", *own}


def test_importing_the_package_is_light():
    code = "import sys, spo, spo.runs.directory; print('torch' in sys.modules, 'gymnasium' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_type_checkers_see_the_names_that_are_imported_when_used():
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (guarded,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in guarded.body for alias in node.names}
    assert seen == spo._HOME | dict.fromkeys(spo._MODULES, "spo")
    assert all(getattr(spo, name) is not None for name in spo.__all__) and set(spo.__all__) == set(seen)


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
