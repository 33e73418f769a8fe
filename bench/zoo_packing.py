"""Packing: how close the arena comes to the most bytes alive, in program order, for every model of the zoo.

python bench/zoo_packing.py [MODEL ...]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import lowtide
import zoo
from zoo_table import graph_of, settings


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


def measure(models: Sequence[str]) -> Iterator[Packed]:
    """Plans a step of each, at two batches."""
    for name in models:
        for use, batch in settings(zoo.row_of(name), uses=False):
            graph = graph_of(name, use, batch, "sdpa")[0]
            begin = time.perf_counter()
            plan = lowtide.plan(graph, order="program")
            seconds = time.perf_counter() - begin
            layout = plan.summary().partition("layout ")[2].partition(",")[0]
            yield Packed(name, batch, graph.num_ops, plan.peak_bytes, plan.arena_bytes, layout, seconds)


def print_table(models: Sequence[str]) -> list[Packed]:
    """Prints the table of these models, and gives its rows."""
    print("| model | batch | ops | peak MiB | fragmentation | layout | seconds |")
    print("|---|---|---|---|---|---|---|")
    rows = []
    for row in measure(models):
        print(
            f"| {row.model} | {row.batch} | {row.ops} | {row.peak_bytes / 2**20:.1f} "
            f"| {row.fragmentation} | {row.layout} | {row.seconds:.2f} |",
            flush=True,
        )
        rows.append(row)
    open_gaps = [f"{row.model} at {row.batch}" for row in rows if row.fragmentation != "0.00 %"]
    print(f"\nnot at the peak: {', '.join(open_gaps) or 'none'}")
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=zoo.names(), metavar="MODEL")
    print_table(parser.parse_args().models)


if __name__ == "__main__":
    main()
