"""Time of a stretch of Python, by the rule that operators' times follow too."""

from __future__ import annotations

import time
from typing import NamedTuple

import torch


class Elapsed(NamedTuple):
    """Seconds by the clock on the wall, and without what other processes take away meanwhile.

    The latter is known on one thread only; on several it is the former.
    """

    wall: float = 0.0
    busy: float = 0.0

    def plus(self, more: Elapsed) -> Elapsed:
        """Both, one after the other."""
        return Elapsed(self.wall + more.wall, self.busy + more.busy)


class Stopwatch:
    """Runs from its creation on.

    >>> watch = Stopwatch()
    >>> 0 <= watch.read().busy <= watch.read().wall
    True
    """

    __slots__ = ("_thread", "_wall")

    def __init__(self, *, busy: bool = True) -> None:
        """Without `busy` that is not looked at, which takes time itself, and counts as the wall's."""
        self._wall = time.perf_counter()
        self._thread = time.thread_time() if busy and torch.get_num_threads() == 1 else None

    def read(self) -> Elapsed:
        """What has passed until now."""
        busy = None if self._thread is None else time.thread_time() - self._thread
        wall = time.perf_counter() - self._wall
        return Elapsed(wall, wall if busy is None else min(wall, busy))
