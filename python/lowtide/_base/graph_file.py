"""A graph as its file shows it (docs/formats.md): its tables, for what `lowtide.Graph` has no method for.

file = GraphFile(graph)
file.reads(0), file.writes(0)   # the buffers that the first op reads and writes
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from .. import _core


class GraphFile:
    """The tables of a graph. Fields that have their default are left out of them."""

    def __init__(self, graph: _core.Graph) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.json"
            graph.save(path)
            content = json.loads(path.read_bytes())
        self.buffers: list[dict[str, Any]] = content.get("buffers", [])
        self.values: list[dict[str, Any]] = content.get("values", [])
        self.ops: list[dict[str, Any]] = content.get("ops", [])
        self.edges: list[dict[str, int]] = content.get("edges", [])
        self.reuses: list[dict[str, int]] = content.get("reuses", [])

    def reads(self, op: int) -> list[int]:
        """The buffers that it reads, in the order of its operands."""
        return [self.values[value]["buffer"] for value in self.ops[op].get("reads", [])]

    def writes(self, op: int) -> list[int]:
        """The buffers that it writes, in the order of its results."""
        writes: list[int] = self.ops[op].get("writes", [])
        return writes

    def touched(self, op: int) -> dict[int, None]:
        """What it reads or writes, each once, in that order."""
        return dict.fromkeys(self.reads(op) + self.writes(op))

    def resident(self, buffer: int) -> bool:
        """Whether it lies outside the arena."""
        return bool(self.buffers[buffer].get("resident", False))
