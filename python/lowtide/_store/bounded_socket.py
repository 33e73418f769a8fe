"""A connection that ends in time: at a deadline, however slowly bytes come, and after so many bytes, however many come.

A timeout of a socket is for each of its calls. A server that sends a byte now and then, or without end, keeps to it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any


class Bounds:
    """Of what is being asked now: until when, and how many bytes an answer may have."""

    def __init__(self) -> None:
        self._deadline = 0.0
        self._bytes = 0

    def set(self, deadline: float, most_bytes: int) -> None:
        """For the next thing that is asked."""
        self._deadline = deadline
        self._bytes = most_bytes

    def seconds_left(self) -> float:
        """Raises TimeoutError if there are none."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer takes too long")
        return left

    def count(self, received: int) -> None:
        """Raises ConnectionError if the answer is too long."""
        self._bytes -= received
        if self._bytes < 0:
            raise ConnectionError("the answer is too long")


class BoundedSocket:
    """What a client needs of a socket, within bounds."""

    def __init__(self, host: str, port: int, bounds: Bounds) -> None:
        self._bounds = bounds
        self._socket = _connected(host, port, bounds)
        self._timeout: float | None = None

    def settimeout(self, seconds: float | None) -> None:
        """What the client waits for at most, within what the bounds allow."""
        self._timeout = seconds

    def recv(self, size: int) -> bytes:
        """As a socket's."""
        self._be_patient()
        received = self._socket.recv(size)
        self._bounds.count(len(received))
        return received

    def sendall(self, content: bytes) -> None:
        """As a socket's, whose timeout is for all of it."""
        self._be_patient()
        self._socket.sendall(content)

    def shutdown(self, how: int) -> None:
        """As a socket's."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """As a socket's."""
        self._socket.close()

    def _be_patient(self) -> None:
        left = self._bounds.seconds_left()
        self._socket.settimeout(left if self._timeout is None else min(left, self._timeout))


def _connected(host: str, port: int, bounds: Bounds) -> socket.socket:
    refused: OSError | None = None
    for family, kind, protocol, _, address in _addresses(host, port, bounds.seconds_left()):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(bounds.seconds_left())
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.connect(address)
            return connection
        except OSError as error:
            connection.close()
            refused = error
    raise refused or ConnectionError(f"{host} has no address")


def _addresses(host: str, port: int, seconds: float) -> list[Any]:
    """Asks for them on another thread: nothing else ends a question to a name server that does not answer."""
    numeric = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=numeric)
    found: list[Any] = []

    def ask() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(seconds)
    return list(found)
