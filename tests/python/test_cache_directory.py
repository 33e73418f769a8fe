"""The cache directory: this user's alone, or not used; what cannot be written leaves nothing behind."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide._base import cache_directory
from lowtide._base.cache_directory import CacheDirectory, default_directory

MOST = 1000


def write(directory, name="file", content="content"):
    with directory.replacing(name) as path:
        if path is not None:
            path.write_text(content)


def read(directory, name="file"):
    path = directory.to_read(name, MOST)
    return None if path is None else path.read_text()


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def told_nothing_yet(monkeypatch):
    monkeypatch.setattr(cache_directory, "_told", set())


def test_directories_and_files_are_this_users_alone(tmp_path):
    cache = CacheDirectory(tmp_path / "some" / "cache")
    assert read(cache) is None
    write(cache.below("plans"))
    write(cache)
    assert (read(cache), read(cache.below("plans"))) == ("content", "content")
    made = tmp_path / "some" / "cache"
    assert [mode_of(made), mode_of(made / "plans")] == [0o700, 0o700]
    assert [mode_of(made / "file"), mode_of(made / "plans" / "file")] == [0o600, 0o600]


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777, 0o1777])
def test_a_directory_that_others_may_write_is_not_used(tmp_path, mode, caplog):
    cache = CacheDirectory(tmp_path)
    write(cache)
    write(cache.below("plans"))
    tmp_path.chmod(mode)
    for directory in (cache, cache.below("plans")):
        write(directory, "other")
        assert read(directory) is None
        assert read(directory, "other") is None
    assert [f"{tmp_path} is not used as a cache" in line for line in caplog.messages] == [True]
    assert "chmod go-w" in caplog.text
    tmp_path.chmod(0o755)  # others may read it
    assert read(cache) == "content"


def test_a_directory_of_somebody_else_is_not_used(tmp_path, monkeypatch, caplog):
    cache = CacheDirectory(tmp_path)
    write(cache)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    monkeypatch.setattr(cache_directory, "ROOT", -1)
    assert read(cache) is None
    write(cache, "other")
    assert not (tmp_path / "other").exists()
    assert "it belongs to user" in caplog.text


def test_files_that_somebody_else_may_have_written_are_not_read(tmp_path):
    cache = CacheDirectory(tmp_path)
    write(cache)
    (tmp_path / "file").chmod(0o620)
    assert read(cache) is None
    write(cache)  # but replaced
    assert read(cache) == "content"


def test_only_regular_files_of_a_sane_size_are_read(tmp_path):
    cache = CacheDirectory(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)  # to read it would wait for ever
    (tmp_path / "folder").mkdir(0o700)
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "link", "missing"):
        assert cache.to_read(name, MOST) is None
        assert cache.file_state(name) is None
    write(cache, content="x" * (MOST + 1))
    assert read(cache) is None


def test_a_file_in_the_way_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = CacheDirectory(tmp_path / "file" / "below")
    write(cache)
    assert read(cache) is None


def test_without_a_home_there_is_no_cache(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("LOWTIDE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    cache = CacheDirectory(default_directory())
    write(cache)
    assert read(cache) is None
    assert read(cache.below("plans")) is None


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(tmp_path, error):
    cache = CacheDirectory(tmp_path)
    write(cache)
    try:
        with cache.replacing("file") as path:
            path.write_text("half of")
            raise error
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert read(cache) == "content"


FULL_DISK = """
import resource, sys, torch, lowtide
from torch import nn
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def function(x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
step = lowtide.compile(function, model=model, optimizer=optimizer, memory_budget="10MiB", on_unsupported="raise")
for rows in (2, 3):
    for _ in range(7):
        step(torch.randn(rows, 8))
"""


def test_a_full_disk_leaves_no_temporary_files(tmp_path):
    environment = {**os.environ, "LOWTIDE_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", FULL_DISK], env=environment, check=True)
    files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert [path for path in files if path.parent.name != "trials"] == [], "all but a trial's, which is small"
