"""An entry of a store: a tag that names the format, a checksum, the content.

    lowtide entry 1\n | 32 bytes: SHA-256 of key and content | content

The checksum is over the key too, so that an entry that was moved to another key is found out. It tells damage; whoever
can write to a store can make one that holds.
"""

from __future__ import annotations

import hashlib

MOST_BYTES = 256 * 2**20  # of one entry
_TAG = b"lowtide entry 1\n"
_HEAD_BYTES = len(_TAG) + hashlib.sha256().digest_size


def key_of(*parts: object) -> str:
    """Names a content by all that decides it: 64 hexadecimal digits."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def sealed(key: str, content: bytes) -> bytes:
    """The entry that holds this content."""
    return _TAG + _checksum(key, content) + content


def opened(key: str, entry: bytes) -> bytes | None:
    """The content of an entry, or None if it is not an entry of this key, or damaged."""
    content = entry[_HEAD_BYTES:]
    return content if entry[:_HEAD_BYTES] == _TAG + _checksum(key, content) else None


def _checksum(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).digest()
