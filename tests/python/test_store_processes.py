"""Processes that share a store and are killed at random lose no entry and are served no wrong one.

LOWTIDE_FULL=1   8 processes of 1,000 gets and puts each, instead of 4 of 100
"""

from __future__ import annotations

import collections
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import store_worker
from redis_server import RedisServer, need_redis
from step_models import FULL
from store_worker import content, key

PROCESSES, COUNT = (8, 1000) if FULL else (4, 100)
KEYS = PROCESSES * COUNT // 20  # so that each is put by several
KILLS = PROCESSES * (12 if FULL else 2)


class Worker:
    """A process of a seed, with what it has still to do."""

    def __init__(self, store: str, notes: Path, seed: int) -> None:
        self._store, self._seed = store, seed
        self.notes = notes
        self.kills = 0
        self.start()

    def start(self) -> None:
        left = COUNT - len(self.lines())
        command = [sys.executable, store_worker.__file__, self._store, self.notes, self._seed + self.kills, left, KEYS]
        self.process = subprocess.Popen([str(word) for word in command])

    def kill(self) -> None:
        self.kills += 1
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.start()

    def lines(self) -> list[str]:
        """Whole ones: a writer may have been killed in the middle."""
        return [line for line in self.notes.read_text().split("\n")[:-1] if line] if self.notes.exists() else []

    @property
    def done(self) -> bool:
        return self.process.poll() is not None


@pytest.mark.parametrize("kind", ["directory", "redis"])
def test_processes_that_are_killed_lose_nothing(kind, tmp_path):
    chance = random.Random(7)
    server = None
    if kind == "redis":
        need_redis()
        server = RedisServer(tmp_path)
    named = server.url if server else str(tmp_path / "store")
    try:
        begin = time.monotonic()
        workers = [Worker(named, tmp_path / f"notes-{seed}", 1000 * seed) for seed in range(PROCESSES)]
        kills = 0
        while not all(worker.done for worker in workers):
            time.sleep(chance.uniform(0.01, 0.1))
            begun = [worker for worker in workers if not worker.done and worker.lines()]
            if kills < KILLS and begun:
                chance.choice(begun).kill()
                kills += 1
        seconds = time.monotonic() - begin
        noted = [line.split() for worker in workers for line in worker.lines()]
        counts = collections.Counter(what for what, _ in noted)
        put = {int(number) for what, number in noted if what == "put"}
        store = store_worker.open_store(named)
        lost = [number for number in put if store.get(key(number)) != content(number)]
    finally:
        if server:
            server.stop()
    print(f"{kind}: {PROCESSES} processes, {dict(counts)}, {len(put)} keys, {kills} killed, {seconds:.1f} s")
    assert all(worker.process.returncode == 0 for worker in workers)
    assert counts["done"] >= 1 and counts["put"] + counts["got"] + counts["none"] >= 0.99 * PROCESSES * COUNT
    assert kills >= PROCESSES // 2 and counts["got"] > 0
    assert counts["wrong"] == 0
    assert lost == []
