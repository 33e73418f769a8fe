"""Whether a layout is right, without any code of a packer."""

from __future__ import annotations

import numpy as np

from bench.packing.problems import Numbers, Problem


class WrongLayoutError(Exception):
    """Two buffers that live together share a byte."""


def arena_of(problem: Problem, offset: Numbers) -> int:
    """Where the highest buffer ends.

    Of two lives that meet, one begins within the other. So each buffer is looked up, at its beginning, among those
    that are alive then. A tree of halved spans of time holds these: a life is cut into the largest spans that it
    covers, and whoever is alive at a moment has exactly one of the moment's spans. Those of one span all live
    together, so once they are found apart, only the next one below the end of what is looked up can be in its way.
    """
    there = np.flatnonzero((problem.size > 0) & (problem.lower < problem.upper))
    if len(there) == 0:
        return 0
    if offset[there].min() < 0:
        raise WrongLayoutError(f"a buffer lies at {offset[there].min()}")
    moments, lives = np.unique([problem.lower[there], problem.upper[there]], return_inverse=True)
    begin, end = lives.reshape(2, -1)
    places, ends = np.unique([offset[there], (offset + problem.size)[there]], return_inverse=True)
    low, high = ends.reshape(2, -1)  # ranks, so that a span and a place fit into one number
    left, right = begin.copy(), end.copy()  # what of each life is not yet held by a span; in spans of this level
    for level in range(len(moments).bit_length() + 1):
        odd_left, odd_right = (left < right) & (left & 1 == 1), (left < right) & (right & 1 == 1)
        holders = np.concatenate([np.flatnonzero(odd_left), np.flatnonzero(odd_right & (left + odd_left < right))])
        spans = np.concatenate([left[odd_left], right[odd_right & (left + odd_left < right)] - 1])
        _find_overlap(there, begin >> level, low, high, holders, spans, len(places))
        left, right = (left + 1) >> 1, right >> 1
    return int(places[-1])


def _find_overlap(
    names: Numbers, asked: Numbers, low: Numbers, high: Numbers, holders: Numbers, spans: Numbers, places: int
) -> None:
    """Raises if any buffer overlaps one of those that hold the span that it asks for, or these each other."""
    if len(holders) == 0:
        return
    keys = spans * places + low[holders]
    order = np.argsort(keys)
    keys, holders, spans = keys[order], holders[order], spans[order]
    close = (spans[1:] == spans[:-1]) & (low[holders[1:]] < high[holders[:-1]])
    if close.any():
        first = int(np.argmax(close))
        _refuse(names, holders[first], holders[first + 1])
    below = np.searchsorted(keys, asked * places + high) - 1  # the last that begins below the end
    other = holders[below]
    overlap = (below >= 0) & (spans[below] == asked) & (high[other] > low) & (other != np.arange(len(low)))
    if overlap.any():
        first = int(np.argmax(overlap))
        _refuse(names, first, other[first])


def _refuse(names: Numbers, one: int, other: int) -> None:
    raise WrongLayoutError(f"rows {names[one]} and {names[other]} share bytes while both live")
