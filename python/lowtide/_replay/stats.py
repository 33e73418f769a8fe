"""The figures of a replay."""

from __future__ import annotations

from dataclasses import dataclass

from .. import _core


@dataclass(frozen=True)
class ReplayStats:
    """What happened since a `lowtide.replay()` was entered. Requests are those of its thread, on one device."""

    device: str = "cpu"
    iterations: int = 0  # that are over
    replayed: int = 0  # of these, the ones that had a profile
    hits: int = 0  # requests served from the arena
    outside: int = 0  # requests that are known to outlive their iteration: ordinary memory, as planned
    misses: int = 0  # requests of replayed iterations for which there was no place: ordinary memory
    unplanned: int = 0  # requests of other iterations
    escaped: int = 0  # blocks of the arena that unexpectedly outlived their iteration
    other_threads: int = 0  # requests that other threads made
    other_streams: int = 0  # requests on other streams than the arena's, or for a pool of their own: ordinary memory
    departed: int = 0  # iterations that went another way than any known one of their signature
    departed_at: str = ""  # the operator whose request was expected where the last of them did
    profiles: int = 0
    arena_bytes: int = 0
    peak_bytes: int = 0  # the most that was alive at once of what the arena serves, in the largest profile
    bound_bytes: int = 0  # proven: no arena for that profile is smaller
    pooled_bytes: int = 0  # what PyTorch's caching allocator for CUDA would reserve for that profile
    packing_seconds: float = 0.0  # beside the iterations
    nanos_per_request: float | None = None  # with its release, in that profile
    ordinary_nanos_per_request: float | None = None

    @property
    def fragmentation(self) -> float:
        """The share of the arena that is never used."""
        return 1.0 - self.peak_bytes / self.arena_bytes if self.arena_bytes else 0.0

    def __str__(self) -> str:
        size = _core.format_bytes
        where = "" if self.device == "cpu" else f" on {self.device}"
        lines = [
            f"{self.iterations} iterations{where}, {self.replayed} replayed; {self.profiles} profiles",
            f"requests   {self.hits} from the arena, {self.outside} outside as planned, {self.misses} missed, "
            f"{self.unplanned} before there was a profile, {self.other_threads} by other threads"
            + (f", {self.other_streams} on other streams" if self.other_streams else ""),
            f"arena      {size(self.arena_bytes)}; {size(self.peak_bytes)} alive at most, "
            f"{100 * self.fragmentation:.2f} % fragmentation; "
            f"a caching allocator would reserve {size(self.pooled_bytes)}",
        ]
        if self.departed:
            where = f", the last where {self.departed_at} was expected" if self.departed_at else ""
            lines.append(f"departed   {self.departed} iterations went another way than those known before{where}")
        if self.nanos_per_request is not None and self.ordinary_nanos_per_request is not None:
            lines.append(
                f"time       {self.nanos_per_request:.0f} ns for a request and its release, "
                f"{self.ordinary_nanos_per_request:.0f} ns by PyTorch's allocator"
            )
        return "\n".join(lines)
