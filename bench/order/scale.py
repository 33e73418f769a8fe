"""Order of large graphs: steps of the zoo at batch 1, stacked and unrolled up to a million ops.

    python -m bench run order_scale [--ops 10000 100000 1000000] [--shapes stacked unrolled] [--cache DIR] [MODEL ...]

*Peak* is that of the order `best` and *arena* that of the whole plan, both relative to a proven bound over all orders.
*Plan* are seconds; *memory* is the most that a process held which read the graph and planned it.
*Slope* is the power of the size with which the seconds of the plan have grown since the size before.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import lowtide
from bench.lib.apart import ROOT, command_of
from bench.lib.markdown import header, line
from bench.lib.measured_run import measure

GIB = 2**30
MODELS = ("googlenet", "resnet50", "vit_base", "mobilenet_v2", "inception_resnet_v2")
COLUMNS = ("shape", "ops", "program", "peak", "arena", "plan s", "memory GiB", "slope")


@dataclass(frozen=True)
class Scaled:
    """A large graph, planned."""

    shape: str
    ops: int
    program_bytes: int
    peak_bytes: int
    arena_bytes: int
    bound_bytes: int
    plan_seconds: float
    memory_bytes: int

    def above(self, size: int) -> str:
        return f"{size / self.bound_bytes:.6f}"


def planned(shape: str, parts: Sequence[lowtide.Graph], ops: int, seed: int) -> Scaled:
    """Makes a graph, and plans it in a process of its own."""
    from bench.order.grown_graphs import grow

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.json.zst"
        grow(shape, parts, ops, seed).save(path)
        done = measure(command_of("bench.order.scale", str(path)), cwd=ROOT)
    if done.code != 0:
        raise RuntimeError(f"{shape} of {ops} ops was not planned: {done.stderr}")
    return Scaled(shape, **json.loads(done.stdout), memory_bytes=done.peak_bytes)


def plan_file(path: Path) -> dict[str, float]:
    """Orders and plans one graph; what the other process does."""
    graph = lowtide.Graph.load(path)
    begin = time.perf_counter()
    plan = lowtide.plan(graph)
    return {
        "ops": graph.num_ops,
        "program_bytes": graph.program_peak_bytes,
        "peak_bytes": plan.peak_bytes,
        "arena_bytes": plan.arena_bytes,
        "bound_bytes": plan.bound_bytes,
        "plan_seconds": time.perf_counter() - begin,
    }


def print_table(shapes: Sequence[str], parts: Sequence[lowtide.Graph], sizes: Sequence[int], seed: int) -> list[Scaled]:
    """Prints the table, and gives its rows."""
    print(header(COLUMNS))
    rows: list[Scaled] = []
    for shape in shapes:
        for ops in sizes:
            row = planned(shape, parts, ops, seed)
            last = rows[-1] if rows and rows[-1].shape == shape else None
            slope = math.log(row.plan_seconds / last.plan_seconds) / math.log(row.ops / last.ops) if last else None
            cells = (
                shape, row.ops, row.above(row.program_bytes), row.above(row.peak_bytes), row.above(row.arena_bytes),
                f"{row.plan_seconds:.2f}", f"{row.memory_bytes / GIB:.2f}",
                "" if slope is None else f"{slope:.2f}",
            )  # fmt: skip
            print(line(cells), flush=True)
            rows.append(row)
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from bench.order.grown_graphs import SHAPES
    from bench.zoo import graphs as zoo_graphs

    zoo_graphs.add_arguments(parser)
    parser.add_argument("--ops", nargs="+", type=int, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--seed", type=int, default=0)


def run(options: argparse.Namespace) -> list[Scaled]:
    """Prints the table; gives its rows."""
    from bench.zoo import graphs as zoo_graphs

    options.models = options.models or MODELS
    steps = zoo_graphs.chosen(options, [zoo_graphs.Form("fused", "dropped")])
    return print_table(options.shapes, [step.graph for step in steps if step.batch == 1], options.ops, options.seed)


if __name__ == "__main__":
    print(json.dumps(plan_file(Path(sys.argv[1]))))
