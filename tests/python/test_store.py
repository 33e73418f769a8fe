"""What every store does, in a directory and in a Redis server."""

from __future__ import annotations

import os
import sys
import time

import pytest

from lowtide._base.cache_directory import CacheDirectory
from lowtide._store import chosen, directory
from lowtide._store.chosen import chosen_store, shared_store
from lowtide._store.directory import DirectoryStore
from lowtide._store.entry import key_of, opened, sealed
from lowtide._store.layered import LayeredStore
from lowtide._store.patience import Patience
from redis_server import RedisServer, need_redis

ONE, OTHER = key_of("one"), key_of("other")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    need_redis()
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


class InDirectory:
    """A store, and what others may do to what it holds."""

    module = directory

    def __init__(self, path):
        self.path = path
        self.store = DirectoryStore(CacheDirectory(path))

    def put_raw(self, key, entry):
        (self.path / f"{key}.entry").write_bytes(entry)

    def holds(self, key):
        return (self.path / f"{key}.entry").exists()


class InRedis:
    def __init__(self, server):
        import redis

        from lowtide._store import redis_store

        self.module = redis_store
        self.store = redis_store.RedisStore(redis_store.address_of(server.url), Patience(100, 20))
        self.client = redis.Redis(port=server.port)
        self.client.flushdb()

    def put_raw(self, key, entry):
        self.client.set(f"lowtide:{key}", entry)

    def holds(self, key):
        return bool(self.client.exists(f"lowtide:{key}"))


@pytest.fixture(params=["directory", "redis"])
def place(request, tmp_path):
    if request.param == "directory":
        place = InDirectory(tmp_path / "store")
    else:
        place = InRedis(request.getfixturevalue("server"))
    place.store.put(OTHER, b"other")
    return place


@pytest.mark.parametrize("content", [b"", b"x", b"\0\r\n" * 1000, os.urandom(10**6)], ids=len)
def test_what_is_put_is_found(place, content):
    assert place.store.get(ONE) is None
    for version in (b"before", content):
        place.store.put(ONE, version)
        assert place.store.get(ONE) == version
    place.store.drop(ONE)
    assert place.store.get(ONE) is None
    place.store.drop(ONE)
    assert place.store.get(OTHER) == b"other"


DAMAGES = {
    "nothing": lambda entry: b"",
    "truncated": lambda entry: entry[:-1],
    "cut in the head": lambda entry: entry[:20],
    "longer": lambda entry: entry + b"x",
    "a bit": lambda entry: entry[:-2] + bytes([entry[-2] ^ 1]) + entry[-1:],
    "a bit of the checksum": lambda entry: entry[:20] + bytes([entry[20] ^ 1]) + entry[21:],
    "another format": lambda entry: entry.replace(b"entry 1", b"entry 2"),
    "of another key": lambda entry: sealed(OTHER, b"content"),
    "bare": lambda entry: b"content",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_not_served_and_is_removed(place, damage):
    place.store.put(ONE, b"content")
    place.put_raw(ONE, DAMAGES[damage](sealed(ONE, b"content")))
    assert place.store.get(ONE) is None
    assert not place.holds(ONE) or damage == "nothing"
    place.store.put(ONE, b"content")
    assert place.store.get(ONE) == b"content"


def test_what_is_too_large_is_neither_put_nor_read(place, monkeypatch):
    place.store.put(ONE, bytes(2000))
    monkeypatch.setattr(place.module, "MOST_BYTES", 1000)
    assert place.store.get(ONE) is None
    place.store.drop(ONE)
    place.store.put(ONE, bytes(1000))
    assert not place.holds(ONE)
    assert place.store.get(ONE) is None
    assert place.store.get(OTHER) == b"other"


def test_an_entry_is_of_its_key_alone():
    entry = sealed(ONE, b"content")
    assert opened(ONE, entry) == b"content" and opened(OTHER, entry) is None


def test_a_key_is_of_all_its_parts():
    parts = [(1, 2), (12,), ("1", 2), (1, "2"), (1.0, 2), ((1, 2),), (None, 1, 2)]
    assert len({key_of(*some) for some in parts}) == len(parts)
    assert key_of(1, 2) == key_of(1, 2)


# -- the directory -----------------------------------------------------------------------------------------------------


def used_at(path, key, seconds_ago):
    then = time.time() - seconds_ago
    os.utime(path / f"{key}.entry", (then, then))


def test_what_was_used_least_recently_goes_first(tmp_path):
    store = DirectoryStore(CacheDirectory(tmp_path), most_bytes=10_000)
    keys = [key_of(number) for number in range(9)]
    for number, key in enumerate(keys):
        store.put(key, bytes(1000))
        used_at(tmp_path, key, 1000 - number)
    assert store.get(keys[0]) is not None, "and so it is the one that was used last"
    for number in range(9, 12):
        store.put(key_of(number), bytes(1000))
    left = {path.stem for path in tmp_path.iterdir()}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 10_000
    assert keys[0] in left and not left & set(keys[1:4])


def test_what_killed_writers_left_goes(tmp_path):
    store = DirectoryStore(CacheDirectory(tmp_path))
    for name, age in (("unfinished-old.entry", 2 * 3600), ("unfinished-new.entry", 60)):
        (tmp_path / name).write_bytes(b"half of")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    store.put(ONE, b"content")
    assert {path.name for path in tmp_path.iterdir()} == {"unfinished-new.entry", f"{ONE}.entry"}


def test_a_directory_that_others_may_write_is_left_alone(tmp_path):
    store = DirectoryStore(CacheDirectory(tmp_path), most_bytes=1)
    store.put(ONE, b"content")
    (tmp_path / "mine").write_bytes(b"0")
    tmp_path.chmod(0o777)
    store.put(OTHER, b"other")
    store.drop(ONE)
    assert store.get(ONE) is None and {path.name for path in tmp_path.iterdir()} == {"mine"}


# -- which one ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def near(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(chosen, "_shared", {})
    return InDirectory(tmp_path / "cache" / "plans")


def test_without_a_word_it_is_the_users_directory(near, monkeypatch):
    monkeypatch.delenv("LOWTIDE_STORE", raising=False)
    chosen_store().put(ONE, b"content")
    assert near.store.get(ONE) == b"content" and shared_store() is None


def test_a_shared_store_is_behind_the_users_directory(place, near, monkeypatch, request):
    named = str(place.path) if isinstance(place, InDirectory) else request.getfixturevalue("server").url
    monkeypatch.setenv("LOWTIDE_STORE", named)
    store = chosen_store()
    assert isinstance(store, LayeredStore)
    assert store.get(OTHER) == b"other" == near.store.get(OTHER), "what is found there is kept here too"
    place.store.drop(OTHER)
    assert store.get(OTHER) == b"other"
    store.put(ONE, b"content")
    assert near.store.get(ONE) == b"content" == place.store.get(ONE)
    store.drop(ONE)
    assert not near.holds(ONE) and not place.holds(ONE)


@pytest.mark.parametrize("named", ["http://host", "redis://", "redis://host/a", "redis://host:x", "redis://h:99999/0"])
def test_what_names_no_store_is_said_once(near, named, monkeypatch, caplog):
    need_redis()
    monkeypatch.setenv("LOWTIDE_STORE", named)
    for _ in range(3):
        chosen_store().put(ONE, b"content")
        assert chosen_store().get(ONE) == b"content"
    (line,) = caplog.messages
    assert line.startswith("lowtide: LOWTIDE_STORE is not used: ")


def test_without_redis_py_it_is_said_what_to_install(near, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "redis", None)
    monkeypatch.delitem(sys.modules, "lowtide._store.redis_store", raising=False)
    monkeypatch.setenv("LOWTIDE_STORE", "redis://127.0.0.1:1/0")
    for _ in range(2):
        chosen_store().put(ONE, b"content")
    assert near.store.get(ONE) == b"content"
    assert caplog.messages == [
        "lowtide: LOWTIDE_STORE is not used: a Redis server needs redis-py: pip install lowtide[redis]"
    ]


def test_a_password_is_read_and_never_said(monkeypatch):
    need_redis()
    from lowtide._store.redis_store import address_of

    address = address_of("redis://me:s%40cret@host:7000/3")
    assert address == ("host", 7000, 3, "me", "s@cret") and str(address) == "host:7000/3"
    assert address_of("redis://host") == ("host", 6379, 0, None, None)
