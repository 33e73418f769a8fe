"""Recompute on the graphs and costs of a study: the lowest peaks for so much more time, and how low none can be.

    python -m bench run trade_study FOLDER [--balance FLOPS]

FOLDER holds the study's steps (`study_steps.py` says in which form): batch 32, GPT2-XL batch 1, Adam per parameter.
Peaks are in percent of that of program order, for 2 to 33 % more than forward and backward pass cost; in brackets the
proven bound, for any order and whatever runs again. The first row of each model is the study's own figure; then ours
without reuse of operands' bytes, as in the study, and with it. Seconds are for all budgets of a row at once.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench.lib.markdown import header, line
from bench.trade.peaks import EXTRAS, lowest_peaks
from bench.trade.study_steps import load

STUDY = {
    "resnet50_b32": (84.03, 63.52, 48.49, 35.78, 26.69, 20.5),
    "bert_base_b32": (89.34, 76.27, 62.24, 51.84, 43.62, 29.83),
    "vit_base_b32": (87.33, 68.62, 50.85, 34.15, 18.45, 12.9),
    "gpt2_b32": (90.08, 78.63, 63.53, 51.25, 41.95, 26.85),
    "mobilenetv2_b32": (87.59, 74.24, 56.02, 39.51, 29.64, 18.98),
    "efficientnet_b0_b32": (84.21, 69.72, 46.36, 23.12, 16.99, 16.89),
    "vgg16_bn_b32": (74.94, 62.00, 45.13, 36.12, 36.12, 27.13),
    "gpt2_xl_b1": (88.42, 75.79, 57.66, 43.18, 31.99, 10.93),
}
BALANCE = 100.0  # FLOPs for each byte of bandwidth, as the study's table has it


def measure(folder: Path, model: str, balance: float, *, reuse: bool) -> dict[str, Any]:
    """Prints a row of ours; peaks and bounds in percent of program order's peak."""
    graph = load(folder / f"{model}_split.json.gz", balance, reuse)
    found = lowest_peaks(graph)
    share = 100 / graph.program_peak_bytes
    peaks, bounds = ([share * size for size in sizes] for sizes in zip(*found.peaks, strict=True))
    cells = [f"{peak:.2f} ({bound:.2f})" for peak, bound in zip(peaks, bounds, strict=True)]
    print(line((model, "with reuse" if reuse else "ours", *cells, f"{found.seconds:.1f}")), flush=True)
    return {"model": model, "reuse": reuse, "peaks": peaks, "bounds": bounds, "seconds": found.seconds}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path)
    parser.add_argument("--balance", type=float, default=BALANCE, help="FLOPs for each byte of bandwidth")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    print(header(("model", "", *(f"+{extra:.0%}" for extra in EXTRAS), "seconds")))
    rows = []
    for model, said in STUDY.items():
        if options.balance == BALANCE:
            print(line((model, "study", *(f"{peak:.2f}" for peak in said), "")), flush=True)
        rows += [measure(options.folder, model, options.balance, reuse=reuse) for reuse in (False, True)]
    if options.balance == BALANCE:
        pairs = [
            (peak, said)
            for row in rows
            if not row["reuse"]
            for peak, said in zip(row["peaks"], STUDY[row["model"]], strict=True)
        ]
        reached = sum(peak <= said + 0.05 for peak, said in pairs)
        print(f"\n{reached} of {len(pairs)} figures of the study reached or beaten")
    return rows
