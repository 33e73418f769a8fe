"""The default generator of PyTorch while draws are deferred: who sets it is found, who reads it is answered in time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .._base.random_states import (
    RandomStates,
    move_random_states,
    read_random_states,
    same_random_states,
    set_random_states,
)


class DeferredDraws:
    """Where the generator stood before the deferred draws of a program.

    From the first of them on it stands where it has never been before. If it stands elsewhere later, live Python has
    set it meanwhile, by whatever name.
    """

    def __init__(self) -> None:
        self._first: RandomStates | None = None
        self._before: RandomStates | None = None  # the first that is not made yet
        self._marked: RandomStates | None = None

    @property
    def any(self) -> bool:
        """Whether a draw is deferred."""
        return self._before is not None

    def note(self) -> None:
        """A call that draws is deferred."""
        if self._before is None:
            self._defer_from_here()
            self._first = self._before

    def _defer_from_here(self) -> None:
        with _disable_current_modes():
            self._before = read_random_states()
            move_random_states()
            self._marked = read_random_states()

    def was_set(self) -> bool:
        """Whether live Python has set the generator since the first draw was deferred."""
        return self._marked is not None and not same_random_states(read_random_states(), self._marked)

    @contextmanager
    def made(self, *, whatever_happens: bool = False) -> Iterator[None]:
        """While open, the draws are made. What live Python has set since then holds afterwards.

        An exception from inside leaves them deferred, unless they are made whatever happens.
        """
        if self._before is None:
            yield
            return
        seeded = self.was_set()
        now = read_random_states() if seeded else self._marked
        assert now is not None
        set_random_states(self._before)
        try:
            yield
        except BaseException:
            if whatever_happens:
                self._before = self._marked = None
            else:
                set_random_states(now)
            raise
        self._before = self._marked = None
        if seeded:
            set_random_states(now)

    @contextmanager
    def partly_made(self) -> Iterator[None]:
        """While open, some of the draws are made; the others remain deferred."""
        if self._before is None:
            yield
            return
        set_random_states(self._before)
        try:
            yield
        finally:
            self._defer_from_here()

    def put_back(self, undo: Callable[[], None]) -> None:
        """Draws that were partly made are deferred again: `undo` lets go of what they gave."""
        now = read_random_states()
        undo()
        self._before = self._first
        set_random_states(now)

    def forget(self) -> None:
        """They are not made at all."""
        if self._first is not None and not self.was_set():
            set_random_states(self._first)
        self._before = self._marked = None

    @contextmanager
    def tried(self) -> Iterator[None]:
        """While open, draws are made that will be made once more."""
        now = read_random_states()
        if self._before is not None:
            set_random_states(self._before)
        try:
            yield
        finally:
            set_random_states(now)


class _WatchedGenerator:
    """A default generator, for the functions of `torch.random` and `torch.cuda`."""

    def __init__(self, own: torch.Generator, before_read: Callable[[], None]) -> None:
        self._own = own
        self._before_read = before_read
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        if name in ("get_state", "get_offset") and threading.get_ident() == self._thread:
            self._before_read()
        return getattr(self._own, name)


@contextmanager
def reads_noticed(before_read: Callable[[], None]) -> Iterator[None]:
    """While open, `get_rng_state` of the CPU and of CUDA devices have `before_read` called first, on this thread."""
    cpu: Any = torch.random
    cuda: Any = torch.cuda
    own, on_devices = cpu.default_generator, cuda.default_generators
    cpu.default_generator = _WatchedGenerator(own, before_read)
    cuda.default_generators = tuple([_WatchedGenerator(one, before_read) for one in on_devices])
    try:
        yield
    finally:
        cpu.default_generator = own
        if on_devices:  # if not, the first use of CUDA has made them meanwhile
            cuda.default_generators = on_devices
