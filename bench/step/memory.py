"""Step memory: the peak of training, planned and eager, by the same yardstick.

Each side trains in a process of its own under `lowtide.measure()`, entered before the model is built: parameters,
optimizer state, gradients, batch, activations, temporaries and arena all count, and so does what Lowtide allocates to
capture and to profile. The figure is the highest that was reached in five steps of Adam, on one thread.

    python -m bench run step_memory [MODEL ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from typing import Any

import torch

import lowtide
from bench.lib.apart import ROOT, command_of
from bench.lib.markdown import header, line
from bench.lib.models import MODELS, OPTIMIZERS, plain_step
from bench.lib.progress import each
from bench.page.step_memory import COLUMNS, cells

SIDES = ("eager", "planned", "without_grads")  # the last: planned, with keep_grads=False
STEPS = 5


def train(name: str, side: str) -> int:
    """Peak bytes of five steps."""
    torch.set_num_threads(1)
    with lowtide.measure() as used:
        make_model, make_batch = MODELS[name]
        model = make_model()
        optimizer = OPTIMIZERS["adam"](model.parameters())
        step = plain_step(model, optimizer)
        if side != "eager":
            step = lowtide.compile(
                step,
                model=model,
                optimizer=optimizer,
                keep_grads=False if side == "without_grads" else None,
                on_unsupported="raise",
            )
        batch = make_batch()
        for _ in range(STEPS):
            step(batch)
        return used.peak_bytes


def train_apart(name: str, side: str) -> int:
    """The same in a new process: arena and allocator start empty."""
    command = command_of("bench.step.memory", name, side)
    return int(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(MODELS)}; all if none")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    print(header(COLUMNS))
    rows: list[dict[str, Any]] = []
    for name in each(options.models or MODELS, "models"):
        with tempfile.TemporaryDirectory() as cache:
            os.environ["LOWTIDE_CACHE_DIR"] = cache
            peaks = {f"{side}_bytes": train_apart(name, side) for side in SIDES}
        rows.append({"model": name, **peaks})
        print(line(cells(rows[-1])), flush=True)
    return rows


if __name__ == "__main__":
    print(train(sys.argv[1], sys.argv[2]))
