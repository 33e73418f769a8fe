"""How long `lowtide.adapt` takes to plan a batch: a model of 48 blocks, from its call in Python, and the core alone.

python -m bench run adapt_planning [--batches 500]
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import torch
from torch import nn

import lowtide
from bench.lib.markdown import header, line


class Row(nn.Module):
    """48 small blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x.sum()


def measure(batches: int) -> dict[str, list[float]]:
    """Microseconds, from the shortest on."""
    torch.manual_seed(0)
    model = Row()
    chance = random.Random(0)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        least = adapter.preflight(torch.rand(4, 200, 16))
    with lowtide.adapt(model, memory_budget=int(least * 1.5)) as adapter:
        adapter.preflight(torch.rand(4, 200, 16))
        for _ in range(batches):
            model(torch.rand(4, chance.randrange(50, 200), 16)).backward()
            model.zero_grad()
        adapter.end()
        records = [record for record in adapter.history.records if not record.sheltered]
        micros = sorted(record.planning_us for record in records)
        planner = adapter._kinds.planners()[0]
        core = []
        for _ in range(batches):
            extents = [4, chance.randrange(50, 200), 16]
            begin = time.perf_counter_ns()
            planner.plan(extents, least)
            core.append((time.perf_counter_ns() - begin) / 1000)
    return {"from the call of the model to its plan": micros, "prediction and plan": sorted(core)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=500)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Prints the table; gives its rows."""
    torch.set_num_threads(1)
    print(header(("", "median us", "p99 us")))
    rows = {}
    for name, micros in measure(options.batches).items():
        median, p99 = micros[len(micros) // 2], micros[len(micros) * 99 // 100]
        rows[name] = {"median_us": median, "p99_us": p99}
        print(line((name, f"{median:.0f}", f"{p99:.0f}")), flush=True)
    return rows
