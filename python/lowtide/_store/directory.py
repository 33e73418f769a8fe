"""A store in a directory: a file for each entry, for any number of processes at once.

A file is written beside its place and then renamed: a reader finds the old one or the new one, and a writer that is
killed leaves nothing but an unfinished file. Where the directory grows too large, what was used least recently goes.
"""

from __future__ import annotations

from .._base.cache_directory import CacheDirectory
from .entry import MOST_BYTES, opened, sealed

_MOST_BYTES_IN_ALL = 2 * 2**30
_LOOKS = 32  # for each so many parts of that which a process writes, it looks how much there is


class DirectoryStore:
    """Entries as files. Their times of modification say when they were used last."""

    def __init__(self, directory: CacheDirectory, most_bytes: int = _MOST_BYTES_IN_ALL) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._until_look = 0  # bytes

    def get(self, key: str) -> bytes | None:
        """The content under this key; a file that is damaged is removed."""
        state = self._directory.file_state(_name(key))
        path = self._directory.to_read(_name(key), MOST_BYTES)
        if state is None or path is None:
            return None
        try:
            entry = path.read_bytes()
        except OSError:
            return None
        content = opened(key, entry)
        if content is None:
            self._directory.remove(_name(key), state)
        else:
            self._directory.touch(_name(key))
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keeps a content; others that were not used for long may go."""
        entry = sealed(key, content)
        if len(entry) > MOST_BYTES:
            return
        with self._directory.replacing(_name(key)) as path:
            if path is not None:
                path.write_bytes(entry)
        self._until_look -= len(entry)
        if self._until_look <= 0:
            self._until_look = self._most_bytes // _LOOKS
            self._make_room()

    def drop(self, key: str) -> None:
        """Removes the file."""
        self._directory.remove(_name(key))

    def _make_room(self) -> None:
        self._directory.remove_unfinished()
        files = self._directory.files()
        over = sum(file.bytes for file in files) - self._most_bytes
        for file in sorted(files, key=lambda file: file.used_ns):
            if over <= 0:
                return
            self._directory.remove(file.name, file.state)
            over -= file.bytes


def _name(key: str) -> str:
    return f"{key}.entry"
