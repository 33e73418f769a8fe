"""Recompute: the lowest peaks for so much more time, and how low none can be."""

from __future__ import annotations

import time
from dataclasses import dataclass

import lowtide
from lowtide import _core

EXTRAS = (0.02, 0.05, 0.10, 0.15, 0.20, 0.33)  # more time, as shares of the step's


@dataclass(frozen=True)
class LowestPeaks:
    """Of one step: planned bytes for each of EXTRAS, without what is resident."""

    peaks: list[tuple[int, int]]  # and the bound: no order has a lower one, whatever runs again in that time
    seconds: float  # for all of them at once


def lowest_peaks(graph: lowtide.Graph) -> LowestPeaks:
    """What `auto` finds."""
    begin = time.perf_counter()
    trades = _core.recompute_trades(graph, "auto")
    seconds = time.perf_counter() - begin
    step_ns = lowtide.plan(graph, layout="greedy_by_size").time_ns
    limits = [int(extra * step_ns) for extra in EXTRAS]
    lowest = [min(peak for cost, peak in trades if cost <= limit) for limit in limits]
    return LowestPeaks(list(zip(lowest, _core.recompute_bounds(graph, limits), strict=True)), seconds)
