"""Packing: how close the arena comes to the most bytes alive, in program order, for every model of the zoo.

python -m bench run packing_zoo [--cache DIR] [MODEL ...]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import lowtide
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import MIB, Form, Step


@dataclass(frozen=True)
class Packed:
    """A step of a model, planned."""

    model: str
    batch: int
    ops: int
    peak_bytes: int
    arena_bytes: int
    layout: str
    seconds: float

    @property
    def fragmentation(self) -> str:
        """As the table shows it, in which the gaps of aligned offsets behind sizes that are not are nothing."""
        return f"{100 * (1 - self.peak_bytes / self.arena_bytes):.2f} %"


def measure(steps: Iterable[Step]) -> Iterator[Packed]:
    """Plans each."""
    for step in each(steps, "steps"):
        begin = time.perf_counter()
        plan = lowtide.plan(step.graph, order="program", reuse=False)
        seconds = time.perf_counter() - begin
        layout = plan.summary().partition("layout ")[2].partition(",")[0]
        yield Packed(step.model, step.batch, step.graph.num_ops, plan.peak_bytes, plan.arena_bytes, layout, seconds)


def print_table(steps: Iterable[Step]) -> list[Packed]:
    """Prints the table of these steps, and gives its rows."""
    print(header(("model", "batch", "ops", "peak MiB", "fragmentation", "layout", "seconds")))
    rows = []
    for row in measure(steps):
        peak, seconds = f"{row.peak_bytes / MIB:.1f}", f"{row.seconds:.2f}"
        print(line((row.model, row.batch, row.ops, peak, row.fragmentation, row.layout, seconds)), flush=True)
        rows.append(row)
    open_gaps = [f"{row.model} at {row.batch}" for row in rows if row.fragmentation != "0.00 %"]
    print(f"\nnot at the peak: {', '.join(open_gaps) or 'none'}")
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    zoo_graphs.add_arguments(parser)


def run(options: argparse.Namespace) -> list[Packed]:
    """Prints the table; gives its rows."""
    return print_table(zoo_graphs.chosen(options, [Form()]))
