"""A device's trace as a graph and two plans of it: where PyTorch put each block, and a packed arena.

An operator stands for each allocation, in program order; it reads what is freed before the next one. So blocks live in
the graph as they did on the device, and `verify` judges both plans as any other.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from .. import _core
from ..errors import InvalidPlanError, InvalidSnapshotError
from .figures import Figures
from .lives import Lives
from .places import UNKNOWN, Place
from .spans import Spans

_LONGEST_US = 366 * 24 * 3600 * 10**6  # that a recording may take
BEFORE = Place(op="before the recording")


@dataclass
class _Operator:
    """An allocation; `made` and `freed` are lives, freed before the next allocation and made by an earlier one."""

    place: Place = UNKNOWN
    time_ns: int = 0
    made: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)


class Planned:
    """Life i is buffer i and block i."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._operators = _operators_of(figures.lives)
        self.graph = self._graph()

    def as_it_was(self) -> _core.Plan:
        """With every block where PyTorch put it; segments that it had at any time lie side by side."""
        spans = Spans(self._figures.device)
        offsets = [spans.offset_of(life.address, life.requested) for life in self._figures.lives.lives]
        return self._plan(offsets, 0, "PyTorch's allocator")

    def packed(self) -> _core.Plan:
        """In the smallest arena that was found."""
        packed = self._figures.packed
        return self._plan(packed.offsets, packed.bound_bytes, packed.algorithm)

    def _graph(self) -> _core.Graph:
        lives, builder = self._figures.lives, _core.GraphBuilder()
        for life in lives.lives:
            builder.buffer(
                life.requested, resident=False, initial=False, role="activation", name=life.place.function or "block"
            )
        for operator in self._operators:
            builder.op(
                operator.place.op or operator.place.function or "allocation",
                [builder.value(number, "uint8", [lives.lives[number].requested]) for number in operator.freed],
                operator.made,
                time_ns=operator.time_ns,
                source=operator.place.source,
            )
        for number, life in enumerate(lives.lives):
            if life.end == lives.allocations:
                builder.keep(number)
        return builder.build()

    def _plan(self, offsets: Sequence[int], bound: int, layout: str) -> _core.Plan:
        lives = self._figures.lives.lives
        content = {
            "format": "lowtide-plan",
            "version": 1,
            "figures": {
                "alignment": 1,
                "arena": max((offset + life.requested for offset, life in zip(offsets, lives, strict=True)), default=0),
                "peak": self._figures.peak_bytes,
                "bound": bound,
                "time_ns": sum(operator.time_ns for operator in self._operators),
            },
            "provenance": {"order": "program", "layout": layout, "graph": self.graph.fingerprint},
            "blocks": [
                {"buffer": number, "begin": life.begin, "end": life.end, "offset": offset}
                for number, (life, offset) in enumerate(zip(lives, offsets, strict=True))
            ],
            "steps": [
                {"op": op, "reads": operator.freed, "writes": operator.made}
                for op, operator in enumerate(self._operators)
            ],
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "plan.json"
            path.write_text(json.dumps(content))
            plan = _core.Plan.load(path)
        try:
            _core.verify(self.graph, plan)
        except InvalidPlanError as error:
            raise InvalidSnapshotError(f"blocks that are in use overlap: {error}") from None
        return plan


def _operators_of(lives: Lives) -> list[_Operator]:
    operators = [_Operator() for _ in range(lives.allocations)]
    for number, life in enumerate(lives.lives):
        operators[life.begin].made.append(number)
        operators[life.begin].place = life.place
        if life.begin < life.end - 1 and life.end < lives.allocations:
            operators[life.end - 1].freed.append(number)
    if lives.begins_before:
        operators[0].place = BEFORE
    if lives.times_us and max(lives.times_us) - min(lives.times_us) <= _LONGEST_US:  # else they are no times
        passed = accumulate(lives.times_us, max)  # events of several threads may be out of order
        for operator, (time, after) in zip(operators, pairwise(passed), strict=False):
            operator.time_ns = (after - time) * 1000
    return operators
