"""Which operators of a training step can run in parts along the batch, and which cannot.

    axes = BatchAxes(graph, GraphFile(graph), graph_at_twice_the_batch)
    axes.along       # by operator, of those that can: which of its axes
    axes.whole()     # operators that cannot: how many of each name

What depends on the batch is what grows with it. Parts are followed from what the step is given: an operator runs in
parts along the batch if one of its axes cuts all that grows with the batch as those who made it cut it. Results that do
not grow, such as gradients of weights, are then sums over the parts. Behind an operator that cannot, the batch is taken
to be the outermost dimension again.
"""

from __future__ import annotations

import math
from collections import Counter

import torch

from lowtide import Graph
from lowtide._base.graph_file import GraphFile

Axis = tuple[list[int], list[int], list[tuple[int, int, int, bool]]]


class BatchAxes:
    """Of one step: bytes are those of operands, those of an operator each time."""

    def __init__(self, graph: Graph, file: GraphFile, twice: Graph) -> None:
        if (graph.num_ops, graph.num_buffers) != (twice.num_ops, twice.num_buffers):
            raise ValueError(f"the step at twice the batch has {twice.num_ops} ops, not {graph.num_ops}")
        self.file = file
        sizes = [graph.buffer_size(buffer) for buffer in range(graph.num_buffers)]
        self._grows = [twice.buffer_size(buffer) > size for buffer, size in enumerate(sizes)]
        self._period = dict(enumerate(sizes))  # of the batch in each buffer
        self.along: dict[int, int] = {}
        self.stuck: list[int] = []  # ops that must run whole
        self.extra_ns: dict[int, int] = {}  # what all others take longer in so many parts, if all can
        self.operand_bytes = self.bytes_with_axes = self.bytes_along_batch = 0
        for op in range(graph.num_ops):
            axes = graph.axes(op)
            nbytes = self._bytes(op)
            self.operand_bytes += nbytes
            self.bytes_with_axes += nbytes if axes else 0
            if not any(self._grows[buffer] for buffer in file.touched(op)):
                continue
            along = next((index for index, axis in enumerate(axes) if self._follow(op, axis)), None)
            if along is None:
                self.stuck.append(op)
                continue
            self.along[op] = along
            whole_ns = file.ops[op].get("time_ns", 0)
            extra = {count: count * part_ns - whole_ns for count, _, part_ns, _ in axes[along][2]}
            common = extra if not self.bytes_along_batch else extra.keys() & self.extra_ns.keys()
            self.extra_ns = {count: self.extra_ns.get(count, 0) + extra[count] for count in sorted(common)}
            self.bytes_along_batch += nbytes

    def whole(self) -> dict[str, int]:
        """How many ops of each name depend on the batch and cannot run in parts along it."""
        return dict(Counter(self.file.ops[op]["name"].removeprefix("aten.") for op in self.stuck).most_common())

    def _follow(self, op: int, axis: Axis) -> bool:
        """Whether the axis is that of the batch; if so, its results are cut so."""
        reads, writes, _ = axis
        read = [
            (buffer, period) for buffer, period in zip(self.file.reads(op), reads, strict=True) if self._grows[buffer]
        ]
        made = list(zip(self.file.writes(op), writes, strict=True))
        if any(period != self._period[buffer] for buffer, period in read):
            return False
        if any(self._grows[buffer] != (period > 0) for buffer, period in made):
            return False
        if not read and any(period not in (0, self._period[buffer]) for buffer, period in made):
            return False  # made from nothing that grows: by the outermost dimension
        self._period.update((buffer, period) for buffer, period in made if period)
        return True

    def _bytes(self, op: int) -> int:
        read = {value: self.file.values[value] for value in self.file.ops[op].get("reads", [])}
        shown: int = sum(
            math.prod(value["shape"]) * _itemsize(value["dtype"]) for value in read.values() if "shape" in value
        )
        made: int = sum(self.file.buffers[buffer]["size"] for buffer in self.file.writes(op))
        return shown + made


def _itemsize(dtype: str) -> int:
    found: torch.dtype = getattr(torch, dtype)
    return found.itemsize
