"""Memory that Python reads past PyTorch: arrays of NumPy, buffers of Python, values of ctypes, torch's own storages."""

from __future__ import annotations

import array
import ctypes
import mmap
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch

from .memory import is_array
from .sharing import reach

_Storages = (torch.UntypedStorage, torch.TypedStorage)
_Pointer: Any = ctypes.POINTER(ctypes.c_int).__mro__[1]
_Values: tuple[Any, ...] = (ctypes.Array, ctypes.Structure, ctypes.Union, ctypes.c_int.__mro__[1])
_Buffers = (memoryview, bytearray, array.array, mmap.mmap)
Range = tuple[int, int]  # where it begins and ends


def is_exposed(value: Any) -> bool:
    """Whether Python can read memory by it that a tensor may show as well."""
    return isinstance(value, (*_Buffers, *_Storages, *_Values, _Pointer)) or is_array(value)


def usual_classes() -> frozenset[type]:
    """The classes of most such values, to be told at a glance."""
    numpy = sys.modules.get("numpy")
    return frozenset({*_Buffers, *_Storages} | ({numpy.ndarray} if numpy is not None else set()))


def range_of(value: Any) -> Range | None:
    """The memory of an exposed value, if it can be told."""
    with suppress(AttributeError, TypeError, ValueError, BufferError, RuntimeError, NotImplementedError):
        if isinstance(value, torch.TypedStorage):
            value = value._untyped_storage
        if isinstance(value, torch.UntypedStorage):
            return value.data_ptr(), value.data_ptr() + value.nbytes()
        if isinstance(value, _Pointer):
            value = value.contents
        if isinstance(value, _Values):
            return _of_size(ctypes.addressof(value), ctypes.sizeof(value))
        if is_array(value):
            return _of_array(value)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            return _of_array(numpy.asarray(value))
        with memoryview(value) as view:
            return _of_size(ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes)
    return None


def _of_size(begin: int, size: int) -> Range:
    return begin, begin + size


def _of_array(values: Any) -> Range:
    begin = end = values.__array_interface__["data"][0]
    if values.size == 0:
        return begin, begin
    for size, stride in zip(values.shape, values.strides, strict=True):
        begin += min(0, (size - 1) * stride)
        end += max(0, (size - 1) * stride)
    return begin, end + values.itemsize


def first_shared(memory: Range, tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """The name of the first of these tensors that shows part of the memory; "" if none does."""
    for name, tensor in tensors:
        if tensor.layout is not torch.strided or tensor.is_nested:
            continue
        with suppress(RuntimeError, NotImplementedError):  # one without memory
            begin, end = reach(tensor)
            if begin < memory[1] and memory[0] < end:
                return name
    return ""
