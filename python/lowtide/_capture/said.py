"""What modules and functions say while they run: lines printed, warnings, log records.

They run in Python once, on fake tensors, and what they said then is said again at each call that follows.

    with Sayings() as sayings:
        module(x)             # nothing is shown yet
    for say in sayings.said:
        say()                 # as often as the module would have said it
"""

from __future__ import annotations

import builtins
import functools
import logging
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
import torch.overrides
from torch._subclasses.fake_tensor import FakeTensor

from .._base.sources import OURS
from .._base.wrapped import Wrapped
from ..errors import CaptureError

_ASKS_MODES = torch.overrides.handle_torch_function.__code__
_OTHERS = ("torch", "lowtide")  # whose records tell of the capture


class Sayings:
    """While open, what is said on this thread is kept in `said` and not shown; it opens again and again."""

    def __init__(self) -> None:
        self.said: list[Callable[[], Any]] = []
        self._wrapped = Wrapped(
            (warnings, "warn", self._warn), (builtins, "print", self._print), (logging.Logger, "handle", self._handle),
            (torch.Tensor, "__repr__", self._repr),
        )  # fmt: skip

    def __enter__(self) -> Sayings:
        self.said = []
        self._thread = threading.get_ident()
        self._filters, self._streams = warnings.filters, (sys.stdout, sys.stderr)
        self._wrapped.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._wrapped.__exit__()

    def _is_heard(self) -> bool:
        """A debugger talks by itself."""
        return threading.get_ident() == self._thread and sys.gettrace() is None

    def _warn(self, own: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(own)
        def warn(message: Any, category: Any = None, stacklevel: int = 1, *args: Any, **kwargs: Any) -> None:
            caller = sys._getframe(1)
            # Under other filters than before the call, the module sees to its warnings itself.
            is_known = not args and not kwargs and warnings.filters is self._filters
            if not self._is_heard() or not is_known or _is_ours(caller):
                own(message, category, stacklevel + 1, *args, **kwargs)
                return
            at = _frame_above(caller, stacklevel)
            kind = type(message) if isinstance(message, Warning) else category or UserWarning
            module, registry = at.f_globals.get("__name__", ""), at.f_globals.setdefault("__warningregistry__", {})
            self.said.append(
                functools.partial(
                    warnings.warn_explicit, message, kind, at.f_code.co_filename, at.f_lineno, module, registry
                )
            )

        return warn

    def _print(self, own: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(own)
        def say(
            *values: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
        ) -> None:
            to = next((name for name in ("stdout", "stderr") if file is getattr(sys, name)), "stdout")
            is_known = (sys.stdout, sys.stderr) == self._streams and file in (None, *self._streams)  # else it is kept
            if not self._is_heard() or not is_known:
                own(*values, sep=sep, end=end, file=file, flush=flush)
                return
            text = (" " if sep is None else sep).join(map(str, values))
            self.said.append(lambda: own(text, end=end, file=getattr(sys, to), flush=flush))

        return say

    def _handle(self, own: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(own)
        def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
            if not self._is_heard() or logger.name.partition(".")[0] in _OTHERS:
                own(logger, record)
                return
            record.getMessage()  # which refuses fake tensors
            self.said.append(lambda: own(logger, _as_of_now(record)))

        return handle

    def _repr(self, own: Callable[..., str]) -> Callable[..., str]:
        @functools.wraps(own)
        def show(tensor: torch.Tensor, **kwargs: Any) -> str:
            if isinstance(tensor, FakeTensor) and self._is_heard():
                raise CaptureError("a module or function of the step shows the values of a tensor")
            return own(tensor, **kwargs)

        return show


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(OURS)


def _frame_above(frame: FrameType, level: int) -> FrameType:
    """The frame that a warning is about, as it were without us: `f` of PyTorch is called by the mode that `f` asks."""
    while level > 1 and frame.f_back is not None:
        frame, level = frame.f_back, level - 1
        while _is_ours(frame) and frame.f_back is not None:
            frame = frame.f_back
        if frame.f_code is _ASKS_MODES and frame.f_back is not None and frame.f_back.f_back is not None:
            frame = frame.f_back.f_back
    return frame


def _as_of_now(record: logging.LogRecord) -> logging.LogRecord:
    again, now = logging.makeLogRecord(vars(record)), time.time()
    again.relativeCreated += (now - again.created) * 1000
    again.created, again.msecs = now, now % 1 * 1000
    return again
