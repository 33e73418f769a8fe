"""Plans of any order, made from docs/formats.md alone, with no part of the planner; `verify` judges them."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from pathlib import Path

import lowtide
from lowtide._base.graph_file import GraphFile

ALIGNMENT = 64


def needs_of(graph: GraphFile) -> list[set[int]]:
    """By op: those that must run before it."""
    needs: list[set[int]] = [set() for _ in graph.ops]
    for edge in graph.edges:
        needs[edge["after"]].add(edge["before"])
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}  # of the newest content
    last: dict[str, int] = {}  # of those that keep their order
    for op, fields in enumerate(graph.ops):
        needs[op] |= {writer[buffer] for buffer in graph.touched(op) if buffer in writer}
        for buffer in graph.reads(op):
            readers.setdefault(buffer, []).append(op)
        for buffer in graph.writes(op):
            needs[op] |= set(readers.pop(buffer, [])) - {op}
            writer[buffer] = op
        for kind in ("random", "collective"):
            if fields.get(kind):
                needs[op] |= {last[kind]} if kind in last else set()
                last[kind] = op
    return needs


def random_order(graph: lowtide.Graph, seed: int) -> list[int]:
    """At each step any of what is ready, each as likely as the others."""
    chance = random.Random(seed)
    needs = needs_of(GraphFile(graph))
    waiting = [len(before) for before in needs]
    behind: list[list[int]] = [[] for _ in needs]
    for op, before in enumerate(needs):
        for need in before:
            behind[need].append(op)
    ready = [op for op, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        place = chance.randrange(len(ready))
        ready[place], ready[-1] = ready[-1], ready[place]
        order.append(ready.pop())
        for op in behind[order[-1]]:
            waiting[op] -= 1
            if waiting[op] == 0:
                ready.append(op)
    return order


@dataclass(slots=True)
class GivenSteps:
    """What runs, step by step, and in which blocks: block i stands in for buffer i, further ones as they are listed."""

    ops: list[int]
    reads: list[list[int]]
    writes: list[list[int]]
    buffers: list[int]  # by block
    over: dict[int, int] = field(default_factory=dict)  # block -> the block that it is made in the bytes of

    def lives(self, file: GraphFile) -> list[tuple[int, int]]:
        """By block: from the first step that touches it to the last, or to the end if it must be there then."""
        count = len(self.ops)
        lives = [(0, count if file.resident(buffer) else 0) for buffer in self.buffers]
        seen: set[int] = set()
        for step, blocks in enumerate(zip(self.reads, self.writes, strict=True)):
            for block in {*blocks[0], *blocks[1]}:
                if not file.resident(self.buffers[block]):
                    end = count if file.buffers[self.buffers[block]].get("kept") else step + 1
                    lives[block] = (lives[block][0] if block in seen else step, end)
                    seen.add(block)
        return lives


def plan_in_order(graph: lowtide.Graph, order: list[int], folder: Path) -> lowtide.Plan:
    """Each op once, each buffer in one block."""
    file = GraphFile(graph)
    reads, writes = [file.reads(op) for op in order], [file.writes(op) for op in order]
    return plan_of_steps(graph, file, GivenSteps(order, reads, writes, list(range(len(file.buffers)))), folder)


def plan_of_steps(graph: lowtide.Graph, file: GraphFile, given: GivenSteps, folder: Path) -> lowtide.Plan:
    """Each block at the lowest gap there is when it is first touched, or over the one that it is made of."""
    lives = given.lives(file)
    by_begin: list[list[int]] = [[] for _ in given.ops]
    for block, (begin, end) in enumerate(lives):
        if end > 0 and not file.resident(given.buffers[block]):
            by_begin[begin].append(block)
    offsets: dict[int, int] = {}
    held: list[tuple[int, int, int]] = []  # offset, its end, and the end of its life
    arena = peak = alive = 0
    steps = []
    for step, op in enumerate(given.ops):
        held = sorted(place for place in held if place[2] > step)
        for block in sorted(by_begin[step]):
            size = file.buffers[given.buffers[block]]["size"]
            if block in given.over:
                offsets[block] = offsets[given.over[block]]
                held.remove((offsets[block], offsets[block] + size, step + 1))
            else:
                offsets[block] = _lowest_gap(held, size)
            held = sorted([*held, (offsets[block], offsets[block] + size, lives[block][1])])
        workspace = file.ops[op].get("workspace", 0)
        own = _lowest_gap(held, workspace) if workspace else 0
        arena = max([arena, own + workspace, *(end for _, end, _ in held)])
        alive = sum(end - begin for begin, end, _ in held)
        peak = max(peak, alive + workspace)
        steps.append({"op": op, "reads": given.reads[step], "writes": given.writes[step], "workspace": own})
    blocks = [
        {"buffer": buffer, "begin": begin, "end": end}
        | ({} if file.resident(buffer) else {"offset": offsets.get(block, 0)})
        for block, (buffer, (begin, end)) in enumerate(zip(given.buffers, lives, strict=True))
    ]
    figures = {
        "arena": arena,
        "peak": peak,
        "resident": graph.resident_bytes,
        "time_ns": sum(file.ops[op].get("time_ns", 0) for op in given.ops),
    }
    content = {"format": "lowtide-plan", "version": 1, "figures": figures, "blocks": blocks, "steps": steps}
    (folder / "plan.json").write_text(json.dumps(content))
    plan = lowtide.Plan.load(folder / "plan.json")
    lowtide.verify(graph, plan)
    return plan


def _lowest_gap(held: list[tuple[int, int, int]], size: int) -> int:
    """Where `size` bytes fit between these places, which are sorted."""
    at = 0
    for begin, end, _ in held:
        if begin - at >= size:
            break
        at = max(at, -(-end // ALIGNMENT) * ALIGNMENT)
    return at
