"""The eager loop that is being replayed, for those who step out of it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .replay import Replay

current: Replay | None = None


def paused() -> AbstractContextManager[None]:
    """While a compiled step runs, its modules, optimizer and requests are no part of an eager iteration."""
    return current.paused() if current is not None else nullcontext()
