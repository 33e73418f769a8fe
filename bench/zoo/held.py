"""The models of the papers in figures: what a training step with Adam holds, before any planning.

    python -m bench run zoo_held [--uses] [--attention sdpa] [MODEL ...]

With `--uses`, each paper's own settings instead of batch 1 and 32.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from bench import zoo
from bench.lib.markdown import header, line
from bench.page.zoo import COLUMNS, cells
from bench.zoo.graphs import Form, graph_of, settings
from lowtide import _core


def measure(name: str, use: zoo.Use, batch: int, attention: str) -> dict[str, Any]:
    """A row of the table."""
    graph, job, seconds = graph_of(name, use, batch, Form(attention=attention))
    eager, expandable = (_core.run_eager(graph, conf) for conf in ("", "expandable_segments:True"))
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in job.model.parameters()),
        "paper": use.paper,
        "batch": batch,
        "extent": use.extent,
        "dtype": use.dtype,
        "ops": graph.num_ops,
        "buffers": graph.num_buffers,
        "resident_bytes": graph.resident_bytes,
        "peak_bytes": graph.program_peak_bytes,
        "bound_bytes": graph.operand_bound_bytes,
        "live_bytes": eager.peak_live_bytes,
        "reserved_bytes": eager.peak_reserved_bytes,
        "expandable_bytes": expandable.peak_reserved_bytes,
        "seconds": seconds,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(zoo.names())}; all if none")
    parser.add_argument("--uses", action="store_true", help="each paper's own batches and sizes")
    parser.add_argument("--attention", choices=("eager", "sdpa"), default="eager")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    torch.set_num_threads(1)
    print(header(COLUMNS))
    rows = []
    for name in options.models or zoo.names():
        for use, batch in settings(zoo.row_of(name), uses=options.uses):
            rows.append(measure(name, use, batch, options.attention))
            print(line(cells(rows[-1])), flush=True)
    return rows
