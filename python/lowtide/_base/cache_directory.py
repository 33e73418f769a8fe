"""The directory of profiles and plans: this user's alone, or it is not used.

What lies there is still checked like any other file. The directory is made with mode 0700. One that is there already is
used if it belongs to this user or to root, and if nobody else may write it; so is each file in it. Otherwise what is
found is kept in memory only, and one logged line says why. A cache that cannot be written is no error and is left as it
was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = 0
_UNFINISHED = "unfinished-"
_LONGEST_WRITE = 3600.0  # seconds; what is unfinished for longer is left by a process that has ended

_log = logging.getLogger("lowtide")
_told: set[tuple[str, str]] = set()  # directories and reasons that have been logged


def default_directory() -> Path | None:
    """Where profiles and plans are kept: `$LOWTIDE_CACHE_DIR`, or `lowtide` in the user's cache directory.

    None if there is no such place, because nobody knows the user's home.
    """
    chosen = os.environ.get("LOWTIDE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lowtide"
    except RuntimeError:
        return None


class CachedFile(NamedTuple):
    """A file of a cache, as it was found."""

    name: str
    bytes: int
    used_ns: int  # when it was written or touched last
    state: tuple[int, ...]


class CacheDirectory:
    """Files of one directory, by name. Nothing that it does raises an error of the file system."""

    def __init__(self, path: Path | None, inside: CacheDirectory | None = None) -> None:
        self._path = path
        self._inside = inside

    def below(self, name: str) -> CacheDirectory:
        """A directory in this one."""
        return CacheDirectory(None if self._path is None else self._path / name, self)

    def to_read(self, name: str, most_bytes: int) -> Path | None:
        """The path of a file that may be read: there, regular, this user's alone, of at most so many bytes."""
        with contextlib.suppress(OSError):
            if self._path is not None and self._is_trusted():
                path = self._path / name
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and found.st_size <= most_bytes and not _reason_against(found):
                    return path
        return None

    def file_state(self, name: str) -> tuple[int, ...] | None:
        """Something that is another one once the file has been written again, or None if there is no file."""
        path = self.to_read(name, most_bytes=2**63)
        with contextlib.suppress(OSError):
            if path is not None:
                return _state(path.stat())
        return None

    def files(self) -> list[CachedFile]:
        """What has been written here and is finished."""
        found: list[CachedFile] = []
        with contextlib.suppress(OSError):
            if self._path is not None and self._is_trusted():
                for entry in os.scandir(self._path):
                    with contextlib.suppress(OSError):  # one that is gone by now
                        if entry.is_file(follow_symlinks=False) and not entry.name.startswith(_UNFINISHED):
                            status = entry.stat(follow_symlinks=False)
                            file = CachedFile(entry.name, status.st_size, status.st_mtime_ns, _state(status))
                            found.append(file)
        return found

    def touch(self, name: str) -> None:
        """Notes that the file is used now."""
        with contextlib.suppress(OSError):
            if self._path is not None and self._is_trusted():
                os.utime(self._path / name, follow_symlinks=False)

    def remove(self, name: str, state: tuple[int, ...] | None = None) -> None:
        """Removes a file; with `state` only if it is still as it was then."""
        with contextlib.suppress(OSError):
            if self._path is not None and self._is_trusted():
                path = self._path / name
                if state is None or _state(path.lstat()) == state:
                    path.unlink()

    def remove_unfinished(self) -> None:
        """Removes what processes have left that were killed while they wrote."""
        with contextlib.suppress(OSError):
            if self._path is not None and self._is_trusted():
                for path in self._path.glob(f"{_UNFINISHED}*"):
                    with contextlib.suppress(OSError):
                        if path.lstat().st_mtime < time.time() - _LONGEST_WRITE:
                            path.unlink()

    @contextlib.contextmanager
    def replacing(self, name: str) -> Iterator[Path | None]:
        """Gives a path to write: at the end of the block it becomes the file of this name, or nothing is left of it.

        Gives None where nothing can be written. Errors of the file system end the block without a word.
        """
        unfinished: Path | None = None
        try:
            with contextlib.suppress(OSError):
                if self._make():
                    handle, made = tempfile.mkstemp(prefix=_UNFINISHED, suffix=Path(name).suffix, dir=self._path)
                    os.close(handle)
                    unfinished = Path(made)
            with contextlib.suppress(OSError):
                yield unfinished
                if unfinished is not None:
                    unfinished.chmod(0o600)
                    unfinished.replace(unfinished.with_name(name))
        finally:
            if unfinished is not None:
                with contextlib.suppress(OSError):
                    unfinished.unlink(missing_ok=True)

    def _make(self) -> bool:
        if self._path is None or (self._inside is not None and not self._inside._make()):
            return False
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.mkdir(mode=0o700, exist_ok=True)
        return self._is_trusted()

    def _is_trusted(self) -> bool:
        if self._path is None or (self._inside is not None and not self._inside._is_trusted()):
            return False
        reason = _reason_against(self._path.stat())
        if reason and (str(self._path), reason) not in _told:
            _told.add((str(self._path), reason))
            _log.warning("lowtide: %s is not used as a cache: %s", self._path, reason)
        return not reason


def _state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _reason_against(found: os.stat_result) -> str:
    """Why somebody else may have written it, or "" if nobody else can."""
    if found.st_uid not in (ROOT, os.geteuid()):
        return f"it belongs to user {found.st_uid}, expected {os.geteuid()} or root"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write it (mode {stat.S_IMODE(found.st_mode):04o}); chmod go-w makes it usable"
    return ""
