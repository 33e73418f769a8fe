"""Addresses that are set aside, so that a process at its limit of them can still say who holds its memory.

Where a limit of addresses is in force (`ulimit -v`), PyTorch's CPU allocator fails when they are used up, and so does
Python soon after. The reserve has addresses and no memory.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_BYTES = 64 << 20
_NO_ACCESS = 0


def _take() -> mmap.mmap | None:
    with suppress(OSError, ValueError):
        return mmap.mmap(-1, _BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=_NO_ACCESS)
    return None


_reserve = _take()


@contextmanager
def released() -> Iterator[None]:
    """The reserve may be used, for as long as this lasts."""
    global _reserve
    if _reserve is not None:
        _reserve.close()
    try:
        yield
    finally:
        _reserve = _take()
