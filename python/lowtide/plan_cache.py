"""Plans on disk, by graph and options: a search under a budget is made once."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from . import _core
from .errors import LowtideError
from .interrupts import signals_held
from .progress import plan_in_sight
from .versions import __version__


class PlanCache:
    """A directory of plans that `verify` has accepted, and accepts again when they are read.

    A plan is a pure function of graph (operators' times included), options and version, which make its name: what is
    found there is what planning would give.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get_or_plan(
        self, graph: _core.Graph, memory_budget: int | float | None, latency_budget_ns: int | None
    ) -> _core.Plan:
        """The plan of `graph` within these budgets: from disk, or made and kept there."""
        key = repr((graph.fingerprint, memory_budget, latency_budget_ns, __version__))
        path = self._directory / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json.zst"
        with contextlib.suppress(OSError, LowtideError):  # not there, or not to be trusted
            plan = _core.Plan.load(path)
            _core.verify(graph, plan)
            return plan
        plan = plan_in_sight(
            graph, look=signals_held.look, memory_budget=memory_budget, latency_budget_ns=latency_budget_ns
        )
        with contextlib.suppress(OSError):  # a cache that cannot be written is no error
            self._directory.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f"{os.getpid()}.{path.name}")
            plan.save(unfinished)
            unfinished.replace(path)
        return plan
