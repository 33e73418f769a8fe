"""Order: how close to a proven bound over all orders the zoo's training steps are planned, and how soon.

    python bench/zoo_order.py [--optimizers adam fused foreach] [--gradients kept dropped] [--cache DIR] [MODEL ...]

*Program* is the peak of program order, *best* that of the order `best`. *Gap* is how far the arena is above the bound.
*Order* are the seconds of the processor for the order alone, *plan* those for all of it: order, layout, verification.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import lowtide
import zoo_graphs
from lowtide import _core
from zoo_graphs import GRADIENTS, MIB, OPTIMIZERS, Form, Step

GAP = 0.001  # a step above this is listed, and one that is planned slower than this
SECONDS = {"gpt2_xl": 5.0}
SECONDS_OTHERS = 2.0
COLUMNS = ("model", "batch", "ops", "program MiB", "best", "arena", "bound", "gap", "order s", "plan s")


@dataclass(frozen=True)
class Ordered:
    """A step, planned."""

    step: Step
    program_bytes: int
    best_bytes: int
    arena_bytes: int
    bound_bytes: int
    order_seconds: float
    plan_seconds: float

    @property
    def gap(self) -> float:
        return self.arena_bytes / self.bound_bytes - 1

    @property
    def far(self) -> bool:
        return self.gap > GAP

    @property
    def slow(self) -> bool:
        return self.plan_seconds > SECONDS.get(self.step.model, SECONDS_OTHERS)


def measure(steps: Iterable[Step]) -> Iterator[Ordered]:
    """Orders and plans each."""
    for step in steps:
        begin = time.process_time()
        _, best, bound = _core.best_order(step.graph)
        ordered = time.process_time()
        plan = lowtide.plan(step.graph)
        done = time.process_time()
        yield Ordered(
            step, step.graph.program_peak_bytes, best, plan.arena_bytes, bound, ordered - begin, done - ordered
        )


def print_tables(steps: Iterable[Step]) -> list[Ordered]:
    """Prints a table for each form of these steps, and what is far from a proof or slow; gives all rows."""
    rows: list[Ordered] = []
    for row in measure(steps):
        step = row.step
        if not rows or rows[-1].step.form != step.form:
            print(f"\nAdam: {step.form.optimizer}, gradients: {step.form.gradients}\n")
            print(f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", sep="\n")
        sizes = [f"{size / MIB:.2f}" for size in (row.program_bytes, row.best_bytes, row.arena_bytes, row.bound_bytes)]
        cells = (step.model, step.batch, step.graph.num_ops, *sizes, f"{100 * row.gap:.4f} %")
        print(f"| {' | '.join(map(str, cells))} | {row.order_seconds:.3f} | {row.plan_seconds:.3f} |", flush=True)
        rows.append(row)
    proven = sum(row.best_bytes == row.bound_bytes for row in rows)
    print(f"\n{len(rows)} steps, the order of {proven} proven best")
    for title, chosen in (
        (f"more than {GAP} above the bound", [row for row in rows if row.far]),
        ("too slow", [row for row in rows if row.slow]),
    ):
        named = [f"{row.step} ({row.step.form.optimizer}, {row.step.form.gradients})" for row in chosen]
        print(f"{title}: {', '.join(named) or 'none'}")
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    zoo_graphs.add_arguments(parser)
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    parser.add_argument("--gradients", nargs="+", choices=GRADIENTS, default=GRADIENTS)
    options = parser.parse_args()
    forms = [Form(optimizer, gradients) for gradients in options.gradients for optimizer in options.optimizers]
    print_tables(zoo_graphs.chosen(options, forms))


if __name__ == "__main__":
    main()
