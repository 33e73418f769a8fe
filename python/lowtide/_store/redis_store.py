"""A store in a Redis server, through redis-py.

A server that is down, slow or hostile costs a process a second in all, and one logged line. What it sends is read up to
a limit, and believed as little as a file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import redis
from redis._parsers import _RESP2Parser  # and never hiredis: the tests try hostile answers on this one

from .bounded_socket import BoundedSocket, Bounds
from .entry import opened, sealed
from .patience import Patience

MOST_BYTES = 32 * 2**20  # of an entry
_MOST_AROUND = 2**16  # bytes of an answer beside the entry
_PREFIX = "lowtide:"
_NO_ENTRY = b"?"
_MOST_SAID = 200  # characters of what went wrong
_LONGEST_WAIT = 1.0  # seconds, for another thread; one that was there before a fork never ends

_log = logging.getLogger("lowtide")
_T = TypeVar("_T")


class Address(NamedTuple):
    """Where a server is."""

    host: str
    port: int
    database: int
    username: str | None
    password: str | None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.database}"


def address_of(url: str) -> Address:
    """Reads `redis://[[user]:password@]host[:port][/database]`. Raises ValueError."""
    parts = urlsplit(url)
    database = parts.path.strip("/") or "0"
    if parts.scheme != "redis" or not parts.hostname or parts.query or parts.fragment or not database.isdigit():
        raise ValueError("expected redis://host:port/database")
    username, password = (unquote(text) if text else None for text in (parts.username, parts.password))
    return Address(parts.hostname, parts.port or 6379, int(database), username, password)


class RedisStore:
    """Entries as strings of a server. Threads ask one after the other."""

    def __init__(self, address: Address, patience: Patience | None = None) -> None:
        self._address = address
        self._patience = patience or Patience()
        self._bounds = Bounds()
        self._lock = threading.Lock()
        self._told = False
        self._client = _client(address, self._bounds)

    def get(self, key: str) -> bytes | None:
        """The content under this key; what is no entry is removed."""
        entry = self._ask(lambda client: _read(client, _PREFIX + key), MOST_BYTES)
        if not entry:
            return None
        content = opened(key, entry)
        if content is None:
            self.drop(key)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Keeps a content that is not too large."""
        entry = sealed(key, content)
        if len(entry) <= MOST_BYTES:
            self._ask(lambda client: self._change(lambda: client.set(_PREFIX + key, entry)))

    def drop(self, key: str) -> None:
        """Removes it."""
        self._ask(lambda client: self._change(lambda: client.delete(_PREFIX + key)))

    def _ask(self, what: Callable[[redis.Redis], _T], answer_bytes: int = 0) -> _T | None:
        """None where there is no answer, or none in time."""
        if not self._lock.acquire(timeout=_LONGEST_WAIT):
            return None
        try:
            with self._patience.trying() as deadline:
                if deadline is None:
                    return None
                self._bounds.set(deadline, answer_bytes + _MOST_AROUND)
                return what(self._client)
        except Exception as error:  # of any kind: it is the server that decides what it answers
            self._client.connection_pool.disconnect()
            self._tell("is not used for now", error)
            return None
        finally:
            self._lock.release()

    def _change(self, act: Callable[[], object]) -> None:
        """A server that may only be read, or is full, goes on being read."""
        try:
            act()
        except redis.ResponseError as error:
            self._tell("keeps nothing new", error)

    def _tell(self, what: str, error: Exception) -> None:
        if not self._told:
            self._told = True
            said = "".join(filter(str.isprintable, str(error)))[:_MOST_SAID] or type(error).__name__
            _log.warning("lowtide: the store at %s %s: %s; plans are kept on this machine", self._address, what, said)


def _read(client: redis.Redis, name: str) -> bytes:
    """What is there, up to a byte more than it may have; nothing if there is nothing."""
    try:
        entry = client.getrange(name, 0, MOST_BYTES)
    except redis.ResponseError as error:
        if str(error).startswith("WRONGTYPE"):
            return _NO_ENTRY
        raise
    if not isinstance(entry, bytes):
        raise TypeError(f"expected bytes, got {type(entry).__name__}")
    return entry if len(entry) <= MOST_BYTES else _NO_ENTRY


def _client(address: Address, bounds: Bounds) -> redis.Redis:
    class Connection(redis.Connection):
        def _connect(self) -> BoundedSocket:
            return BoundedSocket(address.host, address.port, bounds)

    pool = redis.ConnectionPool(
        connection_class=Connection, host=address.host, port=address.port, db=address.database,
        username=address.username, password=address.password, protocol=2, parser_class=_RESP2Parser, driver_info=None,
    )  # fmt: skip
    return redis.Redis(connection_pool=pool)
