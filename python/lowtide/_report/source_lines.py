"""The text of source lines that a graph names, and how their places are shown.

A graph may come from anywhere, and what it names is put on a page that may go anywhere. So only files of Python are
read, and of these only the line that is named.
"""

from __future__ import annotations

import os
import tokenize
from functools import lru_cache
from pathlib import Path

_MOST_BYTES = 4 << 20


def split(source: str) -> tuple[str, int]:
    """The file and the number of a line, 0 where there is none."""
    path, _, number = source.rpartition(":")
    return (path, int(number)) if path and number.isascii() and number.isdigit() else (source, 0)


def text_of(source: str) -> str:
    """The line, without its indent; empty if there is no such line here."""
    path, number = split(source)
    lines = _lines_of(path) if number else []
    return lines[number - 1].strip() if number <= len(lines) and number else ""


def _lines_of(path: str) -> list[str]:
    file = Path(path)
    try:
        if file.suffix != ".py" or not file.is_file():
            return []
        state = file.stat()
        return [] if state.st_size > _MOST_BYTES else _read(file, state.st_mtime_ns, state.st_size)
    except (OSError, SyntaxError, ValueError):
        return []


@lru_cache(maxsize=256)
def _read(file: Path, changed: int, size: int) -> list[str]:
    """Again if it has changed since."""
    with tokenize.open(file) as opened:
        return opened.read().splitlines()


def short(source: str) -> str:
    """As people know it: from the installed package on, or from the current folder on."""
    _, installed, rest = source.rpartition("site-packages" + os.sep)
    if installed:
        return rest
    here = os.getcwd() + os.sep
    return source.removeprefix(here)
