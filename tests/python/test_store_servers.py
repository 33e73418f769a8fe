"""Servers that are down, slow or hostile, over real sockets: a second in all, one line, and no error."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import pytest

from lowtide._base.cache_directory import CacheDirectory
from lowtide._compile.plan_cache import PlanCache
from lowtide._store import chosen
from lowtide._store.chosen import chosen_store
from lowtide._store.directory import DirectoryStore
from lowtide._store.entry import key_of, sealed
from lowtide._store.layered import LayeredStore
from lowtide._store.patience import Patience
from redis_server import RedisServer, need_redis
from test_report import training_graph

KEY = key_of("a key")
SECONDS = 1.0  # in all
SLACK = 0.5  # of a machine that is busy
MOST_MEMORY = 150 * 2**10  # KiB, several times what an answer may have


@pytest.fixture(autouse=True)
def redis_is_there():
    need_redis()


class FakeServer:
    """Answers each message by what `answer` gives, piece by piece; None ends the connection."""

    def __init__(self, answer: Callable[[], Iterable[bytes | None]], backlog: int = 100) -> None:
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=backlog)
        self.port = self._socket.getsockname()[1]
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._socket.close()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while connection.recv(2**20):
                for piece in self._answer():
                    if piece is None or self._closing:
                        return
                    connection.sendall(piece)


def wait(seconds: float) -> bytes:
    time.sleep(seconds)
    return b""


def drip(head: bytes = b"") -> Iterator[bytes]:
    yield head
    while True:
        time.sleep(0.02)
        yield b"x"


def text(answer: bytes) -> Callable[[], list[bytes]]:
    return lambda: [answer]


ANSWERS: dict[str, Callable[[], Iterable[bytes | None]]] = {
    "never answers": lambda: [wait(30)],
    "closes at once": lambda: [None],
    "closes in the middle": lambda: [b"$100\r\nabc", None],
    "begins and goes on never": lambda: [b"$100\r\nabc", wait(30)],
    "sends a byte now and then": lambda: drip(b"$100000\r\n"),
    "never ends its first line": lambda: drip(),
    "speaks http": text(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
    "sends random bytes": lambda: [os.urandom(1000) + b"\r\n"],
    "sends zeros without end": lambda: itertools.repeat(bytes(2**16)),
    "sends a line without end": lambda: itertools.chain([b"+"], itertools.repeat(b"x" * 2**16)),
    "sends a string without end": lambda: itertools.chain([b"$9999999999\r\n"], itertools.repeat(b"x" * 2**20)),
    "sends a list without end": lambda: itertools.chain([b"*999999999\r\n"], itertools.repeat(b":1\r\n" * 2**14)),
    "sends lists of lists": lambda: itertools.repeat(b"*1\r\n" * 2**14),
    "sends a long number": text(b":" + b"9" * 10_000 + b"\r\n"),
    "sends a negative length": text(b"$-7\r\n"),
    "sends no length": text(b"$many\r\n"),
    "sends an error that is no text": text(b"-ERR \xff\xfe\x1b[31m\x07\r\n"),
    "sends a long error": text(b"-ERR " + b"evil " * 10_000 + b"\r\n"),
    "asks for a password": text(b"-NOAUTH Authentication required.\r\n"),
    "sends elsewhere": text(b"-MOVED 1 127.0.0.1:1\r\n"),
    "is loading": text(b"-LOADING Redis is loading the dataset in memory\r\n"),
    "takes its time": lambda: [wait(0.3), b"$-1\r\n"],
}
QUIET: dict[str, Callable[[], Iterable[bytes | None]]] = {  # which a healthy server might say too
    "has nothing": text(b"$0\r\n\r\n"),
    "has something else": text(b"$5\r\nwrong\r\n"),
    "has what is no string": text(b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
    "has an entry of another key": lambda: [bulk(sealed(key_of("another"), b"content"))],
}


def bulk(content: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(content), content)


def store_at(url: str, patience: Patience | None = None):
    from lowtide._store.redis_store import RedisStore, address_of

    return RedisStore(address_of(url), patience)


def memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def lost_at(url: str) -> float:
    """Seconds that a process loses which asks as often as it may."""
    store = store_at(url, Patience(pause=0.0))
    begin, before = time.monotonic(), memory()
    for _ in range(20):
        assert store.get(KEY) is None
        store.put(KEY, b"content")
        store.drop(KEY)
    assert memory() - before < MOST_MEMORY
    return time.monotonic() - begin


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_server_that_is_no_good_costs_a_second_and_a_line(answer, caplog):
    with FakeServer(ANSWERS[answer]) as server:
        assert lost_at(server.url) < SECONDS + SLACK
    assert len(caplog.messages) <= 1 and (len(caplog.messages) == 1 or answer == "takes its time")
    assert all(line.isprintable() and len(line) < 400 for line in caplog.messages)


@pytest.mark.parametrize("answer", QUIET)
def test_a_server_with_other_content_has_nothing(answer, caplog):
    with FakeServer(QUIET[answer]) as server:
        assert lost_at(server.url) < SECONDS + SLACK
    assert len(caplog.messages) <= 1


def test_a_server_that_is_not_there_costs_no_time(caplog):
    with FakeServer(ANSWERS["closes at once"]) as server:
        pass
    assert lost_at(server.url) < SLACK
    (line,) = caplog.messages
    assert "is not used for now" in line and "plans are kept on this machine" in line


def test_a_server_that_accepts_nobody_costs_a_second(caplog):
    with socket.socket() as deaf, contextlib.ExitStack() as queue:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for _ in range(8):  # which fill its queue
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        assert lost_at(f"redis://127.0.0.1:{deaf.getsockname()[1]}/0") < SECONDS + SLACK
    assert len(caplog.messages) == 1


def test_a_name_that_nobody_knows_costs_a_second(monkeypatch, caplog):
    known = socket.getaddrinfo

    def slow(host, *args, **kwargs):
        if kwargs.get("flags", 0) == 0:
            time.sleep(3)
        return known(host, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    assert lost_at("redis://no.such.name.invalid/0") < SECONDS + SLACK
    assert len(caplog.messages) == 1


def test_after_a_failure_nobody_asks_for_a_while(monkeypatch):
    asked = []
    with FakeServer(lambda: [asked.append(1), b"-ERR no\r\n"][1:]) as server:
        store = store_at(server.url)
        for _ in range(10):
            store.get(KEY)
    assert len(asked) == 1


def test_one_that_stops_in_the_middle_of_its_work(tmp_path, caplog):
    """Stopped, it accepts and says nothing; gone on with, it is asked again after a while."""
    server = RedisServer(tmp_path)
    try:
        store = store_at(server.url, Patience(pause=0.2))
        store.put(KEY, b"content")
        assert store.get(KEY) == b"content"
        server.process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        assert store.get(KEY) is None
        assert time.monotonic() - begin < SECONDS + SLACK
        server.process.send_signal(signal.SIGCONT)
        time.sleep(0.3)
        assert store.get(KEY) == b"content"
    finally:
        server.stop()
    assert len(caplog.messages) == 1


def test_one_that_ends_connections_is_asked_again(tmp_path, caplog):
    import redis

    server = RedisServer(tmp_path)
    try:
        store = store_at(server.url)
        for _ in range(3):
            store.put(KEY, b"content")
            redis.Redis(port=server.port).client_kill_filter(_type="normal", skipme=True)
            assert store.get(KEY) == b"content"
    finally:
        server.stop()
    assert not caplog.messages


def test_one_with_a_password(tmp_path, caplog):
    server = RedisServer(tmp_path, "--requirepass", "s@cret")
    try:
        right = f"redis://:s%40cret@127.0.0.1:{server.port}/2"
        store_at(right).put(KEY, b"content")
        assert store_at(right).get(KEY) == b"content" and not caplog.messages
        assert store_at(right.replace("s%40cret", "another")).get(KEY) is None
        assert store_at(server.url).get(KEY) is None
    finally:
        server.stop()
    assert len(caplog.messages) == 2 and "cret" not in caplog.text and "another" not in caplog.text


def test_one_that_is_full_is_still_read(tmp_path, caplog):
    server = RedisServer(tmp_path, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    try:
        store = store_at(server.url, Patience(100, 20))
        store.put(KEY, b"content")
        for number in range(40):
            store.put(key_of(number), bytes(200_000))
        assert store.get(KEY) == b"content"
    finally:
        server.stop()
    (line,) = caplog.messages
    assert "keeps nothing new" in line


def test_one_that_has_another_type_there_is_mended(tmp_path):
    import redis

    server = RedisServer(tmp_path)
    try:
        redis.Redis(port=server.port).lpush(f"lowtide:{KEY}", "an item")
        store = store_at(server.url)
        assert store.get(KEY) is None
        store.put(KEY, b"content")
        assert store.get(KEY) == b"content"
    finally:
        server.stop()


@pytest.mark.parametrize("answer", [*ANSWERS, *QUIET])
def test_plans_are_made_and_kept_here_all_the_same(answer, tmp_path, monkeypatch):
    graph = training_graph(8)
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(chosen, "_shared", {})
    expected = PlanCache(DirectoryStore(CacheDirectory(None))).get_or_plan(graph, 0.9, None)
    with FakeServer((ANSWERS | QUIET)[answer]) as server:
        monkeypatch.setenv("LOWTIDE_STORE", server.url)
        for _ in range(2):
            store = chosen_store()
            assert isinstance(store, LayeredStore)
            plan = PlanCache(store).get_or_plan(graph, 0.9, None)
            assert (plan.order, plan.offsets()) == (expected.order, expected.offsets())
    assert len(list((tmp_path / "plans").iterdir())) == 1


def test_in_a_fork_another_connection_is_made(tmp_path):
    server = RedisServer(tmp_path)
    try:
        store = store_at(server.url)
        store.put(KEY, b"content")
        child = os.fork()
        if child == 0:
            os._exit(0 if all(store.get(KEY) == b"content" for _ in range(20)) else 1)
        here = [store.get(KEY) for _ in range(20)]
        assert os.waitpid(child, 0)[1] == 0 and set(here) == {b"content"}
    finally:
        server.stop()


def test_threads_ask_one_after_the_other(tmp_path):
    server = RedisServer(tmp_path)
    found: dict[int, bool] = {}
    try:
        store = store_at(server.url, Patience(100, 20))

        def work(number: int) -> None:
            keys = [key_of(number, each) for each in range(50)]
            for key in keys:
                store.put(key, key.encode())
            found[number] = all(store.get(key) == key.encode() for key in keys)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        server.stop()
    assert found == dict.fromkeys(range(8), True)
