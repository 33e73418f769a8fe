"""Plans that are searched for with a tenth of the work: most tests look at what a plan does, not at how good it is.

LOWTIDE_FULL=1   all of the work
"""

import os
from typing import Any

import pytest

from lowtide import _core


def shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, where neither effort nor a budget is given: whether one can be kept is for the whole search."""
    plan = _core.plan

    def short(graph: _core.Graph, **options: Any) -> _core.Plan:
        is_free = options.get("memory_budget") is None and options.get("latency_budget_ns") is None
        return plan(graph, **({"effort": 0.1} if is_free else {}) | options)

    if not os.environ.get("LOWTIDE_FULL"):
        monkeypatch.setattr(_core, "plan", short)
