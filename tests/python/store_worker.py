"""A process that puts and gets at random, until it is killed. What it has put it notes, and what it gets it checks.

    python store_worker.py STORE NOTES SEED COUNT KEYS

STORE is a folder or the URL of a Redis server. A line `put KEY` or `done` of NOTES is written when that is so; a line
`wrong KEY` would be of an entry that is not what anybody put there, or is gone.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from lowtide._base.cache_directory import CacheDirectory
from lowtide._store.directory import DirectoryStore
from lowtide._store.entry import key_of
from lowtide._store.store import Store

MOST_BYTES = 60_000


def key(number: int) -> str:
    return key_of("worker", number)


def content(number: int) -> bytes:
    """Of any size, and known to all."""
    chance = random.Random(number)
    return chance.randbytes(chance.randrange(MOST_BYTES))


def open_store(named: str) -> Store:
    if "://" not in named:
        return DirectoryStore(CacheDirectory(Path(named)))
    from lowtide._store.patience import Patience
    from lowtide._store.redis_store import RedisStore, address_of

    return RedisStore(address_of(named), Patience(seconds=1000.0, longest_try=60.0, pause=0.0))


def work(named: str, notes: str, seed: int, count: int, keys: int) -> None:
    store = open_store(named)
    chance = random.Random(seed)
    file = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    put: set[int] = set()
    for _ in range(count):
        number = chance.randrange(keys)
        if chance.random() < 0.5:
            store.put(key(number), content(number))
            os.write(file, f"put {number}\n".encode())
            put.add(number)
        else:
            found = store.get(key(number))
            right = found == content(number) or (found is None and number not in put)
            os.write(file, f"{'none' if found is None else 'got' if right else 'wrong'} {number}\n".encode())
    os.write(file, b"done 0\n")


if __name__ == "__main__":
    _, store_name, notes_name, *numbers = sys.argv
    work(store_name, notes_name, *map(int, numbers))
