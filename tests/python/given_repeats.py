"""Plans that run ops again, made at random from docs/formats.md alone; `verify` judges them.

Where a step reads what has not been used for a while, it may be made again in a further block right before, by running
the ops again that make it, and those that make what these read, where that is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import lowtide
from given_orders import GivenSteps, plan_of_steps
from lowtide._base.graph_file import GraphFile

MOST_STEPS = 40  # that run ops again for one buffer


class Impossible(Exception):
    """Something cannot be made again, or not in as many steps."""


def plan_with_repeats(graph: lowtide.Graph, order: list[int], seed: int, folder: Path) -> lowtide.Plan:
    """The ops in this order, and some of them again."""
    file = GraphFile(graph)
    return plan_of_steps(graph, file, _Repeating(file, order, random.Random(seed)).steps(), folder)


class _Repeating:
    def __init__(self, file: GraphFile, order: list[int], chance: random.Random) -> None:
        self.file = file
        self.order = order
        self.chance = chance
        self.gap = chance.choice([3, 10, 30])  # how many steps something lies idle before it may be made again
        self.share = chance.choice([0.3, 0.6, 1.0])  # of what may be
        self.read_versions = [
            {file.values[v]["buffer"]: file.values[v].get("version", 0) for v in op.get("reads", [])} for op in file.ops
        ]
        self.written_versions: list[dict[int, int]] = []
        self.writer: dict[tuple[int, int], int] = {}
        newest = {index: 0 for index, buffer in enumerate(file.buffers) if buffer.get("initial")}
        self.holds = dict(newest)  # by block
        for op in range(len(file.ops)):
            self.written_versions.append({})
            for buffer in file.writes(op):
                newest[buffer] = newest.get(buffer, -1) + 1
                self.written_versions[op][buffer] = newest[buffer]
                self.writer[buffer, newest[buffer]] = op
        self.in_edge = {op for edge in file.edges for op in edge.values()}
        self.last_touch = {buffer: at for at, op in enumerate(order) for buffer in file.touched(op)}
        self.where = list(range(len(file.buffers)))  # by buffer: the block of what runs for the first time
        self.used: dict[int, int] = {}  # by block: the last step that touched it
        self.given = GivenSteps([], [], [], list(range(len(file.buffers))))
        self.ran: set[int] = set()

    def steps(self) -> GivenSteps:
        for at, op in enumerate(self.order):
            places = {buffer: self.where[buffer] for buffer in self.file.touched(op)}
            for buffer, version in self.read_versions[op].items():
                if not self._lies_idle(places[buffer]):
                    continue
                further = self._attempt(partial(self._make_again, buffer, version, at, []))
                if further is not None:
                    places[buffer] = further
                    if buffer in self.written_versions[op] or self.chance.random() < 0.8:
                        self.where[buffer] = further
            self._run(op, places)
        self._reuse_places()
        return self.given

    def _lies_idle(self, block: int) -> bool:
        if self.file.resident(self.given.buffers[block]) or self.chance.random() >= self.share:
            return False
        return len(self.given.ops) - self.used[block] >= self.gap

    def _attempt(self, make: Callable[[], int]) -> int | None:
        """What it gives; if it is impossible, everything is as before."""
        given = self.given
        before = len(given.ops), len(given.buffers), dict(self.holds), dict(self.used)
        try:
            return make()
        except Impossible:
            ops, blocks, self.holds, self.used = before
            for steps in (given.ops, given.reads, given.writes):
                del steps[ops:]
            del given.buffers[blocks:]
            return None

    def _make_again(self, buffer: int, version: int, at: int, runs: list[int]) -> int:
        """Runs the op that makes `version`, before what step `at` of the order runs; gives the further block."""
        op = self.writer.get((buffer, version), -1)
        if op < 0 or len(runs) == MOST_STEPS or not self._may_run_again(op):
            raise Impossible
        runs.append(op)
        places: dict[int, int] = {}
        for written, made in self.written_versions[op].items():
            if self.file.resident(written):
                places[written] = written
            elif made == 0:
                self.given.buffers.append(written)
                places[written] = len(self.given.buffers) - 1
            else:
                places[written] = self._make_again(written, made - 1, at, runs)
        for read, needed in self.read_versions[op].items():
            if read not in places:
                places[read] = self._find(read, needed, at, runs)
        self._run(op, places)
        return places[buffer]

    def _find(self, buffer: int, version: int, at: int, runs: list[int]) -> int:
        """A block that holds this: the one there is, if it is needed later anyway or nothing else is possible."""
        block = self.where[buffer]
        there = self.holds.get(block) == version
        if self.file.resident(buffer) or (there and self.last_touch[buffer] >= at):
            if not there:
                raise Impossible
            return block
        further = self._attempt(partial(self._make_again, buffer, version, at, runs))
        if further is None and not there:
            raise Impossible
        return block if further is None else further

    def _may_run_again(self, op: int) -> bool:
        fields = self.file.ops[op]
        if fields.get("collective") or fields.get("must_not_recompute") or op in self.in_edge:
            return False
        resident = [version for buffer, version in self.written_versions[op].items() if self.file.resident(buffer)]
        return not resident or (min(resident) > 0 and fields.get("may_skip_updates", False))

    def _run(self, op: int, places: dict[int, int]) -> None:
        given = self.given
        given.ops.append(op)
        given.reads.append([places[buffer] for buffer in self.file.reads(op)])
        given.writes.append([places[buffer] for buffer in self.file.writes(op)])
        for block in places.values():
            self.used[block] = len(given.ops) - 1
        for buffer, version in self.written_versions[op].items():
            if op not in self.ran or not self.file.resident(buffer):
                self.holds[places[buffer]] = version
        self.ran.add(op)

    def _reuse_places(self) -> None:
        """Half of what can be made in the bytes of an operand is."""
        given, lives = self.given, self.given.lives(self.file)
        allowed: dict[int, list[tuple[int, int]]] = {}
        for row in self.file.reuses:
            allowed.setdefault(row["op"], []).append((row["from"], row["to"]))
        for step, op in enumerate(given.ops):
            blocks = {given.buffers[block]: block for block in (*given.reads[step], *given.writes[step])}
            for source, made in allowed.get(op, []):
                begins = lives[blocks[made]][0] == step and blocks[made] not in given.over
                if begins and lives[blocks[source]][1] == step + 1 and self.chance.random() < 0.5:
                    given.over[blocks[made]] = blocks[source]
