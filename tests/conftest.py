"""One thread per test process: the suite runs in as many processes as there are cores."""

from spo import libraries

libraries.prepare()

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("spo", deadline=None)  # how long an example takes says more of the machine than of the code
settings.load_profile("spo")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="many more kills, mutations and fuzzed settings, and a soak")


@pytest.fixture
def amount(request):
    """How much of something a test does: amount(in make test, in make test-long)."""
    return lambda short, long: long if request.config.getoption("--long") else short


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "long" in item.keywords and not config.getoption("--long"):
            item.add_marker(pytest.mark.skip(reason="only in make test-long"))
