"""Places in memory that Python can change without another object: the numbers of arrays, bytes, values of ctypes."""

from __future__ import annotations

import array
import ctypes
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from .. import _core
from .places import Collection, Content, Path, Property

MAX_BYTES = 1 << 20  # of an array that is compared at each call; audits alone see what is in a larger one


def is_memory(value: Any) -> bool:
    """Numbers or bytes in memory, of Python, NumPy or ctypes, few enough to be compared at each call."""
    if is_array(value):
        return not value.dtype.hasobject and bool(value.nbytes <= MAX_BYTES)
    try:
        with memoryview(value) as view:
            return view.nbytes <= MAX_BYTES
    except (TypeError, ValueError, BufferError):
        return False


def is_array(value: Any) -> bool:
    """An array of NumPy, which is loaded then."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_array_of_objects(value: Any) -> bool:
    """An array of NumPy that holds objects of Python."""
    return is_array(value) and bool(value.dtype.kind == "O")


class _Look:
    """What is in memory now, as a descriptor gives it."""

    def __get__(self, value: Any, _kind: Any = None) -> bytes:
        return value.tobytes() if is_array(value) else bytes(memoryview(value))


class Memory(Property):
    """All bytes of a value."""

    def __init__(self, path: Path, target: Any) -> None:
        super().__init__(path, target, _Look())

    def restore(self, content: Content) -> None:
        """In place, whatever its strides are; what may not be written stays."""
        for _, saved in content:
            with suppress(TypeError, ValueError, BufferError, NotImplementedError):
                _write(self.target, saved)


class ArrayOfObjects(Collection):
    """The items of an array that holds objects of Python."""

    def content(self) -> Content:
        """By index, as if it had one dimension."""
        return list(enumerate(self.target.flat))

    def watch(self, watch: _core.Watch) -> int:
        """By items."""
        return watch.add_iterable(_Flat(self.target))

    def restore(self, content: Content) -> None:
        """Item by item: what is assigned to more than one at once is taken apart if it is a list."""
        for index, (_, value) in zip(_indices(self.target.shape), content, strict=True):
            if index:
                self.target[index] = value
            else:
                self.target.fill(value)


class _Flat:
    """The items of an array, from the first one whenever it is asked."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values.flat)


def _indices(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    return iter(sys.modules["numpy"].ndindex(*shape))


def _write(value: Any, saved: bytes) -> None:
    """Raises where the memory may not be written."""
    if is_array(value):
        numpy = sys.modules["numpy"]
        value[...] = numpy.frombuffer(saved, value.dtype).reshape(value.shape)
        return
    with memoryview(value) as view:
        size, layout, contiguous = view.nbytes, view.format, view.c_contiguous
    if size != len(saved):
        _resize(value, saved)
    elif contiguous:
        ctypes.memmove((ctypes.c_char * size).from_buffer(value), saved, size)
    else:
        with memoryview(value) as view, memoryview(saved) as kept:
            view[:] = kept.cast(layout)  # type: ignore[call-overload]


def _resize(value: Any, saved: bytes) -> None:
    if isinstance(value, bytearray):
        value[:] = saved
    elif isinstance(value, array.array):
        del value[:]
        value.frombytes(saved)
