"""A replay that serves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._base.fallback import Fallback
from .._replay.stats import ReplayStats


class EagerReplay:
    """The loop's requests are ordinary ones."""

    def __enter__(self) -> EagerReplay:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def step(self) -> None:
        """The iteration ends here, which changes nothing."""

    def begin(self, *inputs: Any) -> None:
        """An iteration begins here, which changes nothing."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Requests in this block are ordinary ones too."""
        yield

    def settle(self) -> None:
        """Has nothing to wait for."""

    def stats(self) -> ReplayStats:
        """Figures of no iterations."""
        return ReplayStats()

    def profiles(self) -> list[Any]:
        """Nothing was recorded."""
        return []


def replay(reason: str, **_: Any) -> EagerReplay:
    """`lowtide.replay` where nothing can be served for this reason."""
    Fallback("the loop in lowtide.replay()", "eager", []).say(f": {reason}")
    return EagerReplay()
