"""What holds for the whole process, and the thread that captures: hooks are kept to it, and others may interfere."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def on_this_thread(hook: Callable[..., None]) -> Callable[..., None]:
    """The hook for calls of this thread; what other threads train meanwhile goes on as ever."""
    is_this_thread = this_thread()

    def call(*args: Any) -> None:
        if is_this_thread():
            hook(*args)

    return call


def this_thread() -> Callable[[], bool]:
    """Whether a later call comes from the thread that runs now."""
    thread = threading.get_ident()
    return lambda: threading.get_ident() == thread


def others_run() -> bool:
    """Whether Python has other threads."""
    return threading.active_count() > 1
