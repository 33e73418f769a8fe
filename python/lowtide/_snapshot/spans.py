"""The memory that a device's allocator had at any time, by address."""

from __future__ import annotations

from bisect import bisect_right

from ..errors import InvalidSnapshotError
from .recorded import Device


class Spans:
    """Spans of addresses without gaps, side by side in one arena."""

    def __init__(self, device: Device) -> None:
        found = [(segment.address, segment.address + segment.size) for segment in device.segments]
        found += [
            (event.address, event.address + event.size)
            for event in device.events
            if event.action.startswith("segment_")
        ]
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._offsets: list[int] = []
        for begin, end in sorted(found):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
                continue
            before = self._offsets[-1] + self._ends[-1] - self._begins[-1] if self._ends else 0
            self._begins.append(begin)
            self._ends.append(end)
            self._offsets.append(before)

    def offset_of(self, address: int, size: int) -> int:
        """Where bytes lie in the arena; `InvalidSnapshotError` if they lie in no segment."""
        span = bisect_right(self._begins, address) - 1
        if span < 0 or address + size > self._ends[span]:
            raise InvalidSnapshotError(
                f"the block at {address:#x} is in no segment: events are missing; was something skipped with "
                "skip_actions?"
            )
        return address - self._begins[span] + self._offsets[span]
