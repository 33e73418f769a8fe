"""A plan as a memory snapshot that PyTorch's own viewer opens: the arena is a segment, and so is what is resident.

Every block is allocated at the step that it begins at and freed at the step that it ends at, in its bytes of the arena.
The viewer counts events, so a step is as wide as what changes at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._base.graph_file import GraphFile
from .._report.source_lines import split
from .._report.timeline import WORKSPACE, Timeline

_RESIDENT, _ARENA = 0x100000000000, 0x200000000000  # addresses that a viewer's numbers hold
_POOL = (0, 0)


@dataclass(frozen=True)
class _Block:
    address: int
    size: int
    name: str
    frames: list[dict[str, Any]]


def torch_snapshot(timeline: Timeline, file: GraphFile) -> dict[str, Any]:
    """What `torch.cuda.memory._snapshot()` would give, had its allocator placed blocks as the plan does."""
    resident = _resident(timeline, file)
    resident_bytes = sum(block.size for block in resident)
    events: list[tuple[str, _Block]] = [("alloc", block) for block in resident]
    kept = _arena(timeline, file, events)
    segments = [(_RESIDENT, resident_bytes, resident), (_ARENA, timeline.plan.arena_bytes, kept)]
    reserved = [("segment_alloc", _Block(address, size, "", [])) for address, size, _ in segments if size]
    return {
        "segments": [_segment(*segment) for segment in segments if segment[1]],
        "device_traces": [[_event(time, *event) for time, event in enumerate([*reserved, *events])]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
        "external_annotations": [],
    }


def _resident(timeline: Timeline, file: GraphFile) -> list[_Block]:
    blocks, address = [], _RESIDENT
    for fields in (file.buffers[buffer] for buffer in timeline.resident):
        if fields["size"]:
            name = fields.get("name", "")
            blocks.append(_Block(address, fields["size"], name, [_frame(fields.get("role", ""), name)]))
        address += fields["size"]
    return blocks


def _arena(timeline: Timeline, file: GraphFile, events: list[tuple[str, _Block]]) -> list[_Block]:
    """Adds what happens in the arena; gives what is still there when the step ends."""
    blocks, steps = timeline.blocks, len(timeline.order)
    begun: list[list[_Block]] = [[] for _ in range(steps)]
    ended: list[list[_Block]] = [[] for _ in range(steps + 1)]
    kept = []
    for number, buffer in enumerate(blocks.buffers):
        op = file.ops[timeline.order[blocks.begins[number]]]
        name = "workspace" if buffer == WORKSPACE else file.buffers[buffer].get("name", "")
        frames = [_frame(op["name"], op.get("source", "")), _frame(op.get("module", ""), "")]
        block = _Block(_ARENA + blocks.offsets[number], blocks.sizes[number], name, frames)
        begun[blocks.begins[number]].append(block)
        if blocks.ends[number] == steps and buffer != WORKSPACE and file.buffers[buffer].get("kept"):
            kept.append(block)
        else:
            ended[blocks.ends[number]].append(block)
    for step in range(steps + 1):
        for block in ended[step]:
            events += [("free_requested", block), ("free_completed", block)]
        if step < steps:
            events += [("alloc", block) for block in begun[step]]
    return kept


def _frame(name: str, source: str) -> dict[str, Any]:
    file, line = split(source)
    return {"name": name, "filename": file, "line": line}


def _event(time: int, action: str, block: _Block) -> dict[str, Any]:
    return {
        "action": action,
        "addr": block.address,
        "size": block.size,
        "stream": 0,
        "time_us": time,
        "compile_context": "N/A",
        "user_metadata": block.name,
        "pool_id": _POOL,
        "frames": block.frames,
    }


def _segment(address: int, size: int, blocks: Sequence[_Block]) -> dict[str, Any]:
    """With what is free between its blocks."""
    filled, at = [], address
    for block in sorted(blocks, key=lambda block: block.address):
        if block.address > at:
            filled.append(_piece(_Block(at, block.address - at, "", []), "inactive"))
        filled.append(_piece(block, "active_allocated"))
        at = block.address + block.size
    if at < address + size:
        filled.append(_piece(_Block(at, address + size - at, "", []), "inactive"))
    active = sum(block.size for block in blocks)
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": _POOL,
        "is_expandable": False,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "blocks": filled,
        "frames": [],
    }


def _piece(block: _Block, state: str) -> dict[str, Any]:
    return {
        "address": block.address,
        "size": block.size,
        "requested_size": block.size if state != "inactive" else 0,
        "state": state,
        "frames": block.frames,
    }
