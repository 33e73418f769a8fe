"""Memory against time: what running ops again can trade, and the bound below which no plan is."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core
from .._base.graph_file import GraphFile

_POINTS = 200

Point = tuple[int, int]  # nanoseconds, bytes


@dataclass(frozen=True)
class Front:
    """Bytes have resident ones included, and are those alive at once; the arena of a plan may be larger."""

    trades: list[Point]  # by rising time and falling bytes
    bounds: list[Point]  # at the same times: no plan that recomputes as long or less has fewer bytes at its peak


def front_of(graph: _core.Graph, file: GraphFile) -> Front | None:
    """None for a graph whose ops have no times."""
    base = sum(fields.get("time_ns", 0) for fields in file.ops)
    if not base:
        return None
    resident = graph.resident_bytes
    falling: list[Point] = []
    for extra, peak in sorted(_core.recompute_trades(graph, "auto")):
        if not falling or peak < falling[-1][1]:
            falling.append((extra, peak))
    shown = _spread(falling)
    bounds = _core.recompute_bounds(graph, [extra for extra, _ in shown])
    return Front(
        [(base + extra, resident + peak) for extra, peak in shown],
        [(base + extra, resident + bound) for (extra, _), bound in zip(shown, bounds, strict=True)],
    )


def _spread(points: list[Point]) -> list[Point]:
    """At most so many of them, the first and the last too."""
    if len(points) <= _POINTS:
        return points
    return [points[round(i * (len(points) - 1) / (_POINTS - 1))] for i in range(_POINTS)]
