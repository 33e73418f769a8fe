"""What a device's memory was, what a packed arena would need, and which lines hold the peak."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from .. import _core
from ..errors import InvalidSnapshotError, LowtideError
from .lives import Lives, lives_of
from .places import Place
from .recorded import Device

ALIGNMENT = 512  # of what PyTorch's allocator for CUDA gives
_WORK = 3_000_000_000  # of packing: some seconds at most


@dataclass(frozen=True)
class Holder:
    """What one place has asked for and holds at the peak."""

    place: Place
    bytes: int
    count: int
    largest_bytes: int
    is_from_before: bool

    def to_dict(self) -> dict[str, Any]:
        """Its fields, those of the place among them."""
        return {
            **asdict(self.place),
            "bytes": self.bytes,
            "count": self.count,
            "largest_bytes": self.largest_bytes,
            "from_before": self.is_from_before,
        }


@dataclass(frozen=True)
class Packed:
    """Offsets by life. No arena is smaller than `bound_bytes`."""

    offsets: list[int]
    arena_bytes: int
    bound_bytes: int
    algorithm: str


class Figures:
    """Of one device. Bytes in use are as they were asked for, unless they are said to be rounded."""

    def __init__(self, device: Device, effort: float = 1.0) -> None:
        self._effort = effort
        self.device = device
        self.lives: Lives = lives_of(device)

    @cached_property
    def alive(self) -> list[int]:
        """By allocation: bytes in use."""
        return self.lives.requested()

    @property
    def peak_at(self) -> int:
        """The first allocation with the most bytes in use."""
        return self.alive.index(max(self.alive)) if self.alive else 0

    @property
    def peak_bytes(self) -> int:
        """The most bytes in use at once."""
        return max(self.alive, default=0)

    @property
    def reserved_bytes(self) -> int:
        """Now."""
        return sum(segment.size for segment in self.device.segments)

    @property
    def rounded_bytes(self) -> int:
        """In use now, with what the allocator has rounded up: PyTorch's active bytes."""
        return sum(block.size for segment in self.device.segments for block in segment.blocks)

    @property
    def allocated_bytes(self) -> int:
        """Of these, what does not just wait for a stream."""
        return sum(block.size for segment in self.device.segments for block in segment.blocks if block.is_allocated)

    @property
    def requested_bytes(self) -> int:
        """In use now."""
        return sum(block.requested for segment in self.device.segments for block in segment.blocks)

    @property
    def peak_reserved_bytes(self) -> int:
        """The most that the allocator had from the device."""
        return self.lives.peak_reserved

    @cached_property
    def packed(self) -> Packed:
        """All blocks in one arena, each for as long as it was in use."""
        lives = self.lives.lives
        try:
            found = _core.lay_out(
                [life.begin for life in lives],
                [life.end for life in lives],
                [life.requested for life in lives],
                alignment=ALIGNMENT,
                fixed=[],
                algorithm="auto",
                steps=int(_WORK * self._effort),
            )
        except LowtideError as error:
            raise InvalidSnapshotError(f"the blocks of the trace cannot be packed: {error}") from None
        offsets, arena, bound, algorithm = found
        return Packed(offsets, arena, max(bound, self.peak_bytes), algorithm)

    @property
    def fragmentation_bytes(self) -> int:
        """What the allocator reserved at most beyond what a packed arena needs."""
        return max(0, self.peak_reserved_bytes - self.packed.arena_bytes)

    @cached_property
    def holders(self) -> list[Holder]:
        """Who holds the peak, by place, largest first."""
        at = self.peak_at
        held: dict[tuple[Place, bool], list[int]] = {}
        for life in self.lives.lives:
            if life.begin <= at < life.end:
                is_from_before = self.lives.begins_before and life.begin == 0
                held.setdefault((life.place, is_from_before), []).append(life.requested)
        found = [Holder(place, sum(sizes), len(sizes), max(sizes), old) for (place, old), sizes in held.items()]
        return sorted(found, key=lambda holder: (-holder.bytes, holder.place.source, holder.place.op))

    def to_dict(self, top: int) -> dict[str, Any]:
        """Numbers and texts for a program to read."""
        return {
            "device": self.device.index,
            "events": len(self.device.events),
            "allocations": sum(event.action == "alloc" for event in self.device.events),
            "out_of_memory": sum(event.action == "oom" for event in self.device.events),
            "complete": not self.lives.begins_before,
            "reserved_bytes": self.reserved_bytes,
            "active_bytes": self.rounded_bytes,
            "allocated_bytes": self.allocated_bytes,
            "requested_bytes": self.requested_bytes,
            "peak_reserved_bytes": self.peak_reserved_bytes,
            "peak_requested_bytes": self.peak_bytes,
            "packed_bytes": self.packed.arena_bytes,
            "packed_bound_bytes": self.packed.bound_bytes,
            "fragmentation_bytes": self.fragmentation_bytes,
            "holders": [holder.to_dict() for holder in self.holders[:top]],
        }
