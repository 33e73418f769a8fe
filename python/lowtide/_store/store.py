"""What every store can do."""

from __future__ import annotations

from typing import Protocol


class Store(Protocol):
    """Contents by key. Nothing that it does raises an error, and what it cannot do it leaves.

    A key is what `entry.key_of` gives. What `get` gives was put under this very key, by anybody: its checksum holds,
    and more is for the caller to find out. What a caller finds to be wrong it drops.
    """

    def get(self, key: str) -> bytes | None:
        """The content under this key, if it is there."""

    def put(self, key: str, content: bytes) -> None:
        """Keeps a content under this key, in place of what was there."""

    def drop(self, key: str) -> None:
        """Forgets what is there."""
