"""Plans of any order, made from docs/formats.md alone, with no part of the planner; `verify` judges them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import lowtide
from graph_file import GraphFile

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


def plan_in_order(graph: lowtide.Graph, order: list[int], folder: Path) -> lowtide.Plan:
    """Each buffer at the lowest gap there is when it is first touched."""
    file = GraphFile(graph)
    lives = [(0, len(order) if file.resident(buffer) else 0) for buffer in range(len(file.buffers))]
    seen: set[int] = set()
    for step, op in enumerate(order):
        for buffer in file.touched(op):
            if not file.resident(buffer):
                end = len(order) if file.buffers[buffer].get("kept") else step + 1
                lives[buffer] = (lives[buffer][0] if buffer in seen else step, end)
                seen.add(buffer)

    by_begin: list[list[int]] = [[] for _ in order]
    for buffer in seen:
        by_begin[lives[buffer][0]].append(buffer)
    offsets: dict[int, int] = {}
    held: list[tuple[int, int, int]] = []  # offset, its end, and the end of its life
    arena = peak = alive = 0
    steps = []
    for step, op in enumerate(order):
        held = sorted(place for place in held if place[2] > step)
        for buffer in sorted(by_begin[step]):
            size = file.buffers[buffer]["size"]
            offsets[buffer] = _lowest_gap(held, size)
            held = sorted([*held, (offsets[buffer], offsets[buffer] + size, lives[buffer][1])])
        workspace = file.ops[op].get("workspace", 0)
        own = _lowest_gap(held, workspace) if workspace else 0
        arena = max([arena, own + workspace, *(end for _, end, _ in held)])
        alive = sum(end - begin for begin, end, _ in held)
        peak = max(peak, alive + workspace)
        steps.append({"op": op, "reads": file.reads(op), "writes": file.writes(op), "workspace": own})
    blocks = [
        {"buffer": buffer, "begin": begin, "end": end}
        | ({} if file.resident(buffer) else {"offset": offsets.get(buffer, 0)})
        for buffer, (begin, end) in enumerate(lives)
    ]
    figures = {
        "arena": arena,
        "peak": peak,
        "resident": graph.resident_bytes,
        "time_ns": sum(op.get("time_ns", 0) for op in file.ops),
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
