"""Random regions of captured steps, and which of them may run in parts, judged without any part of the planner.

A region is a set of operators that share buffers, an axis for each, and a number of parts. It may run in parts if every
operator has that number along its axis, what one of them writes the others use in the same parts and nobody reads a
sum, and no operator outside would have to run between its parts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from given_parts import buffer_periods, touched, written
from lowtide import _core
from lowtide._lower.graph import build_graph
from lowtide._lower.lowering import Lowered
from lowtide._lower.part_cache import PartCache
from lowtide._lower.step_parts import Parts, find_parts
from lowtide._step import captured_step as lowtide_step
from lowtide.errors import InvalidGraphError


class Region(NamedTuple):
    axes: dict[int, int]  # of each operator, in program order
    count: int

    @property
    def split(self) -> tuple[list[tuple[int, int]], int]:
        return sorted(self.axes.items()), self.count


class Judge:
    """Of the regions of one step."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.lowered = parts.lowered
        count = len(self.lowered.operators)
        self.touched = [touched(self.lowered, index) for index in range(count)]
        self.written = [written(self.lowered, index) for index in range(count)]
        self.needs = [self._needs(index) for index in range(count)]
        self.users: dict[int, list[int]] = {}
        for index, buffers in enumerate(self.touched):
            for buffer in buffers:
                self.users.setdefault(buffer, []).append(index)

    def _needs(self, index: int) -> set[int]:
        """The operators before it whose results it uses, or which use what it changes."""
        return {
            before
            for before in range(index)
            for buffer in set(self.touched[before]) & set(self.touched[index])
            if buffer in self.written[before] or buffer in self.written[index]
        }

    def counts(self, index: int, axis: int, *, exact: bool) -> set[int]:
        return {cost.count for cost in self.parts.axes[index][axis].counts if cost.exact or not exact}

    def allows(self, region: Region) -> bool:
        return self._has_counts(region) and self._agrees(region) and self._is_convex(region)

    def _has_counts(self, region: Region) -> bool:
        return all(region.count in self.counts(index, axis, exact=False) for index, axis in region.axes.items())

    def _agrees(self, region: Region) -> bool:
        uses: dict[int, list[int]] = {}  # the periods of each buffer, of all that read or write it
        writers: set[int] = set()
        for index, axis in region.axes.items():
            for buffer, periods in buffer_periods(self.lowered, index, self.parts.axes[index][axis]).items():
                uses.setdefault(buffer, []).extend(periods)
            writers |= self.written[index]
        for buffer in writers:
            is_unread_sum = uses[buffer] == [0] and self._writers_in(region, buffer) == 1
            if not is_unread_sum and (0 in uses[buffer] or len(set(uses[buffer])) > 1):
                return False
        return True

    def _writers_in(self, region: Region, buffer: int) -> int:
        return sum(1 for index in region.axes if buffer in self.written[index])

    def _is_convex(self, region: Region) -> bool:
        behind: set[int] = set()  # of the region, and not in it
        for index in range(len(self.needs)):
            if index in region.axes:
                if self.needs[index] & behind:
                    return False
            elif any(need in region.axes or need in behind for need in self.needs[index]):
                behind.add(index)
        return True


def random_region(judge: Judge, chance: random.Random, *, exact: bool, legal: float) -> Region | None:
    """Grown from an operator; with probability `legal` by what keeps it legal alone, else by anything."""
    axes = judge.parts.axes
    seed = chance.choice(sorted(axes))
    axis = chance.randrange(len(axes[seed]))
    counts = sorted(judge.counts(seed, axis, exact=exact))
    if not counts:
        return None
    region = Region({seed: axis}, chance.choice(counts))
    careful = chance.random() < legal
    if careful and not judge.allows(region):
        return None
    for _ in range(chance.randint(0, 12)):
        near = {user for index in region.axes for buffer in judge.touched[index] for user in judge.users[buffer]}
        choices = sorted(index for index in near - set(region.axes) if index in axes)
        if not choices:
            break
        index = chance.choice(choices)
        options = list(range(len(axes[index])))
        chance.shuffle(options)
        for axis in options if careful else options[:1]:
            grown = Region({**region.axes, index: axis}, region.count)
            is_exact = not exact or region.count in judge.counts(index, axis, exact=True)
            if not careful or (is_exact and judge.allows(grown)):
                region = grown
                break
    return region


class Tried(NamedTuple):
    """Of one step: how many regions of it ran in parts, all in one plan, and how many could not."""

    ran: int
    operators: int
    refused: int


def accepts(graph: Any, regions: list[Region]) -> bool:
    try:
        _core.plan_given_parts(graph, [region.split for region in regions])
    except InvalidGraphError as error:
        assert error.code == "E111", error
        return False
    return True


@contextmanager
def in_regions(monkeypatch: Any, folder: Path, seed: int, *, exact: bool, tries: int) -> Iterator[list[Tried]]:
    """Programs built within it run random regions in parts; gives how many.

    Legal ones are taken and others refused, or this fails.
    """
    assemble = lowtide_step.assemble
    made: list[Tried] = []

    def in_regions(lowered: Lowered, profiles: Any, plan: Any, numbers: Any, *rest: Any) -> Any:
        parts = find_parts(
            lowered, profiles, PartCache(folder), lambda number: numbers[number.index], 0, bits="compared"
        )
        graph = build_graph(lowered, profiles, axes=parts.axes)
        judge, chance = Judge(parts), random.Random(seed)
        chosen: list[Region] = []
        refused = 0
        for _ in range(tries):
            region = random_region(judge, chance, exact=exact, legal=0.5)
            if region is None:
                continue
            is_legal = judge.allows(region)
            assert accepts(graph, [region]) == is_legal, f"legal: {is_legal}: {region}"
            refused += 0 if is_legal else 1
            exactly = all(region.count in judge.counts(*one, exact=exact) for one in region.axes.items())
            apart = not any(set(region.axes) & set(other.axes) for other in chosen)
            if is_legal and exactly and apart and accepts(graph, [*chosen, region]):
                chosen.append(region)
        given = _core.plan_given_parts(graph, [region.split for region in chosen])
        made.append(Tried(len(chosen), sum(len(region.axes) for region in chosen), refused))
        return assemble(lowered, profiles, given, numbers, parts=parts)

    with monkeypatch.context() as patched:
        patched.setattr(lowtide_step, "assemble", in_regions)
        yield made
