import os
import signal
import tempfile

# Before lowtide is used: profiles of test runs go to a directory of their own, and nothing is announced.
os.environ.setdefault("LOWTIDE_CACHE_DIR", tempfile.mkdtemp(prefix="lowtide-test-"))
os.environ.setdefault("LOWTIDE_QUIET", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of programs that tests start: several of them share few cores

import pytest
import torch

from covering import cover
from leased_bytes import nothing_is_left_in_the_arena  # noqa: F401
from lowtide._live import audits
from short_searches import shorten

_AUDITED = {"test_edge_cases", "test_random_effects", "test_ten_steps"}  # modules, and a test

# A run that was started in the background ignores Ctrl-C, and so would the programs that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    cover(items)


@pytest.fixture(autouse=True)
def one_thread():
    """Tests that are not about threads use one: parallel regions crawl when several processes share two cores."""
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def audits_where_they_are_tested(request, monkeypatch):
    """A second capture takes as long as the first: steps of live Python and of whole models are audited.

    With LOWTIDE_FULL=1 all are. Which calls are audited because of the time depends on the machine: only in one module.
    """
    module = request.module.__name__
    is_audited = module.startswith("test_live") or _AUDITED & {module, request.node.originalname}
    if not (os.environ.get("LOWTIDE_FULL") or is_audited):
        monkeypatch.setenv("LOWTIDE_AUDIT", "off")
    if module != "test_live_audits":
        monkeypatch.setattr(audits, "_SHARE", 1e-9)


@pytest.fixture(autouse=True)
def short_searches(monkeypatch):
    shorten(monkeypatch)
