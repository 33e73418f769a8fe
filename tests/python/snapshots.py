"""Memory snapshots as PyTorch writes them, of an allocator in a few lines; and what may be wrong with one."""

from __future__ import annotations

import copy
import pickle
import random
from typing import Any

MIB = 1 << 20
BASE = 0x7F0000000000
GRAIN = 512


class Recorder:
    """First fit in segments of 2 MiB, or of one block that is larger. Events are recorded from `record()` on."""

    def __init__(self) -> None:
        self.segments: list[list[int]] = []  # address, size
        self.live: dict[int, tuple[int, int, list[Any]]] = {}  # by address: size, requested, frames
        self.events: list[dict[str, Any]] | None = None
        self.requested = self.peak_requested = self.reserved = self.peak_reserved = 0

    def record(self) -> None:
        self.events = []
        self.peak_requested, self.peak_reserved = self.requested, self.reserved

    def allocate(self, requested: int, line: int, function: str = "forward") -> int:
        size = -(-requested // GRAIN) * GRAIN
        frames = [
            {"name": "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)", "filename": "", "line": 0},
            {"name": "call", "filename": "/x/lib/python3.11/site-packages/torch/nn/module.py", "line": 7},
            {"name": function, "filename": "/home/a/train.py", "line": line},
        ]
        address = self._place(size)
        if address is None:
            last = self.segments[-1] if self.segments else [BASE, 0]
            address = last[0] + last[1] + 4 * MIB
            self.segments.append([address, max(2 * MIB, size)])
            self.reserved += self.segments[-1][1]
            self._event("segment_alloc", address, self.segments[-1][1], frames)
        self.live[address] = (size, requested, frames)
        self.requested += requested
        self._event("alloc", address, requested, frames)
        self.peak_requested = max(self.peak_requested, self.requested)
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return address

    def free(self, address: int) -> None:
        _, requested, _ = self.live.pop(address)
        self.requested -= requested
        for action in ("free_requested", "free_completed"):
            self._event(action, address, requested, [])

    def _place(self, size: int) -> int | None:
        for begin, length in self.segments:
            at = begin
            for address in sorted(one for one in self.live if begin <= one < begin + length):
                if address - at >= size:
                    return at
                at = address + self.live[address][0]
            if begin + length - at >= size:
                return at
        return None

    def _event(self, action: str, address: int, size: int, frames: list[Any]) -> None:
        if self.events is not None:
            event = {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 10**15 + len(self.events)}
            self.events.append({**event, "compile_context": "N/A", "user_metadata": "", "frames": list(frames)})

    def snapshot(self) -> dict[str, Any]:
        segments = []
        for begin, length in self.segments:
            blocks, at = [], begin
            for address in [*sorted(one for one in self.live if begin <= one < begin + length), begin + length]:
                if address > at:
                    blocks.append(_block(at, address - at, 0, "inactive", []))
                if address in self.live:
                    size, requested, frames = self.live[address]
                    blocks.append(_block(address, size, requested, "active_allocated", frames))
                    at = address + size
            active = sum(block["size"] for block in blocks if block["state"] != "inactive")
            segment = {"device": 0, "address": begin, "total_size": length, "stream": 0, "segment_type": "small"}
            sizes = {"allocated_size": active, "active_size": active, "requested_size": 0}
            segments.append({**segment, **sizes, "segment_pool_id": (0, 0), "is_expandable": False, "blocks": blocks})
        settings = {"expandable_segments": False, "garbage_collection_threshold": 0.0, "last": None, "large": 1 << 40}
        return {"segments": segments, "device_traces": [self.events or []], "allocator_settings": settings}


def _block(address: int, size: int, requested: int, state: str, frames: list[Any]) -> dict[str, Any]:
    fields = {"address": address, "size": size, "requested_size": requested, "state": state}
    return {**fields, "frames": list(frames)}


def recorded(seed: int, allocations: int = 60, before: int = 8) -> Recorder:
    """Allocations at random, some of them before the recording begins."""
    draw, made = random.Random(seed), Recorder()
    for number in range(before + allocations):
        if number == before:
            made.record()
        made.allocate(draw.choice([4, 1000, 70_000, MIB, 3 * MIB]) * draw.randrange(1, 4), draw.randrange(1, 9))
        while made.live and draw.random() < 0.45:
            made.free(draw.choice(sorted(made.live)))
    return made


WRONG: list[Any] = [
    None,
    -1,
    0,
    1,
    511,
    1 << 62,
    1 << 63,
    1 << 70,
    -(1 << 70),
    1.5,
    float("nan"),
    "",
    "alloc",
    "free_completed",
]
WRONG += ["segment_free", "oom", "inactive", "\udc80", [], {}, (), [[]], {"": {}}, True, ["x"] * 3]


def spoiled_records(snapshot: dict[str, Any], draw: random.Random) -> bytes:
    """With one to three fields or records that are wrong, gone, moved or there twice."""
    spoiled = copy.deepcopy(snapshot)
    for _ in range(draw.randrange(1, 4)):
        holders = list(_containers(spoiled))
        holder = draw.choice(holders)
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            continue
        key, what = draw.choice(keys), draw.randrange(6)
        if what == 0:
            del holder[key]
        elif what == 1:
            holder[key] = draw.choice(holders)
        elif what == 2 and isinstance(holder, list):
            holder.insert(draw.randrange(len(holder) + 1), holder[key])
        elif what == 3 and isinstance(holder[key], int):
            holder[key] += draw.choice([-512, -1, 1, 512, 1 << 21, 1 << 61])
        else:
            holder[key] = copy.deepcopy(draw.choice(WRONG))
    return pickle.dumps(spoiled, draw.choice([2, 3, 4, 5]))


def _containers(value: Any, depth: int = 0) -> Any:
    if isinstance(value, dict | list) and depth < 8:
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from _containers(one, depth + 1)


def spoiled_bytes(pickled: bytes, draw: random.Random) -> bytes:
    """Cut off, or with bytes that are others, more, fewer or moved."""
    spoiled, what = bytearray(pickled), draw.randrange(6)
    at = draw.randrange(len(spoiled))
    if what == 0:
        return bytes(spoiled[:at])
    length = draw.randrange(1, 40)
    if what == 1:
        del spoiled[at : at + length]
    elif what == 2:
        spoiled[at:at] = draw.randbytes(length)
    elif what == 3:
        spoiled[at:at] = spoiled[at : at + length]
    else:
        for _ in range(draw.randrange(1, 5)):
            spoiled[draw.randrange(len(spoiled))] = draw.choice(
                [draw.randrange(256), *b"cRioPQ\x81\x82\x92\x93(]}tub."]
            )
    return bytes(spoiled)
