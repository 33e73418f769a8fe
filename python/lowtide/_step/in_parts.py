"""Where no plan of whole operators keeps a budget: the same step with operators in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .. import _core
from .._lower.graph import build_graph
from .._lower.lowering import Lowered
from .._lower.part_cache import PartCache
from .._lower.profile_rows import OpProfile
from .._lower.step_parts import Bits, Parts, find_parts
from .._optimizer.template import Number

_MOST_PLANS = 16  # each knows more of what parts do here
_SHARE = 32  # operators with an operand of one part in so many of the largest operator may run in parts


class InParts(NamedTuple):
    """Operators that a plan runs in parts."""

    operators: int = 0
    exact: int = 0  # of those: known to have the bits of the whole


class Planned(NamedTuple):
    """A graph whose operators may run in parts, a plan of it, and those parts."""

    graph: _core.Graph
    plan: _core.Plan
    parts: Parts


def plan_in_parts(
    lowered: Lowered,
    profiles: Sequence[OpProfile],
    graph: _core.Graph,
    cache: PartCache,
    number: Callable[[Number], int | float],
    plan: Callable[[_core.Graph], _core.Plan],
    *,
    bits: Bits,
) -> Planned:
    """A plan in which operators of `graph` may run in parts; raises what `plan` raises."""
    parts = find_parts(lowered, profiles, cache, number, least_bytes=graph.operand_bound_bytes // _SHARE, bits=bits)
    for left in reversed(range(_MOST_PLANS)):
        if left == 0:  # what parts do changes from run to run
            parts.axes.clear()
        graph = build_graph(lowered, profiles, axes=parts.axes)
        found = plan(graph)
        if parts.confirm(found):
            break
    return Planned(graph, found, parts)


def count_in_parts(graph: _core.Graph, plan: _core.Plan) -> InParts:
    """What of the plan runs in parts."""
    steps = zip(plan.order, plan.step_parts(), strict=False)  # no parts at all if every step runs a whole operator
    cut = {(op, axis, count) for op, (axis, _, count) in steps if count > 1}
    exact: dict[int, bool] = {}
    for op, axis, count in cut:
        counts = graph.axes(op)[axis][2]
        exact[op] = exact.get(op, True) and any(known[0] == count and known[3] for known in counts)
    return InParts(len(exact), sum(exact.values()))
