"""How long a process waits for a server that is slow or not there: a second in all.

    patience = Patience()
    with patience.trying() as deadline:      # None: not now
        if deadline is not None:
            ...                              # gives up at `deadline`

A try that fails, and one that takes longer than it should, uses up what is left of the second. After a failure there is
no other try for a while.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_SECONDS = 1.0  # in all
_LONGEST_TRY = 0.8
_SHORTEST_TRY = 0.02  # with less time it is not worth a try
_SLOW = 0.1  # a try that takes no longer is for free if it succeeds
_PAUSE = 60.0  # after a failure


class Patience:
    """Of one process with one server, which it asks one thing at a time."""

    def __init__(self, seconds: float = _SECONDS, longest_try: float = _LONGEST_TRY, pause: float = _PAUSE) -> None:
        self._left = seconds
        self._longest_try = longest_try
        self._pause = pause
        self._not_before = 0.0

    @contextlib.contextmanager
    def trying(self) -> Iterator[float | None]:
        """Gives the moment (of `time.monotonic`) at which a try gives up, or None if none is to be made now."""
        begin = time.monotonic()
        seconds = min(self._left, self._longest_try)
        if begin < self._not_before or seconds < _SHORTEST_TRY:
            yield None
            return
        failed = True
        try:
            yield begin + seconds
            failed = False
        finally:
            end = time.monotonic()
            if failed:
                self._not_before = end + self._pause
            if failed or end - begin > _SLOW:
                self._left -= end - begin
