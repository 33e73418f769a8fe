"""Plans that run operators in parts, made at random without any part of the planner, in the order of the program.

Operators that follow one another may run in parts together. What is made and used only among them is held in parts;
what others use, or what is summed, in a block of the whole.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from lowtide._lower.lowering import Lowered
from lowtide._lower.part_cache import PartCache
from lowtide._lower.step_parts import CountedAxis, Parts, find_parts
from lowtide._step import captured_step as lowtide_step

ALIGNMENT = 64


class Chosen(NamedTuple):
    """An operator of a chain, and the axis along which it runs in parts."""

    operator: int
    axis: int


class Chain(NamedTuple):
    operators: list[Chosen]
    count: int


class GivenPlan:
    """A plan as `assemble` sees it."""

    alignment_bytes = ALIGNMENT
    tier_arena_bytes = ()

    def __init__(self, lowered: Lowered, workspaces: list[int], parts: Parts, chains: list[Chain]) -> None:
        self.lowered = lowered
        self.order: list[int] = []
        self._parts: list[tuple[int, int, int]] = []
        self._step_blocks: list[list[int]] = []
        self._buffers = list(range(len(lowered.buffers)))
        self._held = [(0, 0, 1)] * len(lowered.buffers)
        sizes: list[int] = []  # of the steps' workspaces
        chain_of = {chain.operators[0].operator: chain for chain in chains}
        index = 0
        while index < len(lowered.operators):
            chain = chain_of.get(index)
            if chain is None:
                self._add(index, (0, 0, 1), {})
                sizes.append(workspaces[index])
                index += 1
                continue
            inside = self._inside(parts, chain)
            for part in range(chain.count):
                blocks = {buffer: self._block(buffer, period, part, chain.count) for buffer, period in inside.items()}
                for operator, axis in chain.operators:
                    self._add(operator, (axis, part, chain.count), blocks)
                    sizes.append(parts.workspace(operator, axis, chain.count))
            index += len(chain.operators)
        self._lay_out(sizes)

    def _add(self, index: int, part: tuple[int, int, int], blocks: dict[int, int]) -> None:
        self.order.append(index)
        self._parts.append(part)
        self._step_blocks.append([blocks.get(b, b) for b in touched(self.lowered, index)])

    def _block(self, buffer: int, period: int, part: int, count: int) -> int:
        if part == 0:
            self._held[buffer] = (period, 0, count)
            return buffer
        self._buffers.append(buffer)
        self._held.append((period, part, count))
        return len(self._buffers) - 1

    def _inside(self, parts: Parts, chain: Chain) -> dict[int, int]:
        """The buffers that nothing outside of the chain uses, and their periods."""
        lowered, members = self.lowered, {chosen.operator for chosen in chain.operators}
        kept = {ref.buffer for ref in lowered.outputs}
        found: dict[int, int] = {}
        for operator, axis in chain.operators:
            cut = buffer_periods(lowered, operator, parts.axes[operator][axis])
            for ref in lowered.operators[operator].new_results():
                users = {i for i in range(len(lowered.operators)) if ref.buffer in touched(lowered, i)}
                planned = lowered.buffers[ref.buffer].kind == "planned" and ref.buffer not in kept
                if planned and cut[ref.buffer] != {0} and users <= members:
                    found[ref.buffer] = min(cut[ref.buffer])
        return found

    def _lay_out(self, sizes: list[int]) -> None:
        lives: dict[int, tuple[int, int]] = {}
        for step, blocks in enumerate(self._step_blocks):
            for block in blocks:
                lives[block] = (lives.get(block, (step, 0))[0], step + 1)
        self._ends = [lives.get(block, (0, 0))[1] for block in range(len(self._buffers))]
        self._offsets = [-1] * len(self._buffers)
        self._workspaces: list[int] = []
        held: list[tuple[int, int, int]] = []  # offset, end, end of life
        self.arena_bytes = 0
        for step, size in enumerate(sizes):
            held = [place for place in held if place[2] > step]
            for block, (begin, end) in lives.items():
                buffer = self.lowered.buffers[self._buffers[block]]
                if begin == step and buffer.kind == "planned":
                    bytes_ = buffer.nbytes // self._held[block][2]
                    self._offsets[block] = _lowest_gap(held, bytes_)
                    held.append((self._offsets[block], self._offsets[block] + bytes_, end))
            self._workspaces.append(_lowest_gap(held, size))
            self.arena_bytes = max([self.arena_bytes, self._workspaces[-1] + size, *(end for _, end, _ in held)])

    def block_buffers(self) -> list[int]:
        return self._buffers

    def offsets(self) -> list[int]:
        return self._offsets

    def workspace_offsets(self) -> list[int]:
        return self._workspaces

    def block_tiers(self) -> list[int]:
        return [0] * len(self._buffers)

    def ends(self) -> list[int]:
        return self._ends

    def transfers(self) -> list[tuple[int, int, int, int]]:
        return []

    def step_blocks(self, step: int) -> list[int]:
        return self._step_blocks[step]

    def step_parts(self) -> list[tuple[int, int, int]]:
        return self._parts

    def block_parts(self) -> list[tuple[int, int, int]]:
        return self._held


def _lowest_gap(held: list[tuple[int, int, int]], size: int) -> int:
    at = 0
    for begin, end, _ in sorted(held):
        if begin - at >= size:
            break
        at = max(at, -(-end // ALIGNMENT) * ALIGNMENT)
    return at


def touched(lowered: Lowered, index: int) -> list[int]:
    operator = lowered.operators[index]
    reads = [ref.buffer for ref in [*operator.reads(), *operator.held]]
    return list(dict.fromkeys([*reads, *operator.writes, *(ref.buffer for ref in operator.new_results())]))


def written(lowered: Lowered, index: int) -> set[int]:
    operator = lowered.operators[index]
    return {*operator.writes, *(ref.buffer for ref in operator.new_results())}


def buffer_periods(lowered: Lowered, index: int, counted: CountedAxis) -> dict[int, set[int]]:
    operator = lowered.operators[index]
    reads = [ref.buffer for ref in dict.fromkeys([*operator.reads(), *operator.held])]
    writes = [*operator.writes, *(ref.buffer for ref in operator.new_results())]
    found: dict[int, set[int]] = {}
    for buffer, period in [
        *zip(reads, counted.periods.reads, strict=True),
        *zip(writes, counted.periods.writes, strict=True),
    ]:
        found.setdefault(buffer, set()).add(period)
    return found


def random_chains(parts: Parts, chance: random.Random, *, exact: bool, longest: int = 6) -> list[Chain]:
    """Operators that follow one another, each with an axis, all in as many parts; `exact`: where these are."""
    lowered = parts.lowered
    chains: list[Chain] = []
    index = 0
    while index < len(lowered.operators):
        options = [
            (axis, cost.count)
            for axis, counted in enumerate(parts.axes.get(index, ()))
            for cost in counted.counts
            if cost.exact or not exact
        ]
        if not options or chance.random() < 0.1:
            index += 1
            continue
        axis, count = chance.choice(options)
        chain = Chain([Chosen(index, axis)], count)
        index += 1
        while index < len(lowered.operators) and len(chain.operators) < longest:
            fitting = [
                axis
                for axis, counted in enumerate(parts.axes.get(index, ()))
                if any(cost.count == count and (cost.exact or not exact) for cost in counted.counts)
                and _joins(parts, chain, index, counted)
            ]
            if not fitting:
                break
            chain.operators.append(Chosen(index, chance.choice(fitting)))
            index += 1
        chains.append(chain)
    return chains


def _joins(parts: Parts, chain: Chain, index: int, counted: CountedAxis) -> bool:
    """Whether what it shares with the others and one of them writes is cut in the same way."""
    lowered = parts.lowered
    own = buffer_periods(lowered, index, counted)
    for operator, axis in chain.operators:
        other = buffer_periods(lowered, operator, parts.axes[operator][axis])
        for buffer in set(own) & set(other) & (written(lowered, index) | written(lowered, operator)):
            if own[buffer] != other[buffer] or len(own[buffer]) != 1 or own[buffer] == {0}:
                return False
    return True


class Given(NamedTuple):
    parts: Parts
    chains: list[Chain]
    plan: GivenPlan
    program: Any


@contextmanager
def in_parts(monkeypatch: Any, folder: Path, seed: int, *, exact: bool) -> Iterator[list[Given]]:
    """Programs built within it are built from such plans; gives those that were."""
    assemble = lowtide_step.assemble
    made: list[Given] = []

    def in_parts(lowered: Any, profiles: Any, plan: Any, numbers: Any, *rest: Any) -> Any:
        parts = find_parts(
            lowered, profiles, PartCache(folder), lambda number: numbers[number.index], 0, bits="compared"
        )
        chains = random_chains(parts, random.Random(seed), exact=exact)
        given = GivenPlan(lowered, [profile.workspace for profile in profiles], parts, chains)
        program = assemble(lowered, profiles, given, numbers, parts=parts)
        made.append(Given(parts, chains, given, program))
        return program

    with monkeypatch.context() as patched:
        patched.setattr(lowtide_step, "assemble", in_parts)
        yield made
