"""What a plan holds in memory at each step: the rectangles of its map, and the bytes under them.

address
   ^   +--------+ . . . a block: [begin, end) in steps, [offset, offset + size) in bytes
   |   |   a    +-----+
   |   +--------+  b  |   b is made in the bytes of a, which dies where b begins: the step
   |            +-----+   at which both live belongs to b here, so that no byte counts twice
   +------------------------> step
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from .. import _core
from .._base.graph_file import GraphFile
from . import bands

WORKSPACE = -1  # stands for the buffer of an op's workspace
WHOLE = (0, 0, 1)  # axis, part and parts of a step that runs a whole op


@dataclass(frozen=True)
class Blocks:
    """Columns: what lies in the arena, in the order of `begins`. `buffers` has `WORKSPACE` where it is one."""

    buffers: list[int]
    begins: list[int]
    ends: list[int]
    offsets: list[int]
    sizes: list[int]

    def __len__(self) -> int:
        return len(self.buffers)


@dataclass(frozen=True)
class Timeline:
    """A plan over its steps."""

    name: str
    plan: _core.Plan
    order: list[int]  # op by step
    parts: list[tuple[int, int, int]]  # by step: axis, part and number of parts
    times: list[int]  # by step: what it runs for, in nanoseconds
    blocks: Blocks
    resident: list[int]  # buffers that are in memory, outside the arena, all the time

    @property
    def total_bytes(self) -> int:
        """What the plan needs: resident bytes and arena."""
        return self.plan.resident_bytes + self.plan.arena_bytes

    @property
    def waits_ns(self) -> int:
        """What its operators wait for transfers."""
        return self.plan.time_ns - sum(self.times)


def timeline_of(name: str, graph: _core.Graph, file: GraphFile, plan: _core.Plan) -> Timeline:
    """Of a plan that `verify` accepts; raises `InvalidPlanError` for any other."""
    _core.verify(graph, plan)
    order = plan.order
    parts = plan.step_parts() or [WHOLE] * len(order)
    axes = {op: graph.axes(op) for op in {op for op, part in zip(order, parts, strict=True) if part[2] > 1}}
    costs = []  # by step: workspace, nanoseconds
    for op, (axis, _, count) in zip(order, parts, strict=True):
        if count == 1:
            costs.append((file.ops[op].get("workspace", 0), file.ops[op].get("time_ns", 0)))
        else:
            costs.append(next(cost[1:3] for cost in axes[op][axis][2] if cost[0] == count))
    blocks, resident = _blocks(file, plan, [workspace for workspace, _ in costs])
    made = Timeline(name, plan, order, parts, [nanos for _, nanos in costs], blocks, resident)
    seen = max(planned_bytes(made), default=0)
    if seen != plan.peak_bytes:
        raise AssertionError(f"{seen} bytes are alive at the peak of a plan whose peak is {plan.peak_bytes}")
    return made


def _blocks(file: GraphFile, plan: _core.Plan, workspaces: Sequence[int]) -> tuple[Blocks, list[int]]:
    """In the arena, by when they begin; and the buffers that lie in memory outside of it."""
    whole = [fields["size"] for fields in file.buffers]
    offsets, begins, ends = plan.offsets(), plan.begins(), plan.ends()
    buffers, tiers = plan.block_buffers(), plan.block_tiers()
    sizes = [whole[buffer] for buffer in buffers]
    for block, (_, _, count) in enumerate(plan.block_parts()):
        sizes[block] //= count
    rows: list[tuple[int, int, int, int, int]] = []
    resident = []
    dying: dict[tuple[int, int], list[int]] = {}  # by where they lie and when they die
    for block, offset in enumerate(offsets):
        if tiers[block]:
            continue
        if offset < 0:
            resident.append(buffers[block])
        elif sizes[block]:
            dying.setdefault((offset, ends[block]), []).append(len(rows))
            rows.append((begins[block], ends[block], offset, sizes[block], buffers[block]))
    for heir, (begin, _, offset, _, _) in enumerate(rows):
        for block in dying.get((offset, begin + 1), ()):
            if block != heir:
                rows[block] = (rows[block][0], begin, *rows[block][2:])
    for step, (offset, size) in enumerate(zip(plan.workspace_offsets(), workspaces, strict=True)):
        if size:
            rows.append((step, step + 1, offset, size, WORKSPACE))
    rows.sort()
    columns = list(map(list, zip(*rows, strict=True))) or [[], [], [], [], []]
    return Blocks(columns[4], columns[0], columns[1], columns[2], columns[3]), resident


def planned_bytes(timeline: Timeline) -> list[int]:
    """By step: what is alive in the arena."""
    blocks = timeline.blocks
    return alive_over(len(timeline.order), zip(blocks.begins, blocks.ends, blocks.sizes, strict=True))


def bytes_by_band(timeline: Timeline, file: GraphFile, band_of: Sequence[int]) -> list[list[int]]:
    """By band and step: what is alive, resident bytes included."""
    blocks, steps = timeline.blocks, len(timeline.order)
    spans: list[list[tuple[int, int, int]]] = [[] for _ in bands.NAMES]
    for buffer in timeline.resident:
        spans[band_of[buffer]].append((0, steps, file.buffers[buffer]["size"]))
    for buffer, begin, end, size in zip(blocks.buffers, blocks.begins, blocks.ends, blocks.sizes, strict=True):
        spans[bands.WORKSPACES if buffer == WORKSPACE else band_of[buffer]].append((begin, end, size))
    return [alive_over(steps, band) for band in spans]


def alive_over(steps: int, spans: Iterable[tuple[int, int, int]]) -> list[int]:
    """By step: the bytes of all spans (begin, end, bytes) around it."""
    changes = [0] * (steps + 1)
    for begin, end, size in spans:
        changes[begin] += size
        changes[end] -= size
    return list(accumulate(changes[:steps]))
