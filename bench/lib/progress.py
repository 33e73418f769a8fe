"""How far a benchmark has come: a bar on the standard error, where that is a terminal or a notebook."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, TypeVar

from lowtide._base.progress import ProgressLine

T = TypeVar("T")


class _Output:
    """A standard output whose lines come where the bar is: it leaves first, and comes back with the next item."""

    def __init__(self, file: TextIO, line: ProgressLine) -> None:
        self._file = file
        self._line = line

    def write(self, text: str) -> int:
        self._line.clear()
        return self._file.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def each(items: Iterable[T], title: str) -> Iterator[T]:
    """The items, with how many are done and how long the rest will take. A benchmark was asked for: it is shown."""
    listed = list(items)
    line = ProgressLine(title, len(listed), wanted=True)
    with contextlib.redirect_stdout(_Output(sys.stdout, line)):  # type: ignore[type-var]
        try:
            for done, item in enumerate(listed):
                line.show(item if isinstance(item, str) else "", done)
                yield item
        finally:
            line.clear()
