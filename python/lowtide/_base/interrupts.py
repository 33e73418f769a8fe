"""Ctrl-C and other signals while a step is captured, planned or run.

Python calls a signal's handler between any two bytecodes, and that of Ctrl-C raises `KeyboardInterrupt` there: perhaps
in the middle of putting the user's gradients back. While `signals_held` is open, a signal is answered only where an
exception does no harm: where `look` is called (at each recorded operator, each profile, and every 50 ms between two
operators of a running step), in the user's own code during a capture, and at the end.

    with signals_held:
        ...                   # Ctrl-C waits
        signals_held.look()   # and is answered here
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # behind `signal`, whose enums take 20 us a step; this takes 3
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .sources import OURS, is_library_file

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR1", "SIGUSR2")
_SIGNALS = [int(getattr(signal, name)) for name in _NAMES if hasattr(signal, name)]  # whose handlers may raise


class SignalsHeld:
    """One for the process, since signals are: a context manager, which does nothing on any thread but the main one."""

    def __init__(self) -> None:
        self._depth = 0
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}  # those of the user, while held
        self._waiting: list[int] = []  # signals that have arrived
        self._in_users_code = False
        self._raised: BaseException | None = None

    def __enter__(self) -> None:
        if not _on_main_thread():
            return
        if self._depth > 0:
            self._depth += 1
            return
        try:
            for number in _SIGNALS:
                handler = _signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    _signal.signal(number, self._arrive)
            self._depth = 1
        except BaseException:
            self._give_back()
            self._deliver()
            raise

    def __exit__(self, *_: object) -> None:
        if not _on_main_thread():
            return
        self._depth -= 1
        if self._depth == 0:
            self._raised = None
            self._give_back()
            self._deliver()

    def raised(self, error: BaseException) -> bool:
        """Whether this is what a signal's handler has raised: it goes to the caller, whatever it is."""
        return error is self._raised and _on_main_thread()

    def look(self) -> None:
        """Answers the signals that have arrived: raises what their handlers raise."""
        if self._waiting and _on_main_thread():
            self._answer(self._waiting.pop(0), sys._getframe(1))

    @property
    def lookout(self) -> Callable[[], None] | None:
        """`look`, if it can find anything on this thread."""
        return self.look if self._depth > 0 and _on_main_thread() else None

    @contextmanager
    def users_code(self) -> Iterator[None]:
        """While open, a signal that arrives in the user's code, or in a library that it calls, is answered there."""
        if self.lookout is None:
            yield
            return
        before, self._in_users_code = self._in_users_code, True
        try:
            yield
        finally:
            self._in_users_code = before

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        if self._in_users_code and frame is not None and _is_called_by_the_user(frame):
            self._answer(number, frame)
        else:
            self._waiting.append(number)

    def _answer(self, number: int, frame: FrameType) -> None:
        try:
            self._handlers[number](number, frame)
        except BaseException as error:
            self._raised = error
            raise

    # A handler may raise as soon as it is back in its place: what is left is done on the way out.

    def _give_back(self) -> None:
        try:
            while self._handlers:
                number, handler = self._handlers.popitem()
                if _signal.getsignal(number) == self._arrive:  # else a handler has set another one
                    _signal.signal(number, handler)
        finally:
            if self._handlers:
                self._give_back()

    def _deliver(self) -> None:
        try:
            while self._waiting:
                signal.raise_signal(self._waiting.pop(0))
        finally:
            if self._waiting:
                self._deliver()


def _on_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


signals_held = SignalsHeld()


def _is_called_by_the_user(frame: FrameType) -> bool:
    """Whether code of the user's runs, or has called what runs, with nothing of ours in between."""
    at: FrameType | None = frame
    while at is not None:
        file = at.f_code.co_filename
        if file.startswith(OURS):
            return False
        if not is_library_file(file):
            return True
        at = at.f_back
    return False
