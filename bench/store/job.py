"""A job of a fleet: it trains a step of a GPT-2 within a budget, and says what it planned and asked of the store.

LOWTIDE_STORE=redis://127.0.0.1:6379/0 LOWTIDE_CACHE_DIR=/tmp/mine python -m bench.store.job LAYERS WIDTH
"""

from __future__ import annotations

import json
import sys
import time

import torch

import lowtide
from bench.lib.models import gpt2, plain_step, tokens
from lowtide._store import chosen
from lowtide._store.store import Store

SHARE = 0.72  # of what eager needs: near what a plan needs at least


class CountingStore:
    """A store that counts what it is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked = {"gets": 0, "found": 0, "puts": 0, "drops": 0, "got_bytes": 0, "put_bytes": 0, "seconds": 0.0}

    def get(self, key: str) -> bytes | None:
        begin = time.perf_counter()
        content = self._store.get(key)
        self._count(begin, gets=1, found=content is not None, got_bytes=len(content or b""))
        return content

    def put(self, key: str, content: bytes) -> None:
        begin = time.perf_counter()
        self._store.put(key, content)
        self._count(begin, puts=1, put_bytes=len(content))

    def drop(self, key: str) -> None:
        begin = time.perf_counter()
        self._store.drop(key)
        self._count(begin, drops=1)

    def _count(self, begin: float, **counts: int) -> None:
        self.asked["seconds"] += time.perf_counter() - begin
        for name, count in counts.items():
            self.asked[name] += count


def train(layers: int, width: int) -> dict[str, object]:
    """Two steps, and what is known of them."""
    shared = chosen.shared_store()
    assert shared is not None, "LOWTIDE_STORE names it"
    counting = CountingStore(shared)
    chosen._shared = dict.fromkeys(chosen._shared, counting)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = gpt2(layers=layers, width=width)
    optimizer = torch.optim.Adam(model.parameters())
    step = lowtide.compile(
        plain_step(model, optimizer), model=model, optimizer=optimizer, memory_budget=SHARE, on_unsupported="raise"
    )
    torch.manual_seed(1)
    begin = time.perf_counter()
    losses = [float(step(tokens(2, 32))).hex() for _ in range(2)]
    seconds = time.perf_counter() - begin
    stats, plan, graph = step.stats(), step.plan, step.graph
    return {
        "planning_seconds": stats["planning_seconds"], "seconds": seconds, "profiled": stats["profiled_ops"],
        "operators": graph.num_ops, "fingerprint": graph.fingerprint, "order": plan.order, "offsets": plan.offsets(),
        "losses": losses, "within": plan.arena_bytes + plan.resident_bytes <= SHARE * stats["eager_bytes"],
        "asked": counting.asked,
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(train(*map(int, sys.argv[1:]))))
