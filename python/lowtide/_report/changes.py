"""What a plan does beyond running each op once and whole: what runs again, leaves memory, or runs in parts; and why.

The why is a number: had the buffers of a group stayed whole in memory, so many bytes at least would be alive at once.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from .. import _core
from .._base.graph_file import GraphFile
from .timeline import Timeline, alive_over, planned_bytes

AGAIN, SWAPPED, IN_PARTS = "recomputed", "swapped", "in parts"
KINDS = (AGAIN, SWAPPED, IN_PARTS)

_Key = tuple[str, str, str, str]  # kind, op, source, modules
_Span = tuple[int, int, int]  # begin, end, bytes


@dataclass
class Change:
    """One kind of change to ops alike: of one name, at one source line, in modules that differ by numbers alone."""

    kind: str
    op: str
    source: str
    modules: str
    count: int = 0  # runs more, transfers, or runs of parts
    bytes: int = 0  # of all buffers that it is about
    time_ns: int = 0  # what running again takes
    parts: int = 0  # the most parts of one op
    tiers: set[str] = field(default_factory=set)
    kept_bytes: int = 0  # what would be alive at once at least, resident bytes included, had they stayed


class _Groups:
    """The groups, with the spans in which their buffers are not, or not wholly, in memory."""

    def __init__(self, timeline: Timeline, file: GraphFile) -> None:
        self._timeline = timeline
        self._file = file
        self._maker = makers_of(file)
        self._found: dict[_Key, Change] = {}
        self._absent: dict[_Key, list[_Span]] = defaultdict(list)
        self._counted: dict[_Key, set[int]] = defaultdict(set)

    def of_op(self, kind: str, op: int) -> tuple[_Key, Change]:
        fields = self._file.ops[op]
        key = (kind, fields["name"], fields.get("source", ""), pattern_of(fields.get("module", "")))
        return key, self._found.setdefault(key, Change(*key))

    def of_buffer(self, kind: str, buffer: int) -> tuple[_Key, Change]:
        """By the op that makes it. What is there before the step is by its role."""
        if buffer in self._maker and not self._file.resident(buffer):
            return self.of_op(kind, self._maker[buffer])
        role = self._file.buffers[buffer].get("role", "activation").replace("_", " ")
        return (kind, role, "", ""), self._found.setdefault((kind, role, "", ""), Change(kind, role, "", ""))

    def is_absent(self, key: _Key, buffer: int, spans: list[_Span]) -> None:
        self._absent[key] += spans
        if buffer not in self._counted[key]:
            self._counted[key].add(buffer)
            self._found[key].bytes += self._file.buffers[buffer]["size"]

    def settled(self) -> list[Change]:
        alive = planned_bytes(self._timeline)
        resident = self._timeline.plan.resident_bytes
        for key, change in self._found.items():
            absent = alive_over(len(alive), self._absent[key])
            change.kept_bytes = resident + max(map(sum, zip(alive, absent, strict=True)), default=0)
        return sorted(self._found.values(), key=lambda change: (KINDS.index(change.kind), -change.bytes))


def makers_of(file: GraphFile) -> dict[int, int]:
    """By buffer: the op that writes it first."""
    made: dict[int, int] = {}
    for op in range(len(file.ops)):
        for buffer in file.writes(op):
            made.setdefault(buffer, op)
    return made


def changes_of(timeline: Timeline, file: GraphFile, tiers: list[str]) -> list[Change]:
    """All of them, by kind, and of each kind the largest first. `tiers` are names, by their number in the plan."""
    groups = _Groups(timeline, file)
    loaded = _count_transfers(timeline.plan, groups, tiers)
    done: dict[int, Fraction] = defaultdict(Fraction)  # how much of each op has run
    for step, op in enumerate(timeline.order):
        count = timeline.parts[step][2]
        if done[op] >= 1:
            _, change = groups.of_op(AGAIN, op)
            change.count += 1
            change.time_ns += timeline.times[step]
        done[op] += Fraction(1, count)
        if count > 1:
            _, change = groups.of_op(IN_PARTS, op)
            change.count += 1
            change.parts = max(change.parts, count)
    for buffer, blocks in _blocks_in_memory(timeline.plan).items():
        _count_absences(timeline, file, groups, buffer, blocks, loaded)
    return groups.settled()


@dataclass(frozen=True)
class _Block:
    index: int
    begin: int
    end: int
    parts: int


def _count_transfers(plan: _core.Plan, groups: _Groups, tiers: list[str]) -> set[int]:
    """Gives the blocks that are loaded from a tier."""
    buffers, where = plan.block_buffers(), plan.block_tiers()
    loaded = set()
    for source, target, _, _ in plan.transfers():
        _, change = groups.of_buffer(SWAPPED, buffers[source])
        change.count += 1
        change.tiers.add(tiers[max(where[source], where[target])])
        if not where[target]:
            loaded.add(target)
    return loaded


def _blocks_in_memory(plan: _core.Plan) -> dict[int, list[_Block]]:
    """By buffer with an offset somewhere, in the order of their begins."""
    found: dict[int, list[_Block]] = defaultdict(list)
    begins, ends, offsets, tiers, parts = (
        plan.begins(),
        plan.ends(),
        plan.offsets(),
        plan.block_tiers(),
        plan.block_parts(),
    )
    for block, buffer in enumerate(plan.block_buffers()):
        if not tiers[block] and offsets[block] >= 0:
            found[buffer].append(_Block(block, begins[block], ends[block], parts[block][2]))
    for blocks in found.values():
        blocks.sort(key=lambda block: block.begin)
    return found


def _count_absences(
    timeline: Timeline, file: GraphFile, groups: _Groups, buffer: int, blocks: list[_Block], loaded: set[int]
) -> None:
    size = file.buffers[buffer]["size"]
    cut = [block for block in blocks if block.parts > 1]
    if cut:  # the whole, less what is there of it
        there = (min(block.begin for block in cut), max(block.end for block in cut), size)
        pieces = [(block.begin, block.end, -(size // block.parts)) for block in blocks]
        key, _ = groups.of_buffer(IN_PARTS, buffer)
        groups.is_absent(key, buffer, [there, *pieces])
        return
    if file.resident(buffer):  # at home in a tier
        ends, begins = [0, *(block.end for block in blocks)], [*(block.begin for block in blocks), len(timeline.order)]
        key, _ = groups.of_buffer(SWAPPED, buffer)
        groups.is_absent(
            key, buffer, [(end, begin, size) for end, begin in zip(ends, begins, strict=True) if begin > end]
        )
        return
    for before, after in pairwise(blocks):
        if after.begin > before.end:
            key, _ = groups.of_buffer(SWAPPED if after.index in loaded else AGAIN, buffer)
            groups.is_absent(key, buffer, [(before.end, after.begin, size)])


def pattern_of(module: str) -> str:
    """With a star for each number: `layers.3.mlp` is `layers.*.mlp`."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", module)


def biggest(changes: list[Change], most: int) -> Iterator[tuple[Change | None, int]]:
    """Of each kind the first ones; then none, with the number of those left out."""
    for kind in KINDS:
        of_kind = [change for change in changes if change.kind == kind]
        yield from ((change, 0) for change in of_kind[:most])
        if len(of_kind) > most:
            yield None, len(of_kind) - most
