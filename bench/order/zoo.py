"""Order: how close to a proven bound over all orders the zoo's training steps are planned, and how soon.

    python -m bench run order_zoo [--optimizers adam fused foreach] [--gradients kept dropped] [--cache DIR] [MODEL ...]

*Program* is the peak of program order. *Order* is the arena of the best order, in which every result has bytes of its
own; *plan* that of `lowtide.plan`, where results may be made in the bytes of operands. *Gap* is how far each is above
what is proven for its kind. The seconds are the processor's, for order, layout and verification.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import lowtide
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import ADAMS, GRADIENTS, MIB, Form, Step

GAP = 0.001  # a step above this is listed, and one that is planned slower than this
SECONDS = {"gpt2_xl": 5.0}
SECONDS_OTHERS = 2.0
COLUMNS = ("model", "batch", "ops", "program MiB", "order MiB", "gap", "seconds", "plan MiB", "gap", "seconds")


@dataclass(frozen=True)
class Ordered:
    """A step, planned without and with reuse."""

    step: Step
    order: lowtide.Plan
    order_seconds: float
    plan: lowtide.Plan
    plan_seconds: float

    @property
    def far(self) -> bool:
        return max(self.order.gap, self.plan.gap) > GAP

    @property
    def slow(self) -> bool:
        return max(self.order_seconds, self.plan_seconds) > SECONDS.get(self.step.model, SECONDS_OTHERS)

    @property
    def figures(self) -> dict[str, Any]:
        """Plans in short: arena, peak and bound in bytes, and seconds."""
        step = self.step
        return {
            "model": step.model,
            "batch": step.batch,
            "optimizer": step.form.optimizer,
            "gradients": step.form.gradients,
            "ops": step.graph.num_ops,
            "program_bytes": step.graph.program_peak_bytes,
            **{
                f"{name}_{what}": amount
                for name, plan, seconds in (
                    ("order", self.order, self.order_seconds),
                    ("plan", self.plan, self.plan_seconds),
                )
                for what, amount in (
                    ("arena_bytes", plan.arena_bytes),
                    ("peak_bytes", plan.peak_bytes),
                    ("bound_bytes", plan.bound_bytes),
                    ("seconds", seconds),
                )
            },
        }


def measure(steps: Iterable[Step]) -> Iterator[Ordered]:
    """Plans each twice."""
    for step in each(steps, "steps"):
        begin = time.process_time()
        order = lowtide.plan(step.graph, reuse=False)
        ordered = time.process_time()
        plan = lowtide.plan(step.graph)
        yield Ordered(step, order, ordered - begin, plan, time.process_time() - ordered)


def print_tables(steps: Iterable[Step]) -> list[Ordered]:
    """Prints a table for each form of these steps, and what is far from a proof or slow; gives all rows."""
    rows: list[Ordered] = []
    for row in measure(steps):
        step = row.step
        if not rows or rows[-1].step.form != step.form:
            print(f"\nAdam: {step.form.optimizer}, gradients: {step.form.gradients}\n")
            print(header(COLUMNS))
        cells = [step.model, step.batch, step.graph.num_ops, f"{step.graph.program_peak_bytes / MIB:.2f}"]
        for plan, seconds in ((row.order, row.order_seconds), (row.plan, row.plan_seconds)):
            cells += [f"{plan.arena_bytes / MIB:.2f}", f"{100 * plan.gap:.4f} %", f"{seconds:.3f}"]
        print(line(cells), flush=True)
        rows.append(row)
    orders, plans = (sum(plan.peak_bytes == plan.bound_bytes for plan in made) for made in _plans(rows))
    print(f"\n{len(rows)} steps; the order of {orders} proven best, with reuse that of {plans}")
    for title, chosen in (
        (f"more than {GAP} above the bound", [row for row in rows if row.far]),
        ("too slow", [row for row in rows if row.slow]),
    ):
        named = [f"{row.step} ({row.step.form.optimizer}, {row.step.form.gradients})" for row in chosen]
        print(f"{title}: {', '.join(named) or 'none'}")
    return rows


def _plans(rows: list[Ordered]) -> tuple[list[lowtide.Plan], list[lowtide.Plan]]:
    return [row.order for row in rows], [row.plan for row in rows]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    zoo_graphs.add_arguments(parser)
    parser.add_argument("--optimizers", nargs="+", choices=ADAMS, default=ADAMS)
    parser.add_argument("--gradients", nargs="+", choices=GRADIENTS, default=GRADIENTS)


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the tables; gives their rows."""
    forms = [Form(optimizer, gradients) for gradients in options.gradients for optimizer in options.optimizers]
    return [row.figures for row in print_tables(zoo_graphs.chosen(options, forms))]
