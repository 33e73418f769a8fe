"""What a fleet asks of the plan store: bytes and milliseconds of entries in a directory and in Redis, and whole jobs.

Plans are those of a GPT-2's training step, stacked to so many operators; `found` is what a job waits that finds the
plan in Redis: asking for it, decompressing, reading and verifying it. The jobs train a GPT-2 within a budget, each in a
process of its own with an empty cache: the first plans, the second finds. The Redis server is on this machine, so that
no time is of a network.

    python -m bench run store_entries [--ops 1000 ...]
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

import lowtide
from bench.lib.apart import ROOT, command_of
from bench.lib.models import gpt2, plain_step, tokens
from bench.lib.progress import each
from bench.lib.redis_server import RedisServer
from bench.order.grown_graphs import grow
from bench.page.store import tables
from lowtide._base.cache_directory import CacheDirectory
from lowtide._compile.plan_cache import PlanCache
from lowtide._store.directory import DirectoryStore
from lowtide._store.entry import key_of
from lowtide._store.patience import Patience
from lowtide._store.store import Store

REPEATS = 9
SIZES = (1_000, 30_000, 300_000)
JOB = ("8", "64")  # layers and width


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ops", type=int, nargs="+", default=list(SIZES), metavar="N", help="operators of each plan")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Prints the tables; gives their rows."""
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        try:
            jobs = _jobs(server.url, Path(folder))
            stores = {"directory": _directory(Path(folder) / "store"), "redis": _redis(server.url)}
            plans = [_measured(ops, stores) for ops in each(options.ops, "plans")]
        finally:
            server.stop()
    figures = {"jobs": jobs, "plans": plans}
    print("\n\n".join(tables(figures).values()))
    return figures


def _directory(path: Path) -> Store:
    return DirectoryStore(CacheDirectory(path))


def _redis(url: str) -> Store:
    from lowtide._store.redis_store import RedisStore, address_of

    return RedisStore(address_of(url), Patience(seconds=1000.0, longest_try=60.0))


def _jobs(url: str, folder: Path) -> list[dict[str, Any]]:
    found = []
    for name in each(("first", "second"), "jobs"):
        environment = {**os.environ, "LOWTIDE_STORE": url, "LOWTIDE_CACHE_DIR": str(folder / name)}
        command = command_of("bench.store.job", *JOB)
        done = subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
        job = json.loads(done.stdout)
        told = ("operators", "planning_seconds", "seconds", "asked")
        found.append({"job": name, **{key: job[key] for key in told}})
    return found


class _Keeping:
    """A store that shows what is put there."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.put_last = b""

    def get(self, key: str) -> bytes | None:
        return self._store.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.put_last = content
        self._store.put(key, content)

    def drop(self, key: str) -> None:
        self._store.drop(key)


def _measured(ops: int, stores: dict[str, Store]) -> dict[str, Any]:
    graph = grow("stacked", [_step()], ops=ops, seed=7)
    keeping = _Keeping(stores["redis"])
    plans = PlanCache(keeping)
    begin = time.perf_counter()
    plans.get_or_plan(graph, None, None)
    seconds = time.perf_counter() - begin
    content, keeping.put_last = keeping.put_last, b""
    row: dict[str, Any] = {"operators": graph.num_ops, "bytes": len(content), "planning_seconds": seconds}
    key = key_of("bench", ops)
    for name, store in stores.items():
        row[f"{name}_put_ms"] = _milliseconds(functools.partial(store.put, key, content))
        row[f"{name}_get_ms"] = _milliseconds(functools.partial(store.get, key))
        assert store.get(key) == content
    row["found_ms"] = _milliseconds(lambda: plans.get_or_plan(graph, None, None))
    assert not keeping.put_last, "nothing was planned"
    return row


def _milliseconds(act: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        act()
        taken.append(1e3 * (time.perf_counter() - begin))
    return median(taken)


def _step() -> lowtide.Graph:
    torch.manual_seed(0)
    model = gpt2(layers=2, width=64)
    optimizer = torch.optim.Adam(model.parameters())
    step = plain_step(model, optimizer)
    return lowtide.capture(step, model=model, optimizer=optimizer, example=(tokens(2, 32),), device="A100")
