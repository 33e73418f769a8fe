"""Plans on disk, by graph and options: a search under a budget is made once."""

from __future__ import annotations

import hashlib
import math

from .. import _core
from .._base.cache_directory import CacheDirectory
from .._base.decisions import decided
from .._base.interrupts import signals_held
from .._base.progress import plan_in_sight
from ..errors import LowtideError
from ..versions import __version__

_MOST_FILE_BYTES = 256 * 2**20


class PlanCache:
    """A directory of plans that `verify` has accepted, and accepts again when they are read.

    A plan is a pure function of graph (operators' times included), options and version, which make its name: what is
    found there is what planning would give. If it is not, because somebody wrote another plan there, it is still one
    that gives the same numbers within the same budgets, or it is planned anew.
    """

    def __init__(self, directory: CacheDirectory) -> None:
        self._directory = directory

    def get_or_plan(
        self,
        graph: _core.Graph,
        memory_budget: int | float | None,
        latency_budget_ns: int | None,
        alignment: int = _core.ALIGNMENT,
        parts: str = "exact",
    ) -> _core.Plan:
        """The plan of `graph` within these budgets, with such parts: from disk, or made and kept there."""
        key = repr((graph.fingerprint, memory_budget, latency_budget_ns, alignment, parts, __version__))
        name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json.zst"
        plan = self._load(name, graph)
        is_allowed = plan is not None and (parts == "any" or plan.is_exact(graph))
        if plan is not None and is_allowed and _is_within(graph, plan, memory_budget, latency_budget_ns, alignment):
            decided("cache", "plan found", graph=graph.fingerprint, file=name)
            return plan
        decided("cache", "plan missed", graph=graph.fingerprint, file=name)
        plan = plan_in_sight(
            graph,
            look=signals_held.look,
            memory_budget=memory_budget,
            latency_budget_ns=latency_budget_ns,
            alignment=alignment,
            parts=parts,
        )
        with self._directory.replacing(name) as path:
            if path is not None:
                plan.save(path)
        return plan

    def _load(self, name: str, graph: _core.Graph) -> _core.Plan | None:
        path = self._directory.to_read(name, _MOST_FILE_BYTES)
        if path is None:
            return None
        try:
            plan = _core.Plan.load(path)
            _core.verify(graph, plan)
        except (OSError, LowtideError, MemoryError):  # not there any more, or not to be trusted
            return None
        return plan


def _is_within(
    graph: _core.Graph,
    plan: _core.Plan,
    memory_budget: int | float | None,
    latency_budget_ns: int | None,
    alignment: int,
) -> bool:
    """Whether a verified plan keeps the budgets, and has the form that `plan` gives: block i stands in for buffer i."""
    eager = graph.resident_bytes + graph.program_peak_bytes
    budget = math.floor(memory_budget * eager) if isinstance(memory_budget, float) else memory_budget
    own = list(range(graph.num_buffers))
    return (
        plan.block_buffers()[: len(own)] == own
        and plan.alignment_bytes == alignment
        and plan.resident_bytes + plan.arena_bytes <= (2 * eager if budget is None else budget)
        and (latency_budget_ns is None or plan.time_ns <= latency_budget_ns)
    )
