"""What PyTorch's snapshot says of one device: its segments as they are now, and the events that led there.

A snapshot comes from anywhere. Each record is looked at once, however often the file refers to it: a small file could
otherwise stand for any number of records.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from .._base.progress import ProgressLine
from ..errors import InvalidSnapshotError
from .unpickling import plain_data

_MOST_BYTES = 1 << 30
_MOST_ADDRESS = 1 << 62
_STATES = ("active_allocated", "active_awaiting_free", "active_pending_free", "inactive")
_ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map"}
_ACTIONS |= {"segment_unmap", "snapshot", "oom"}


class Block(NamedTuple):
    """Memory that is in use, or waits for a stream that uses it. `requested` bytes of `size` were asked for."""

    address: int
    size: int
    requested: int
    is_allocated: bool
    frames: Any


class Segment(NamedTuple):
    """Memory that the allocator has from the device; `blocks` are those in use, by address."""

    address: int
    size: int
    blocks: list[Block]


class Event(NamedTuple):
    """`address` is that of a block or a segment; of `oom`, the bytes that the device had free."""

    action: str
    address: int
    size: int
    time_us: int
    frames: Any


@dataclass(frozen=True)
class Device:
    """Segments by address, events by time."""

    index: int
    segments: list[Segment]
    events: list[Event]


def read_devices(path: str | os.PathLike[str]) -> list[Device]:
    """Those of which a snapshot says anything. Raises `InvalidSnapshotError`, or `OSError`."""
    content = _content(Path(path))
    line = ProgressLine("reading", max(1, len(content) >> 20))
    try:
        return devices_of(plain_data(content, lambda at: line.show("MiB", at >> 20)))
    finally:
        line.clear()


def _content(path: Path) -> bytes:
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise InvalidSnapshotError(f"{path}: expected a file, got something that may have no end")
        if found.st_size > _MOST_BYTES:
            raise InvalidSnapshotError(
                f"{path}: {found.st_size} bytes, of which {_MOST_BYTES} are read at most: record fewer events, with "
                "torch.cuda.memory._record_memory_history(max_entries=...)"
            )
        return file.read(_MOST_BYTES)


def devices_of(snapshot: Any) -> list[Device]:
    """Of what `torch.cuda.memory._snapshot()` gives."""
    records = _Records()
    if type(snapshot) is not dict or not {"segments", "device_traces"} <= snapshot.keys():
        raise InvalidSnapshotError("expected what torch.cuda.memory._dump_snapshot writes: segments and device_traces")
    segments: dict[int, list[Segment]] = {}
    for record in records.dicts(snapshot["segments"], "segments"):
        index = records.number(record, "device", "segment", most=1024)
        segments.setdefault(index, []).append(records.segment(record))
    traces = records.lists(snapshot["device_traces"], "device_traces")
    events = {index: [records.event(one) for one in records.dicts(trace, "trace")] for index, trace in traces}
    return [
        Device(index, _in_order(segments.get(index, [])), events.get(index, []))
        for index in sorted(segments.keys() | {index for index, trace in events.items() if trace})
    ]


def _in_order(segments: list[Segment]) -> list[Segment]:
    segments = sorted(segments, key=lambda segment: segment.address)
    for before, after in pairwise(segments):
        if before.address + before.size > after.address:
            raise InvalidSnapshotError(f"segment {after.address:#x}: another segment reaches into it")
    return segments


class _Records:
    """Checks fields, and that no record is there twice."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def _once(self, record: Any, kind: type, what: str) -> Any:
        if type(record) is not kind:
            raise InvalidSnapshotError(f"{what}: expected a {kind.__name__}, got {type(record).__name__}")
        if id(record) in self._seen:  # all of them are alive: the snapshot holds them
            raise InvalidSnapshotError(f"{what}: the same {kind.__name__} is there twice")
        self._seen.add(id(record))
        return record

    def dicts(self, records: Any, what: str) -> Iterator[dict[str, Any]]:
        for record in self._once(records, list, what):
            yield self._once(record, dict, what)

    def lists(self, records: Any, what: str) -> Iterator[tuple[int, Any]]:
        return enumerate(self._once(records, list, what))

    def number(self, record: dict[str, Any], name: str, what: str, *, most: int = _MOST_ADDRESS) -> int:
        value = record.get(name)
        if type(value) is not int or not 0 <= value <= most:
            shown = value if type(value) is int else type(value).__name__
            raise InvalidSnapshotError(f"{what}: {name}: expected a number from 0 to {most}, got {shown}")
        return value

    def word(self, record: dict[str, Any], name: str, what: str, known: Any) -> str:
        value = record.get(name)
        if type(value) is not str or value not in known:
            shown = repr(value[:40]) if type(value) is str else type(value).__name__
            raise InvalidSnapshotError(f"{what}: {name}: expected one of {', '.join(sorted(known))}, got {shown}")
        return value

    def segment(self, record: dict[str, Any]) -> Segment:
        """Its blocks fill it, and those in use are as many bytes as it says."""
        address, size = self.number(record, "address", "segment"), self.number(record, "total_size", "segment")
        blocks, place, what = [], address, f"segment {address:#x}"
        for found in self.dicts(record.get("blocks"), f"{what}: blocks"):
            state = self.word(found, "state", what, _STATES)
            bytes = self.number(found, "size", what)
            if "address" in found and self.number(found, "address", what) != place:  # before 2.2 there is none
                raise InvalidSnapshotError(f"{what}: expected a block at {place:#x}, got one at {found['address']:#x}")
            if state != "inactive":
                requested = self.number(found, "requested_size", what, most=bytes)
                blocks.append(Block(place, bytes, requested, state == "active_allocated", found.get("frames")))
            place += bytes
        stated = {"total_size": place - address, "active_size": sum(block.size for block in blocks)}
        stated["allocated_size"] = sum(block.size for block in blocks if block.is_allocated)
        for name, counted in stated.items():
            if self.number(record, name, what) != counted:
                raise InvalidSnapshotError(f"{what}: {name} is {record[name]}, its blocks have {counted}")
        return Segment(address, size, blocks)

    def event(self, record: dict[str, Any]) -> Event:
        action = self.word(record, "action", "event", _ACTIONS)
        address = self.number(record, "device_free" if action == "oom" else "addr", action)
        time_us = self.number(record, "time_us", action) if "time_us" in record else 0
        return Event(action, address, self.number(record, "size", action), time_us, record.get("frames"))
