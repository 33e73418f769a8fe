"""How far something has come that takes long: capturing, profiling, planning, benchmarks. Ctrl-C works meanwhile.

    planning 2.3 s: peak 5.61 GiB at +4.1 % time, bound 5.50 GiB, gap 2.0 %
    profiling 2.3 s [#######.............] 140 of 400, 4.3 s left

On a terminal it is a line that is redrawn and cleared in the end; in a notebook a bar of tqdm, if that is there; in a
file a line every half minute.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, Protocol, TextIO

from .. import _core
from ..errors import InfeasibleError
from .decisions import detail
from .plan_decisions import tell_of_plan, tell_of_refusal

_CLEAR = "\r\x1b[K"
_PATIENCE = 0.5  # seconds before anything is shown
_EVERY = 0.2  # seconds between two lines
_EVERY_IN_FILES = 30.0
_WIDTH = 20  # of a bar


class _Display(Protocol):
    every: float
    patience: float

    def draw(self, line: str, done: int) -> None: ...

    def clear(self) -> None: ...


class _Terminal:
    """A line that is redrawn."""

    every, patience = _EVERY, _PATIENCE

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._drawn = False

    def draw(self, line: str, done: int) -> None:
        self._drawn = True
        self._write(_CLEAR + line[: self._columns() - 1])  # a line that wraps could not be cleared

    def clear(self) -> None:
        if self._drawn:
            self._write(_CLEAR)
            self._drawn = False

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._terminal.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _write(self, text: str) -> None:
        self._terminal.write(text)
        self._terminal.flush()


class _Notebook:
    """A bar of tqdm's."""

    every, patience = _EVERY, _PATIENCE

    def __init__(self, title: str, total: int | None, tqdm: Callable[..., Any]) -> None:
        self._made: Any = None
        self._make: Callable[[], Any] = functools.partial(tqdm, total=total, desc=title, leave=False)

    def draw(self, line: str, done: int) -> None:
        if self._made is None:
            self._made = self._make()
        self._made.n = done
        self._made.set_postfix_str(line.partition(": ")[2], refresh=False)
        self._made.refresh()

    def clear(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None


class _File:
    """Lines that stay."""

    every, patience = _EVERY_IN_FILES, _EVERY_IN_FILES

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def draw(self, line: str, done: int) -> None:
        self._file.write(f"lowtide: {line}\n")
        self._file.flush()

    def clear(self) -> None:
        pass


def _display(title: str, total: int | None) -> _Display | None:
    """None without a standard error, or with one that is closed."""
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):
        return None
    if is_terminal:
        return _Terminal(sys.stderr)
    tqdm = _tqdm_of_notebook()
    return _File(sys.stderr) if tqdm is None else _Notebook(title, total, tqdm)


def _tqdm_of_notebook() -> Callable[..., Any] | None:
    """None outside of a notebook, and where tqdm is not installed."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of widgets that are not there
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm  # type: ignore[no-any-return]


class ProgressLine:
    """Shows what has been found, of `total` things if their number is known; nothing if LOWTIDE_QUIET is set.

    What is asked for by name, as a benchmark is, shows it even then: `wanted`.
    """

    def __init__(self, title: str = "planning", total: int | None = None, *, wanted: bool = False) -> None:
        self._title = title
        self._total = total
        shown = wanted or not os.environ.get("LOWTIDE_QUIET")
        self._display = _display(title, total) if shown else None
        self._begin = time.monotonic()
        self._next = self._begin + (self._display.patience if self._display else 0)

    def show(self, found: str = "", done: int = 0) -> None:
        """Draws what has been found so far, and how much is done, every now and then."""
        if self._display is None or (now := time.monotonic()) < self._next:
            return
        self._next = now + self._display.every
        taken = now - self._begin
        line = f"{self._title} {taken:.1f} s{self._bar(done, taken)}{': ' if found else ''}{found}"
        self._try(lambda display: display.draw(line, done))

    def clear(self) -> None:
        """Leaves the terminal as it was."""
        self._try(lambda display: display.clear())

    def _try(self, act: Callable[[_Display], None]) -> None:
        """A standard error that nobody reads any more ends nothing but this line."""
        try:
            if self._display is not None:
                act(self._display)
        except (OSError, ValueError):
            self._display = None

    def _bar(self, done: int, taken: float) -> str:
        if not self._total:
            return ""
        filled = "#" * (_WIDTH * done // self._total)
        left = f", {taken / done * (self._total - done):.1f} s left" if done else ""
        return f" [{filled:.<{_WIDTH}}] {done} of {self._total}{left}"


def plan_in_sight(graph: _core.Graph, *, look: Callable[[], None] | None = None, **options: Any) -> _core.Plan:
    """`_core.plan`, with a line of progress. `look` is called meanwhile: what it raises ends the search."""
    line = ProgressLine()
    begin, last = time.perf_counter(), ""
    limit = options.get("time_limit")

    def watch(found: str) -> None:
        nonlocal last
        if look is not None:
            look()
        left = "" if limit is None else f", at most {max(0.0, begin + limit - time.perf_counter()):.1f} s left"
        line.show(found + left)
        if found != last:
            last = found
            detail("order", "searching", found=found)

    try:
        plan = _core.plan(graph, watching=watch, **options)
    except InfeasibleError as error:
        tell_of_refusal(graph, error, options)
        raise
    finally:
        line.clear()
    tell_of_plan(graph, plan, time.perf_counter() - begin, options)
    return plan
