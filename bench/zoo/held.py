"""The models of the papers in figures: what a training step with Adam holds, before any planning.

    python bench/zoo/held.py [--uses] [--attention sdpa] [--page] [name ...]

With `--uses`, each paper's own settings instead of batch 1 and 32. `--page > docs/zoo.md` writes the page of the docs.
"""

from __future__ import annotations

import argparse
import os

import torch

from bench import zoo
from bench.zoo.graphs import MIB, Form, graph_of, settings
from lowtide import _core

PAGE = """\
# The models of the papers

Made by `python bench/zoo/held.py --page > docs/zoo.md`: what a training step with Adam holds, before any planning.

Each model is captured without weights, at batch 1 and at 32 (or at the batch of the paper that trains it, if none
uses 32). *Resident* are parameters, optimizer state, gradients and the batch. *Peak* is the most that program order
keeps alive beside them, without the operators' own workspaces, which only running them tells. *Bound* is the most that
one operator touches, less what it may reuse: no plan has a smaller peak. *Seconds* are those of the capture, on one
core.

*Live* is the most that eager PyTorch needs at once, where gradients live until the next iteration zeroes them.
*Reserved* is what its caching allocator for CUDA takes for that from a device that is never full, simulated by the
rules of PyTorch 2.13 (`caching_allocator.h`); *expandable* is the same with `expandable_segments:True`.
"""
COLUMNS = (
    "model", "parameters M", "paper", "batch", "side or length", "dtype",
    "ops", "buffers", "resident MiB", "peak MiB", "bound MiB",
    "live MiB", "reserved MiB", "expandable MiB", "seconds",
)  # fmt: skip


def line(name: str, use: zoo.Use, batch: int, attention: str) -> str:
    graph, job, seconds = graph_of(name, use, batch, Form(attention=attention))
    eager, expandable = (_core.run_eager(graph, conf) for conf in ("", "expandable_segments:True"))
    parameters = sum(parameter.numel() for parameter in job.model.parameters())
    cells = (
        name, f"{parameters / 1e6:.1f}", use.paper, batch, use.extent, use.dtype,
        graph.num_ops, graph.num_buffers, f"{graph.resident_bytes / MIB:.1f}",
        f"{graph.program_peak_bytes / MIB:.1f}", f"{graph.operand_bound_bytes / MIB:.1f}",
        f"{eager.peak_live_bytes / MIB:.1f}", f"{eager.peak_reserved_bytes / MIB:.0f}",
        f"{expandable.peak_reserved_bytes / MIB:.0f}", f"{seconds:.1f}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(zoo.names())}; all if none is given")
    parser.add_argument("--uses", action="store_true", help="each paper's own batches and sizes")
    parser.add_argument("--page", action="store_true", help="the whole page of the docs, not only its table")
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager")
    options = parser.parse_args()
    os.environ.setdefault("LOWTIDE_QUIET", "1")
    torch.set_num_threads(1)
    if options.page:
        print(PAGE)
    print(f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}", sep="\n")
    for name in options.names or zoo.names():
        for use, batch in settings(zoo.row_of(name), uses=options.uses):
            print(line(name, use, batch, options.attention), flush=True)


if __name__ == "__main__":
    main()
