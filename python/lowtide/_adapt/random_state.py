"""The global random state of Python and NumPy at each run of each block, for a few microseconds.

Reading the states takes a hundred times as long, and hardly any block draws from them. So they are read once and again
only if the memory of the generators has another content.
"""

from __future__ import annotations

import ctypes
import random
import sys
from typing import Any

from .._base.python_random import PythonRandom

_HEAD = object.__basicsize__  # a count of references and a class: nothing of the state


class RandomStates:
    """Gives the state of now as often as it is asked."""

    def __init__(self) -> None:
        self._mark: bytes | None = None
        self._state = PythonRandom()

    def now(self) -> PythonRandom:
        """The same object as long as nobody draws or seeds."""
        mark = _memory_of_generators()
        if mark != self._mark:
            self._state = PythonRandom()
            self._mark = mark
        return self._state


def _memory_of_generators() -> bytes:
    python: Any = getattr(random, "_inst", None)
    parts = [_memory_of(python), repr(getattr(python, "gauss_next", None)).encode()]
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        state = numpy.mtrand._rand
        parts += [_memory_of(state), _memory_of(state._bit_generator)]
    return b"".join(parts)


def _memory_of(thing: object) -> bytes:
    return ctypes.string_at(id(thing) + _HEAD, type(thing).__basicsize__ - _HEAD)
