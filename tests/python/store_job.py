"""A job of a fleet: it trains a step within a budget, and says how long planning took and what it planned.

    python store_job.py LAYERS WIDTH

The store and the cache directory are those of the environment.
"""

from __future__ import annotations

import json
import sys
import time

import torch

import lowtide
from bench.lib.models import gpt2, plain_step, tokens


def run(layers: int, width: int, share: float = 0.72) -> dict[str, object]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = gpt2(layers=layers, width=width)
    optimizer = torch.optim.Adam(model.parameters())
    step = lowtide.compile(
        plain_step(model, optimizer), model=model, optimizer=optimizer, memory_budget=share, on_unsupported="raise"
    )
    torch.manual_seed(1)
    begin = time.perf_counter()
    losses = [float(step(tokens(2, 32))).hex() for _ in range(2)]
    seconds = time.perf_counter() - begin
    stats = step.stats()
    arena = stats["arena_bytes"] + stats["resident_bytes"]
    return {
        "planning_seconds": stats["planning_seconds"], "seconds": seconds, "profiled": stats["profiled_ops"],
        "fingerprint": step.graph.fingerprint, "order": step.plan.order, "offsets": step.plan.offsets(),
        "losses": losses, "within": arena <= share * stats["eager_bytes"],
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(run(*map(int, sys.argv[1:]))))
