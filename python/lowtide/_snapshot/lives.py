"""When each block of a device's trace was in use, counted in allocations.

    allocation   0   1   2   3          0: all that was there before the recording began, if anything was
    block a      +-------+              allocated at 1, free again before 3: [1, 3)
    block b          +-------+

Nothing grows between two allocations, so what is alive at each is all that a peak needs.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, pairwise

from ..errors import InvalidSnapshotError
from .places import UNKNOWN, Place, Places
from .recorded import Device, Event
from .spans import Spans


@dataclass
class Life:
    """`requested` bytes at `address` from one allocation up to another. `place` is where they were asked for."""

    address: int
    requested: int
    begin: int
    end: int
    place: Place


@dataclass(frozen=True)
class Lives:
    """All of a device's, by when they begin. `begins_before`: some were there when the recording began."""

    lives: list[Life]
    allocations: int
    begins_before: bool
    reserved: list[int]  # by allocation: what the allocator had from the device
    peak_reserved: int
    times_us: list[int]  # by allocation: when

    def requested(self) -> list[int]:
        """By allocation: the bytes that were asked for and not free again."""
        changes = [0] * (self.allocations + 1)
        for life in self.lives:
            changes[life.begin] += life.requested
            changes[life.end] -= life.requested
        return list(accumulate(changes[:-1]))


def lives_of(device: Device) -> Lives:
    """Raises `InvalidSnapshotError` where events are missing between those that are there."""
    return _Replay(device).lives()


class _Replay:
    """Allocations are counted from 1; 0 is what was there before."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._places = Places()
        self._lives: list[Life] = []
        self._in_use: dict[int, Life] = {}
        self._in_order: list[int] = []  # addresses in use
        self._known: set[int] = set()  # addresses whose whole story since the beginning is told
        self._count = 1

    def lives(self) -> Lives:
        device = self._device
        first = device.events[0].time_us if device.events else 0
        now = sum(segment.size for segment in device.segments)
        reserved = now - sum(_reserved_by(event) for event in device.events)
        if reserved < 0:
            raise InvalidSnapshotError("the trace reserves more memory than there is: are events missing?")
        by_count, highest, times = [reserved], reserved, [first]
        for event in device.events:
            reserved += _reserved_by(event)
            highest = max(highest, reserved)
            if event.action == "alloc":
                self._allocate(event)
                by_count.append(reserved)
                times.append(event.time_us)
            elif event.action == "free_requested":
                self._of(event)
            elif event.action == "free_completed":
                self._of(event).end = self._count
                del self._in_use[event.address]
                del self._in_order[bisect_left(self._in_order, event.address)]
        self._rest()
        self._check_segments()
        self._check_beginning()
        self._lives.sort(key=lambda life: life.begin)
        before = bool(self._lives) and self._lives[0].begin == 0
        if not before:
            del by_count[0], times[0]
            for life in self._lives:
                life.begin, life.end = life.begin - 1, life.end - 1
        return Lives(self._lives, len(by_count), before, by_count, highest, times)

    def _allocate(self, event: Event) -> None:
        if event.address in self._in_use:
            raise _missing(event.address, "is allocated while it is in use")
        life = Life(event.address, event.size, self._count, 0, self._places.place_of(event.frames))
        self._begin(life)
        self._count += 1

    def _begin(self, life: Life) -> None:
        at = bisect_left(self._in_order, life.address)
        before = self._in_use[self._in_order[at - 1]] if at else None
        reaches_in = before is not None and before.address + before.requested > life.address
        if reaches_in or (self._in_order[at : at + 1] and self._in_order[at] < life.address + life.requested):
            raise _missing(life.address, "overlaps another one that is in use")
        self._in_order.insert(at, life.address)
        self._lives.append(life)
        self._in_use[life.address] = life
        self._known.add(life.address)

    def _of(self, event: Event) -> Life:
        """The block that is freed; one that is not known was there before."""
        life = self._in_use.get(event.address)
        if life is None:
            if event.address in self._known:
                raise _missing(event.address, "is freed while it is not in use")
            life = Life(event.address, event.size, 0, 0, UNKNOWN)
            self._begin(life)
        elif life.requested != event.size:
            raise _missing(event.address, f"is freed with {event.size} bytes and has {life.requested}")
        return life

    def _rest(self) -> None:
        """What is in use in the end is what the segments hold."""
        held = set()
        for block in (block for segment in self._device.segments for block in segment.blocks):
            life = self._in_use.get(block.address)
            if life is None and block.address in self._known:
                raise _missing(block.address, "is in use in the end, which the trace does not say")
            if life is None:
                life = Life(block.address, block.requested, 0, 0, self._places.place_of(block.frames))
                self._begin(life)
            elif life.requested != block.requested:
                raise _missing(block.address, f"has {block.requested} bytes in the end, {life.requested} in the trace")
            life.end = self._count
            held.add(block.address)
        for address in self._in_use.keys() - held:
            raise _missing(address, "is not in use in the end, as the trace says")

    def _check_segments(self) -> None:
        """Blocks lie in segments; what was had from the device and not given back is there in the end."""
        spans = Spans(self._device)
        for life in self._lives:
            spans.offset_of(life.address, life.requested)
        had: set[int] = set()
        for event in self._device.events:
            if event.action == "segment_alloc":
                if event.address in had:
                    raise _missing(event.address, "begins a segment that is there already")
                had.add(event.address)
            elif event.action == "segment_free":
                had.discard(event.address)
        for address in had - {segment.address for segment in self._device.segments}:
            raise _missing(address, "begins a segment that is not there in the end")
        actions = {event.action for event in self._device.events}
        if {"segment_alloc", "segment_map"} & actions and not {"alloc", "oom"} & actions:
            raise InvalidSnapshotError(
                "the trace takes memory from the device and allocates nothing in it: events are missing; was something "
                "skipped with skip_actions?"
            )

    def _check_beginning(self) -> None:
        """What was there before was there at once, so it lies side by side."""
        before = sorted((life for life in self._lives if life.begin == 0), key=lambda life: life.address)
        for life, after in pairwise(before):
            if life.address + life.requested > after.address:
                raise _missing(after.address, "overlaps another one from before the recording")


def _missing(address: int, what: str) -> InvalidSnapshotError:
    return InvalidSnapshotError(
        f"the block at {address:#x} {what}: events are missing; was something skipped with skip_actions?"
    )


def _reserved_by(event: Event) -> int:
    if event.action in ("segment_alloc", "segment_map"):
        return event.size
    return -event.size if event.action in ("segment_free", "segment_unmap") else 0
