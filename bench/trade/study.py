"""Recompute on the graphs and costs of a study: the lowest peaks for so much more time, and how low none can be.

    python bench/trade/study.py FOLDER [--balance FLOPS]

FOLDER holds the study's steps (`study_steps.py` says in which form): batch 32, GPT2-XL batch 1, Adam per parameter.
Peaks are in percent of that of program order, for 2 to 33 % more than forward and backward pass cost; in brackets the
proven bound, for any order and whatever runs again. The first row of each model is the study's own figure; then ours
without reuse of operands' bytes, as in the study, and with it. Seconds are for all budgets of a row at once.
"""

from __future__ import annotations

import argparse
from pathlib import Path

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


def print_model(folder: Path, model: str, balance: float) -> tuple[int, int]:
    """Prints its rows; how many of the study's figures are reached within 0.05 points, and of how many."""
    if balance == BALANCE:
        print(f"| {model} | study | {' | '.join(f'{peak:.2f}' for peak in STUDY[model])} | |", flush=True)
    for reuse in (False, True):
        graph = load(folder / f"{model}_split.json.gz", balance, reuse)
        row = lowest_peaks(graph)
        share = 100 / graph.program_peak_bytes
        cells = [f"{share * peak:.2f} ({share * bound:.2f})" for peak, bound in row.peaks]
        if not reuse:
            reached = sum(share * peak <= said + 0.05 for (peak, _), said in zip(row.peaks, STUDY[model], strict=True))
        name = "with reuse" if reuse else "ours"
        print(f"| {model} | {name} | {' | '.join(cells)} | {row.seconds:.1f} |", flush=True)
    return reached, len(EXTRAS)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--balance", type=float, default=BALANCE, help="FLOPs for each byte of bandwidth")
    arguments = parser.parse_args()
    columns = ("model", "", *(f"+{extra:.0%}" for extra in EXTRAS), "seconds")
    print(f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", sep="\n")
    counts = [print_model(arguments.folder, model, arguments.balance) for model in STUDY]
    if arguments.balance == BALANCE:
        print(f"\n{sum(a for a, _ in counts)} of {sum(b for _, b in counts)} figures of the study reached or beaten")


if __name__ == "__main__":
    main()
