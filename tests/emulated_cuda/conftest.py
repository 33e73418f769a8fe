"""Runs these tests on emulated CUDA, or not at all: README.md says how."""

import gc
import os
import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.append(str(HERE.parent / "python"))

try:
    import torch

    torch.set_num_threads(1)
    import emulated_cuda
except (ImportError, OSError, AssertionError, RuntimeError):
    collect_ignore_glob = ["test_*.py"]
else:
    from covering import cover
    from leased_bytes import nothing_is_left_in_the_arena  # noqa: F401
    from short_searches import shorten

    def pytest_collection_modifyitems(items):
        cover(items)


@pytest.fixture(params=[0, 1, 2, 7], ids=["at_once", "late", "late_oldest_first", "late_shuffled"])
def every_order(request):
    """Runs a test in each order in which streams may be emptied."""
    with emulated_cuda.declared(late=request.param):
        yield request.param


@pytest.fixture
def late():
    """Runs a test in late mode."""
    with emulated_cuda.declared(late=1):
        yield


@pytest.fixture
def bytes_stay():
    """What other tests left in cycles is collected before a test counts bytes, and nothing while it does."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def short_runs(request, monkeypatch):
    """A second capture takes as long as the first: steps of whole models are audited, with LOWTIDE_FULL=1 all are."""
    if not os.environ.get("LOWTIDE_FULL") and request.node.originalname != "test_models_train_as_in_eager":
        monkeypatch.setenv("LOWTIDE_AUDIT", "off")
    shorten(monkeypatch)
