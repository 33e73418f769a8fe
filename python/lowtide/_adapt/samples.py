"""Whether the second run of a block saves the same numbers as the first: a few bytes of each saved tensor tell.

This is the last net, for what a block depends on and nobody can watch: a clock, a file, variables of a library. PyTorch
compares the shapes of what both runs saved. Here a few bytes of the content are looked at too; where those differ,
somebody is told, and the backward pass goes on.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Container
from typing import Any

import torch
from torch.utils import checkpoint as torch_checkpoint

_PIECE = 32  # bytes that are looked at: at the beginning, in the middle and at the end

_of_first_runs = threading.local()
_checks: Any = getattr(torch_checkpoint, "_allowed_determinism_checks_to_fns", {})
_address: Any = torch._C._data_address  # type: ignore[attr-defined]


class Sample:
    """What PyTorch compares of a saved tensor, and a few bytes of it."""

    __slots__ = ("_form", "_pieces", "_tell")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._form = (tensor.shape, tensor.dtype, tensor.device)
        self._pieces = _pieces_of(tensor, getattr(_of_first_runs, "without", ()))
        self._tell: Callable[[], object] | None = getattr(_of_first_runs, "tell", None)

    def __eq__(self, other: object) -> bool:
        """Whether the form is the same."""
        if not isinstance(other, Sample) or self._form != other._form:
            return False
        tell = self._tell or other._tell
        if self._pieces and other._pieces and self._pieces != other._pieces and tell is not None:
            tell()
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"shape {tuple(self._form[0])}, {self._form[1]}, {self._form[2]}"


class Sampled:
    """A context for the first run of a block: `tell` is called if what the second run saves differs.

    Tensors at the addresses in `without` may differ.
    """

    def __init__(self, tell: Callable[[], object], without: Container[int], inner: Any) -> None:
        self._tell = tell
        self._without = without
        self._inner = inner
        self._before: dict[str, Any] = {}

    def __enter__(self) -> None:
        self._before = vars(_of_first_runs).copy()
        _of_first_runs.tell = self._tell
        _of_first_runs.without = self._without
        self._inner.__enter__()

    def __exit__(self, *error: object) -> None:
        vars(_of_first_runs).clear()
        vars(_of_first_runs).update(self._before)
        self._inner.__exit__(*error)
        self._inner = None


def determinism_check() -> str:
    """The name by which PyTorch's checkpoint knows this way of comparing."""
    if not _checks:
        return "default"
    return str(_checks.setdefault("lowtide", Sample) and "lowtide")


def _pieces_of(tensor: torch.Tensor, without: Container[int]) -> bytes:
    """Of tensors on the CPU whose elements lie in a row. Bytes are left out: they are the workspaces of operators."""
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter:
        return b""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.dtype is torch.uint8:
        return b""
    size = tensor.numel() * tensor.element_size()
    if size == 0 or not tensor.is_contiguous():
        return b""
    address = _address(tensor)
    if address in without:
        return b""
    if size <= 3 * _PIECE:
        return ctypes.string_at(address, size)
    places = (address, address + size // 2, address + size - _PIECE)
    return b"".join([ctypes.string_at(place, _PIECE) for place in places])
