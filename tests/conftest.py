"""Settings of every test: libraries, threads, examples, what is long, and what is closed."""

import gc
from pathlib import Path

from spo.runtime import library_env

library_env.set_library_env()

import pytest
from hypothesis import settings

from probes import MADE, THREADS

# On a busy machine an example may take any time. What newcomers run repeats itself; the long tests draw anew.
settings.register_profile("short", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("long", deadline=None)


HERE = Path(__file__).parent
REST = {
    *(HERE / "integrations").glob("test_*.py"), HERE / "experiments/test_ray.py", HERE / "watch/test_watch_pages.py",
    HERE / "algorithms/test_compiled.py", HERE / "models/test_export.py",
    HERE / "test_docs.py", HERE / "test_examples.py",
} - {HERE / "integrations/test_rewriting.py"}  # fmt: skip
"""What needs other libraries, a cluster, a browser or a compiler, or is of the documentation: make test-rest."""


def pytest_addoption(parser):
    parser.addoption("--rest", action="store_true", help="only what make test leaves to make test-rest")
    parser.addoption(
        "--long", action="store_true", help="all, with many more kills, mutations and fuzzed settings, and a soak"
    )


def pytest_configure(config):
    settings.load_profile("long" if config.getoption("--long") else "short")


def pytest_ignore_collect(collection_path, config):
    """Does not even import files of the rest, unless an option asks for it or they are named."""
    if collection_path not in REST or config.getoption("--rest") or config.getoption("--long"):
        return None
    named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    return None if named & {collection_path, collection_path.parent} - {HERE} else True


def pytest_collection_finish():
    """Spares the garbage collector all that was imported: a twentieth of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def compute_in_few_threads():
    import torch  # takes seconds, which the process that only hands out tests need not spend

    torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def close_environments():
    """What is still open when Python ends is told as a leak by the library of the games."""
    yield
    while MADE:
        MADE.pop().envs.close()


@pytest.fixture
def amount(request):
    """How much of something a test does: amount(in make test and test-rest, in make test-long)."""
    return lambda short, long: long if request.config.getoption("--long") else short


def pytest_collection_modifyitems(config, items):
    """Leaves out without a word what was not asked for: a test that is skipped misses something on this machine."""
    left = [item for item in items if not is_wanted(item, config)]
    items[:] = [item for item in items if is_wanted(item, config)]
    config.hook.pytest_deselected(items=left)


def is_wanted(item, config) -> bool:
    is_long, is_marked = (item.get_closest_marker(name) is not None for name in ("long", "rest"))
    if config.getoption("--rest"):
        return (is_marked or item.path in REST) and not is_long
    return config.getoption("--long") or not (is_long or is_marked)
