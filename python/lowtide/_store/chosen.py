"""Which store it is: this user's directory, in front of what LOWTIDE_STORE names.

    LOWTIDE_STORE=redis://host:port/database    a Redis server
    LOWTIDE_STORE=/a/folder                     a folder, such as one that several machines mount

What it names and cannot be used is said once, and left out.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from .._base.cache_directory import CacheDirectory, default_directory
from .directory import DirectoryStore
from .layered import LayeredStore
from .store import Store

_log = logging.getLogger("lowtide")
_shared: dict[str, Store | None] = {}  # by what LOWTIDE_STORE says: a process loses patience with a server only once


def chosen_store() -> Store:
    """Where plans and times are kept."""
    near = DirectoryStore(CacheDirectory(default_directory()).below("plans"))
    shared = shared_store()
    return near if shared is None else LayeredStore(near, shared)


def shared_store() -> Store | None:
    """What LOWTIDE_STORE names, or None."""
    named = os.environ.get("LOWTIDE_STORE", "")
    if not named:
        return None
    if named not in _shared:
        try:
            _shared[named] = _store_at(named)
        except (ImportError, ValueError) as error:
            _shared[named] = None
            _log.warning("lowtide: LOWTIDE_STORE is not used: %s", error)
    return _shared[named]


def _store_at(named: str) -> Store:
    if "://" not in named:
        return DirectoryStore(CacheDirectory(Path(named)))
    try:
        from .redis_store import RedisStore, address_of
    except ModuleNotFoundError as error:
        raise ImportError("a Redis server needs redis-py: pip install lowtide[redis]") from error
    return RedisStore(address_of(named))
