"""Memory of a process over many batches of 500 shapes, with updates: does `lowtide.adapt` keep more and more?

python -m bench run adapt_flat [--batches 10000]
"""

from __future__ import annotations

import argparse
import random
import resource
from typing import Any

import torch

import lowtide
from bench.adapt.tasks import tasks
from bench.lib.markdown import header, line
from lowtide._adapt.memory import CpuMemory

MIB = 2**20


def print_table(batches: int) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    torch.manual_seed(0)
    model = tasks(0.15)["tc_bert"].make()
    optimizer = torch.optim.Adam(model.parameters())
    chance = random.Random(0)
    shapes = [(samples, length) for samples in range(1, 11) for length in range(10, 60)]
    memory = CpuMemory([])
    print(header(("batches", "tensors MiB", "process, high water MiB")))
    rows = []
    with lowtide.adapt(model, memory_budget="40MiB", optimizer=optimizer) as adapter:
        for number in range(batches + 1):
            if number % max(batches // 10, 1) == 0:
                level, process = memory.level(), 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                rows.append({"batches": number, "tensor_bytes": level, "process_bytes": process})
                print(line((number, f"{level / MIB:.2f}", f"{process / MIB:.1f}")), flush=True)
            samples, length = chance.choice(shapes)
            batch = {"input_ids": torch.randint(1000, (samples, length)), "labels": torch.randint(2, (samples,))}
            model(**batch).loss.backward()
            del batch
            optimizer.step()
            optimizer.zero_grad()
        adapter.end()
        print("\n" + ", ".join(f"{name} {value:.4g}" for name, value in adapter.stats().items()))
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=10_000)


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    torch.set_num_threads(1)
    return print_table(options.batches)
