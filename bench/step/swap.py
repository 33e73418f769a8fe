"""What does not fit: GPT-2 XL with Adam, 25 GB of state, trained within 8 and within 16 GiB from a file.

Each budget has a process of its own. The model is built layer by layer and never whole in memory. Losses and checksums
of all parameters must be equal. A step is compared with what its operators and its transfers take alone, at the
measured rates of the disk: it can be no faster than the larger.

    python -m bench run step_swap [--tenth] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from typing import Any

from bench.lib.apart import ROOT, command_of
from bench.lib.markdown import header, line

WHOLE = {"layers": 48, "vocabulary": 50257, "budgets": ("8GiB", "16GiB"), "steps": 3, "length": 64}
TENTH = {"layers": 4, "vocabulary": 8000, "budgets": ("800MiB", "1600MiB"), "steps": 2, "length": 32}
COLUMNS = ("budget", "step", "loss", "seconds", "compute", "transfers", "of the larger", "stored GB", "loaded GB",
           "process GiB")  # fmt: skip


def train(size: dict[str, Any], budget: str, folder: str) -> dict[str, Any]:
    """The figures of one process."""
    arguments = [size["layers"], size["vocabulary"], budget, size["steps"], size["length"], folder]
    command = command_of("bench.step.swap_run", *map(str, arguments))
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenth", action="store_true", help="a tenth of the size")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="on a disk with 30 GB free")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives the figures of each budget."""
    size = TENTH if options.tenth else WHOLE
    results = []
    print(header(COLUMNS))
    for budget in size["budgets"]:
        found = train(size, budget, options.folder)
        results.append(found)
        for index, row in enumerate(found["rows"]):
            larger = max(row["compute_seconds"], row["transfer_seconds"])
            print(line((
                budget, index + 1, f"{row['loss']:.6f}", f"{row['seconds']:.1f}", f"{row['compute_seconds']:.1f}",
                f"{row['transfer_seconds']:.1f}", f"{row['seconds'] / larger:.2f}", f"{row['stored_bytes'] / 1e9:.2f}",
                f"{row['loaded_bytes'] / 1e9:.2f}", f"{row['process_bytes'] / 2**30:.2f}",
            )), flush=True)  # fmt: skip
    first = results[0]
    same = all(one["checksum"] == first["checksum"] and losses(one) == losses(first) for one in results)
    verdict = "equal" if same else "NOT equal"
    print(f"\n{first['parameters'] / 1e9:.2f} billion parameters; losses and checksums are {verdict}")
    return results


def losses(result: dict[str, Any]) -> list[float]:
    return [row["loss"] for row in result["rows"]]
