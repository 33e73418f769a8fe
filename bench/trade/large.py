"""Recompute on the large language models of MAGIS: what is left of plain PyTorch's memory for so much more time.

    python -m bench run trade_large [--size small] [--cache DIR] [MODEL ...]

GPT-Neo-1.3B and BTLM-3B as that paper trains them: batch 32, 512 tokens, bfloat16; with the times that an A100 allows
(the paper: its own simulator of an RTX 3090). Bytes are all that is live at once, parameters and optimizer state too,
in percent of what plain PyTorch has live; in brackets the proven bound, for any order and whatever runs again. The
paper says "at most 60 % at +5 %" and "at most 40 % at +10 %" for its models together, where tensors are also split and
swapped out. Seconds are for all budgets of a row at once.
"""

from __future__ import annotations

import argparse
from typing import Any

from bench.lib.markdown import header, line
from bench.trade.peaks import EXTRAS, lowest_peaks
from bench.zoo import graphs as zoo_graphs
from bench.zoo.graphs import MIB, Form
from lowtide import _core

MODELS = ("gpt_neo_1.3b", "btlm_3b")
FORM = Form(gradients="dropped", device="A100")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    zoo_graphs.add_arguments(parser)


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    options.models = options.models or MODELS
    print(header(("model", "batch", "ops", "eager MiB", "resident", *(f"+{extra:.0%}" for extra in EXTRAS), "seconds")))
    rows = []
    for step in zoo_graphs.chosen(options, [FORM]):
        if step.batch == 1:
            continue
        eager = _core.run_eager(step.graph).peak_live_bytes
        resident = step.graph.resident_bytes
        found = lowest_peaks(step.graph)
        share = 100 / eager
        cells = [f"{share * (resident + peak):.1f} ({share * (resident + bound):.1f})" for peak, bound in found.peaks]
        start = (step.model, step.batch, step.graph.num_ops, f"{eager / MIB:.0f}", f"{share * resident:.1f}")
        print(line((*start, *cells, f"{found.seconds:.1f}")), flush=True)
        rows.append(
            {
                "model": step.model,
                "batch": step.batch,
                "ops": step.graph.num_ops,
                "eager_bytes": eager,
                "resident_bytes": resident,
                "lowest": [
                    {"extra": extra, "peak_bytes": resident + peak, "bound_bytes": resident + bound}
                    for extra, (peak, bound) in zip(EXTRAS, found.peaks, strict=True)
                ],
                "seconds": found.seconds,
            }
        )
    return rows
