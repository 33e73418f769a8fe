"""Plans in a store, by graph and options: a search under a budget is made once."""

from __future__ import annotations

import contextlib
import math
import tempfile
from pathlib import Path

from .. import _core
from .._base.decisions import decided
from .._base.interrupts import signals_held
from .._base.pause import HAND_OUT
from .._base.progress import plan_in_sight
from .._store.entry import key_of
from .._store.store import Store
from ..errors import LowtideError
from ..versions import __version__

# Of a compressed plan: many times what plans have, so that no entry takes long to read that is of no use.
_MOST_BYTES = 2**20
_MOST_BYTES_PER_OP = 512


class PlanCache:
    """A store of plans that `verify` has accepted, and accepts again when they are read.

    A plan is a pure function of graph (operators' times included), options and version, which make its key: what is
    found there is what planning would give. A device decides by the times of its operators and by the alignment of its
    memory, so that both are in the key. If it is another plan, because somebody put it there, it is still one that
    gives the same numbers within the same budgets, or it is dropped and planned anew.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def get_or_plan(
        self,
        graph: _core.Graph,
        memory_budget: int | float | None,
        latency_budget_ns: int | None,
        alignment: int = _core.ALIGNMENT,
        parts: str = "exact",
    ) -> _core.Plan:
        """The plan of `graph` within these budgets, with such parts: from the store, or made and kept there."""
        key = key_of("plan", graph.fingerprint, memory_budget, latency_budget_ns, alignment, parts, __version__)
        plan = self._find(key, graph)
        is_allowed = plan is not None and (parts == "any" or plan.is_exact(graph))
        if plan is not None and is_allowed and _is_within(graph, plan, memory_budget, latency_budget_ns, alignment):
            decided("cache", "plan found", graph=graph.fingerprint, key=key)
            return plan
        if plan is not None:
            self._store.drop(key)
        decided("cache", "plan missed", graph=graph.fingerprint, key=key)
        plan = plan_in_sight(
            graph,
            look=signals_held.look,
            memory_budget=memory_budget,
            latency_budget_ns=latency_budget_ns,
            alignment=alignment,
            parts=parts,
        )
        content = _packed(plan)
        if content is not None:
            self._store.put(key, content)
        return plan

    def _find(self, key: str, graph: _core.Graph) -> _core.Plan | None:
        """What is there, if it is a right plan of this graph; anything else is dropped."""
        content = self._store.get(key)
        if content is None:
            return None
        if len(content) > _MOST_BYTES + _MOST_BYTES_PER_OP * graph.num_ops:
            self._store.drop(key)
            return None
        try:
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                plan = _core.Plan.load(file.name)
            _core.verify(graph, plan)
        except OSError:  # there is no room for a file
            return None
        except (LowtideError, MemoryError):
            self._store.drop(key)
            return None
        return plan


def _packed(plan: _core.Plan) -> bytes | None:
    """A plan as a compressed file has it, or None where no file can be written."""
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json.zst"
        plan.save(path)
        return path.read_bytes()
    return None


def _is_within(
    graph: _core.Graph,
    plan: _core.Plan,
    memory_budget: int | float | None,
    latency_budget_ns: int | None,
    alignment: int,
) -> bool:
    """Whether a verified plan keeps the budgets and has the form of those put here.

    That is: block i stands in for buffer i, all blocks are in memory, and gradients are handed out at the end.
    """
    eager = graph.resident_bytes + graph.program_peak_bytes
    budget = math.floor(memory_budget * eager) if isinstance(memory_budget, float) else memory_budget
    own = list(range(graph.num_buffers))
    return (
        plan.block_buffers()[: len(own)] == own
        and not any(plan.block_tiers())
        and _hands_out_last(graph, plan)
        and plan.alignment_bytes == alignment
        and plan.resident_bytes + plan.arena_bytes <= (2 * eager if budget is None else budget)
        and (latency_budget_ns is None or plan.time_ns <= latency_budget_ns)
    )


def _hands_out_last(graph: _core.Graph, plan: _core.Plan) -> bool:
    """Whether nothing runs after gradients are handed out, which is the last operator of a graph if it is there."""
    last = graph.num_ops - 1
    return last < 0 or graph.op_name(last) != str(HAND_OUT) or plan.order.index(last) == len(plan.order) - 1
