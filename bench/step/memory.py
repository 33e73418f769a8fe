"""Step memory: the peak of training, planned and eager, by the same yardstick.

Each side trains in a process of its own under `lowtide.measure()`, entered before the model is built: parameters,
optimizer state, gradients, batch, activations, temporaries and arena all count, and so does what Lowtide allocates to
capture and to profile. The figure is the highest that was reached in five steps of Adam, on one thread.

    python bench/step/memory.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import torch

import lowtide
from bench.lib.apart import ROOT, command_of
from bench.lib.models import MODELS, OPTIMIZERS, plain_step

SIDES = ("eager", "planned", "planned, keep_grads=False")
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
                keep_grads=False if "keep_grads" in side else None,
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


def main() -> None:
    """Prints the table."""
    print("| model | eager MiB | planned MiB | planned / eager | with keep_grads=False | planned / eager |")
    print("|---|---|---|---|---|---|")
    for name in MODELS:
        with tempfile.TemporaryDirectory() as cache:
            os.environ["LOWTIDE_CACHE_DIR"] = cache
            eager, planned, freed = (train_apart(name, side) / 2**20 for side in SIDES)
        print(
            f"| {name} | {eager:.1f} | {planned:.1f} | {planned / eager:.2f} | {freed:.1f} | {freed / eager:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    os.environ.setdefault("LOWTIDE_QUIET", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if len(sys.argv) == 3:
        print(train(sys.argv[1], sys.argv[2]))
    else:
        main()
