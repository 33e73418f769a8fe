"""Order on irregular networks: `best` beside program order, and a proven bound over all orders.

    python -m bench run order_irregular [--ops 200] [--seeds 10] [--families nas ...] [--detail]

Sizes are relative to the bound: 1.05 is 5 % above it. *Proven* counts the graphs whose order is proven best;
*seconds* are those of the processor for `best`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import lowtide
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.order.irregular_graphs import FAMILIES, make

MIB = 2**20


@dataclass(frozen=True)
class Ordered:
    """A graph and its orders."""

    family: str
    pass_name: str
    seed: int
    ops: int
    program_bytes: int
    best_bytes: int
    bound_bytes: int
    seconds: float

    @property
    def gap(self) -> float:
        return self.best_bytes / self.bound_bytes - 1

    @property
    def proven(self) -> bool:
        return self.best_bytes == self.bound_bytes


def measure(family: str, ops: int, seed: int, *, training: bool) -> Ordered:
    """Makes a graph and orders it."""
    graph = make(family, ops, seed, training=training)
    begin = time.process_time()
    plan = lowtide.plan(graph)
    seconds = time.process_time() - begin
    name = "training" if training else "forward"
    return Ordered(
        family, name, seed, graph.num_ops, graph.program_peak_bytes, plan.peak_bytes, plan.bound_bytes, seconds
    )


def print_tables(families: Sequence[str], ops: int, seeds: int, *, detail: bool) -> list[Ordered]:
    """Prints a line for each family and pass, or for each graph; gives all rows."""
    if detail:
        columns = ("family", "pass", "seed", "ops", "program MiB", "best", "bound", "gap", "proven", "seconds")
    else:
        columns = ("family", "pass", "graphs", "program / bound", "best / bound", "worst", "proven", "seconds, most")
    print(header(columns))
    rows = []
    for family in each(families, "families"):
        for training in (False, True):
            group = []
            for seed in range(seeds):
                group.append(measure(family, ops, seed, training=training))
                if detail:
                    _print_detail(group[-1])
            if not detail:
                _print_group(group)
            rows += group
    print(f"\nproven: {sum(row.proven for row in rows)} of {len(rows)}")
    return rows


def _print_detail(row: Ordered) -> None:
    sizes = [f"{size / MIB:.3f}" for size in (row.program_bytes, row.best_bytes, row.bound_bytes)]
    proven = "yes" if row.proven else "no"
    names = (row.family, row.pass_name, row.seed, row.ops)
    print(line((*names, *sizes, f"{100 * row.gap:.3f} %", proven, f"{row.seconds:.3f}")), flush=True)


def _print_group(rows: Sequence[Ordered]) -> None:
    program = statistics.geometric_mean(row.program_bytes / row.bound_bytes for row in rows)
    best = [row.best_bytes / row.bound_bytes for row in rows]
    proven = sum(row.proven for row in rows)
    cells = (
        rows[0].family, rows[0].pass_name, len(rows), f"{program:.4f}", f"{statistics.geometric_mean(best):.4f}",
        f"{max(best):.4f}", f"{proven} of {len(rows)}", f"{max(row.seconds for row in rows):.2f}",
    )  # fmt: skip
    print(line(cells), flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ops", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--detail", action="store_true", help="a line for each graph")


def run(options: argparse.Namespace) -> list[Ordered]:
    """Prints the tables; gives a row for each graph."""
    return print_tables(options.families, options.ops, options.seeds, detail=options.detail)
