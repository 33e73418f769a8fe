"""Tests that need a Redis server, on a free port of this machine."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

from bench.lib.redis_server import RedisServer

__all__ = ["RedisServer", "need_redis"]


def need_redis() -> None:
    """Skips the test where there is none."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    if importlib.util.find_spec("redis") is None:
        pytest.skip("redis-py is not installed (pip install lowtide[redis])")
