"""What does not fit: GPT-2 XL with Adam, 25 GB of state, trained within 8 and within 16 GiB from a file.

Each budget has a process of its own. The model is built layer by layer and never whole in memory. Losses and checksums
of all parameters must be equal. A step is compared with what its operators and its transfers take alone, at the
measured rates of the disk: it can be no faster than the larger.

    TMPDIR=/fast/disk python -m bench run step_swap [--tenth]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from typing import Any

from bench.lib.apart import ROOT, command_of
from bench.lib.markdown import header, line
from bench.page.step_swap import COLUMNS, cells

WHOLE = {"layers": 48, "vocabulary": 50257, "budgets": ("8GiB", "16GiB"), "steps": 3, "length": 64}
TENTH = {"layers": 4, "vocabulary": 8000, "budgets": ("800MiB", "1600MiB"), "steps": 2, "length": 32}


def train(size: dict[str, Any], budget: str, folder: str) -> dict[str, Any]:
    """The figures of one process."""
    arguments = [size["layers"], size["vocabulary"], budget, size["steps"], size["length"], folder]
    command = command_of("bench.step.swap_run", *map(str, arguments))
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(ran.stdout.splitlines()[-1]))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenth", action="store_true", help="a tenth of the size")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives the figures of each budget."""
    size = TENTH if options.tenth else WHOLE
    results = []
    print(header(COLUMNS))
    for budget in size["budgets"]:
        results.append(train(size, budget, tempfile.gettempdir()))
        for row in cells(results[-1]):
            print(line(row), flush=True)
    first = results[0]
    same = all(one["checksum"] == first["checksum"] and losses(one) == losses(first) for one in results)
    verdict = "equal" if same else "NOT equal"
    print(f"\n{first['parameters'] / 1e9:.2f} billion parameters; losses and checksums are {verdict}")
    return results


def losses(result: dict[str, Any]) -> list[float]:
    return [row["loss"] for row in result["rows"]]
