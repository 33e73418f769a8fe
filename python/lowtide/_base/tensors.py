"""The tensors in what a model is given or returns, and their extents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

_SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.Size})
_CLOSED = (nn.Module, type, FunctionType, MethodType, ModuleType)  # never looked into
_DEEPEST = 4  # objects within each other that are looked into
_LONGEST = 1000  # members of a list or a dictionary in an object; what has more is a vocabulary or a dataset


def tensors_in(value: object) -> list[torch.Tensor]:
    """The tensors in arguments or results, in order: in lists, dictionaries and attributes of objects."""
    found: list[torch.Tensor] = []
    _collect(value, found, {}, 0)
    return found


def _collect(value: object, found: list[torch.Tensor], seen: dict[int, object], depth: int) -> None:
    """Appends the tensors in a value; `seen` holds what was looked into, so that no address is used twice."""
    if isinstance(value, torch.Tensor):
        found.append(value)
        return
    if id(value) in seen:
        return
    seen[id(value)] = value
    members: Iterable[object]
    if isinstance(value, (dict, list, tuple, Mapping)):
        if depth > 0 and len(value) > _LONGEST:
            return
        members = value.values() if isinstance(value, (dict, Mapping)) else value
    elif depth < _DEEPEST and not isinstance(value, _CLOSED):
        members = _attributes(value)
        depth += 1
    else:
        return
    for member in members:
        if type(member) not in _PLAIN:
            _collect(member, found, seen, depth)


def _attributes(value: object) -> list[object]:
    """What an object has: in its dictionary, and in the slots that its classes name."""
    found = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        found += [getattr(value, name, None) for name in ((slots,) if isinstance(slots, str) else slots)]
    return found


def extents_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Its extents; with the number of elements of a sparse one; of a nested one those of its values and the longest."""
    if tensor.is_nested:
        return _extents_of_nested(tensor)
    shape = tuple(tensor.shape)
    return (*shape, tensor._nnz()) if tensor.layout in _SPARSE else shape


def _extents_of_nested(tensor: Any) -> tuple[int, ...]:
    if tensor.layout is torch.jagged:
        return (int(tensor.size(0)), *tensor._values.shape, int(tensor._get_max_seqlen()))
    sizes = tensor._nested_tensor_size()
    return (len(sizes), tensor.numel(), *(max(column) for column in sizes.T.tolist() if column))
