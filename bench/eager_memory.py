"""What PyTorch itself holds in a training step: the live bytes of eager execution, and what its allocator reserves.

    eager = run_eager(graph)   # of a step that keeps its gradients

Operators run in program order. What they make is freed after its last use; gradients live until the next step zeroes
them, parameters and the state of the optimizer for ever. Operators' own workspaces are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from caching_allocator import Block, CachingAllocator
from graph_file import GraphFile
from lowtide import Graph

STEPS = 3  # in the first the state of the optimizer is made; the others are alike


@dataclass(frozen=True)
class Eager:
    """In bytes. `resident` is all that is there for the whole step but gradients; it is part of the others."""

    resident: int
    live: int  # the most alive at once
    reserved: int

    @property
    def fragmentation(self) -> float:
        """The share of what is reserved that is never used."""
        return 1 - self.live / self.reserved


def run_eager(graph: Graph) -> Eager:
    """Runs some steps of a graph whose gradients outlive the step, through a simulated allocator."""
    return _Eager(graph).run()


class _Eager:
    def __init__(self, graph: Graph) -> None:
        self._file = GraphFile(graph)
        self._ops = range(len(self._file.ops))
        last = {buffer: op for op in self._ops for buffer in self._file.touched(op)}
        self._dying: dict[int, list[int]] = defaultdict(list)  # by op: what is not used after it
        for buffer, op in last.items():
            if not self._file.resident(buffer):
                self._dying[op].append(buffer)
        self._allocator = CachingAllocator()
        self._held: dict[int, Block | None] = {}
        self._live = self._most_live = 0

    def run(self) -> Eager:
        for buffer, fields in enumerate(self._file.buffers):
            if fields.get("initial"):
                self._make(buffer)
        for _ in range(STEPS):
            self._drop("gradient")
            self._drop("output")
            for op in self._ops:
                for buffer in self._file.writes(op):
                    self._make(buffer)
                for buffer in self._dying[op]:
                    self._free(buffer)
        resident = sum(
            fields["size"] for fields in self._file.buffers if fields.get("resident") and fields["role"] != "gradient"
        )
        return Eager(resident, self._most_live, self._allocator.reserved_bytes)

    def _make(self, buffer: int) -> None:
        if buffer in self._held:
            return
        size = self._file.buffers[buffer]["size"]
        self._held[buffer] = self._allocator.allocate(size)
        self._live += size
        self._most_live = max(self._most_live, self._live)

    def _free(self, buffer: int) -> None:
        self._allocator.free(self._held.pop(buffer))
        self._live -= self._file.buffers[buffer]["size"]

    def _drop(self, role: str) -> None:
        for buffer in [buffer for buffer in self._held if self._file.buffers[buffer].get("role") == role]:
            self._free(buffer)
