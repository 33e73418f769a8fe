"""A store near by in front of one that a fleet shares."""

from __future__ import annotations

from .store import Store


class LayeredStore:
    """What is found in the shared store is kept near by too, and what is put goes to both."""

    def __init__(self, near: Store, shared: Store) -> None:
        self._near = near
        self._shared = shared

    def get(self, key: str) -> bytes | None:
        """From near by, or from the shared store."""
        content = self._near.get(key)
        if content is None:
            content = self._shared.get(key)
            if content is not None:
                self._near.put(key, content)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Near by first."""
        self._near.put(key, content)
        self._shared.put(key, content)

    def drop(self, key: str) -> None:
        """From both: nobody knows which of them was wrong."""
        self._near.drop(key)
        self._shared.drop(key)
