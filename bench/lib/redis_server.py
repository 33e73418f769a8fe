"""A Redis server of one's own, on a free port of this machine."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

_PATIENCE = 20.0  # seconds until it answers


class RedisServer:
    """Runs until it is stopped, and keeps nothing."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        for _ in range(5):  # another process may take the port meanwhile
            self.port = _free_port()
            self.process = self._start()
            if self._answers():
                return
        raise RuntimeError("redis-server does not start")

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *self._options]
        return subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)

    def _answers(self) -> bool:
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(100).startswith((b"+PONG", b"-NOAUTH")):
                        return self.process.poll() is None
            except OSError:
                pass
            time.sleep(0.02)
        self.stop()
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
