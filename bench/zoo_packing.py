"""Packing: how close the arena comes to the most bytes alive, in program order, for every model of the zoo.

python bench/zoo_packing.py [MODEL ...]
"""

from __future__ import annotations

import argparse
import time

import lowtide
import zoo
from zoo_table import graph_of, settings


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=zoo.names(), metavar="MODEL")
    options = parser.parse_args()
    open_gaps = []
    print("| model | batch | ops | peak MiB | fragmentation | layout | seconds |")
    print("|---|---|---|---|---|---|---|")
    for name in options.models:
        for use, batch in settings(zoo.row_of(name), uses=False):
            graph = graph_of(name, use, batch, "sdpa")[0]
            begin = time.perf_counter()
            plan = lowtide.plan(graph)
            seconds = time.perf_counter() - begin
            layout = plan.summary().partition("layout ")[2].partition(",")[0]
            fragmentation = f"{100 * plan.fragmentation:.2f} %"  # offsets are multiples of 64, sizes are not
            if fragmentation != "0.00 %":
                open_gaps.append(f"{name} at {batch}")
            print(
                f"| {name} | {batch} | {graph.num_ops} | {plan.peak_bytes / 2**20:.1f} "
                f"| {fragmentation} | {layout} | {seconds:.2f} |",
                flush=True,
            )
    print(f"\nnot at the peak: {', '.join(open_gaps) or 'none'}")


if __name__ == "__main__":
    main()
