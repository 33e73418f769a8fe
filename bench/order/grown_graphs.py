"""Captured steps put together into graphs of any size, with sizes that differ from copy to copy.

    graph = grow("stacked", [step.graph for step in steps], ops=100_000, seed=7)

A graph is a pure function of shape, parts, size and seed. Parts are taken in turn, and what one gives feeds the next:

    unrolled   one step after the other. Steps of the same part share its weights, which each finds as the one before
               has left them
    stacked    one network: forward through all copies, then backward through all, the last first; each has weights of
               its own

Planned buffers of a copy are up to a tenth smaller or larger than in the part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from lowtide import Graph
from lowtide._base.graph_file import GraphFile
from lowtide._core import GraphBuilder

JITTER = 0.1
UNIT = 4


class Part(GraphFile):
    """A captured step, cut between its passes."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        if self.edges:
            raise ValueError("a part with edges cannot be put together with others")
        # Autograd's first op has a gradient of the loss, made by the op before it.
        self.cut = next(number for number, op in enumerate(self.ops) if op.get("backward")) - 1
        self.loss = self.writes(self.cut - 1)[0]
        inputs = [number for number, buffer in enumerate(self.buffers) if buffer.get("role") == "input"]
        self.input = max(inputs, key=lambda number: self.buffers[number]["size"])
        # The last op that reads the input, or else the last of the backward pass, that makes something planned.
        makers = [op for op in range(self.cut, len(self.ops)) if not all(map(self.resident, self.writes(op)))]
        self.last = max((op for op in makers if self.input in self.reads(op)), default=makers[-1])


class _Copy:
    """A part on its way into a graph: which of its buffers and values are which there."""

    def __init__(self, part: Part, builder: GraphBuilder, chance: random.Random, shared: dict[int, int]) -> None:
        self.part = part
        self._builder = builder
        self._chance = chance
        self._shared = shared  # resident buffers that are there already, and those that this copy adds
        self._buffers: dict[int, int] = {}
        self._values: dict[tuple[int, int], int] = {}  # by value and how often its buffer was written before
        self._written: dict[int, int] = {}

    def run(self, begin: int, end: int, extra: int | None = None) -> None:
        """Adds these ops; the first reads `extra` too."""
        for number in range(begin, end):
            op = self.part.ops[number]
            reads = [self.value(value) for value in op.get("reads", [])]
            if extra is not None and number == begin:
                reads.append(extra)
            flags = {name: op[name] for name in ("random", "mutating") if name in op}
            self._builder.op(op["name"], reads, [self._buffer(buffer) for buffer in self.part.writes(number)], **flags)
            for buffer in self.part.writes(number):
                self._written[buffer] = self._written.get(buffer, 0) + 1

    def feed(self, value: int) -> None:
        """The copy's input is made from this value, not given."""
        size = self._jittered(self.part.buffers[self.part.input]["size"])
        self._buffers[self.part.input] = self.link("forward", [value], size)

    def link(self, name: str, reads: list[int], size: int) -> int:
        """Adds an op that leads from one copy to another, and gives the buffer that it makes."""
        made = self._builder.buffer(size, resident=False, initial=False, role="activation", name=name)
        self._builder.op(name, reads, [made])
        return made

    def value(self, value: int) -> int:
        buffer = self.part.values[value]["buffer"]
        key = (value, self._written.get(buffer, 0))
        if key not in self._values:
            self._values[key] = self._builder.value(self._buffer(buffer), "", [])
        return self._values[key]

    def loss(self) -> int:
        """A value that shows it."""
        return self._builder.value(self._buffer(self.part.loss), "", [])

    def result_of(self, op: int) -> int:
        """A planned buffer that an op has written."""
        return next(self._buffer(buffer) for buffer in self.part.writes(op) if not self.part.resident(buffer))

    def _buffer(self, buffer: int) -> int:
        fields = self.part.buffers[buffer]
        resident = self.part.resident(buffer)
        own = not resident or buffer in self._buffers or fields["role"] == "output"
        known = self._buffers if own else self._shared
        if buffer not in known:
            known[buffer] = self._builder.buffer(
                fields["size"] if resident else self._jittered(fields["size"]),
                resident=resident,
                initial=fields.get("initial", False),
                role=fields.get("role", "activation"),
                name="",
            )
        return known[buffer]

    def _jittered(self, size: int) -> int:
        return round(size * self._chance.uniform(1 - JITTER, 1 + JITTER) / UNIT) * UNIT


def _unrolled(builder: GraphBuilder, parts: Sequence[Part], chance: random.Random) -> None:
    residents: dict[int, dict[int, int]] = {}
    last: _Copy | None = None
    for part in parts:
        copy = _Copy(part, builder, chance, residents.setdefault(id(part), {}))
        if last is not None:
            copy.feed(last.loss())
        copy.run(0, len(part.ops))
        last = copy


def _stacked(builder: GraphBuilder, parts: Sequence[Part], chance: random.Random) -> None:
    copies: list[_Copy] = []
    for part in parts:
        copy = _Copy(part, builder, chance, {})
        if copies:
            copy.feed(copies[-1].loss())
        copy.run(0, part.cut)
        copies.append(copy)
    gradient: int | None = None  # a value
    for copy in reversed(copies):
        part = copy.part
        copy.run(part.cut, part.last + 1, gradient)
        made = builder.value(copy.result_of(part.last), "", [])
        gradient = builder.value(copy.link("backward", [made], UNIT), "", [])
        copy.run(part.last + 1, len(part.ops))


SHAPES: dict[str, Callable[[GraphBuilder, Sequence[Part], random.Random], None]] = {
    "unrolled": _unrolled,
    "stacked": _stacked,
}


def grow(shape: str, parts: Sequence[Graph], ops: int, seed: int) -> Graph:
    """A graph of about so many ops: at least one copy, and no more than one too many."""
    cut = [Part(graph) for graph in parts]
    taken: list[Part] = []
    while sum(len(part.ops) for part in taken) < ops:
        taken.append(cut[len(taken) % len(cut)])
    builder = GraphBuilder()
    SHAPES[shape](builder, taken, random.Random(f"{shape} {ops} {seed}"))
    return builder.build()
