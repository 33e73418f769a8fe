"""The benchmarks of `lowtide.adapt` at a trial's size: every task, budget and method, and the tables beside."""

from __future__ import annotations

import os

import pytest
import torch

from bench.adapt import flat
from bench.adapt import table as adapt_table
from bench.adapt.tasks import tasks

FULL = bool(os.environ.get("LOWTIDE_FULL"))


@pytest.mark.parametrize("name", tasks() if FULL else ["tr_t5", "od_r50"])
def test_a_task(name: str) -> None:
    pytest.importorskip("transformers")
    torch.set_num_threads(1)
    scale = 1.0 if FULL else 0.6 if name.startswith("od") else 0.3
    bench = adapt_table.Bench(tasks(scale)[name], 500 if FULL else 16)
    worst = bench.worst()
    outcome = bench.run(int(worst * 0.8))
    assert outcome.refused is None
    for method, figures in outcome.methods.items():
        assert figures.differs == 0
        assert figures.over == 0 or method in ("none", "static", "dtr")
    assert sum(outcome.errors) / len(outcome.errors) < (0.025 if bench.task.images else 0.01)
    refused = bench.run(worst // 20)
    assert refused.refused is not None and refused.refused > worst // 20


def test_flat_memory() -> None:
    rows = flat.print_table(10_000 if FULL else 60)
    tensors = [row["tensor_bytes"] / 2**20 for row in rows]
    assert max(tensors[2:]) == pytest.approx(tensors[2], abs=0.02)
