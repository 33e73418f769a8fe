"""What a tensor holds now, for a run to come: kept without a copy until somebody writes to it.

PyTorch can share memory between tensors that are to be independent: whoever writes first gets a copy of its own
(`torch._lazy_clone`). So keeping the content of a tensor takes no bytes, and all writes are noticed: in place, through
`.data`, through views. Reading takes none either, except by operators that ask for memory that they could write to.

    content = Content(x, share=True)
    x += 1                                      # x moves to memory of its own
    content.moved(), content.was_written()      # True, True
    content.fresh()                             # as x was
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .._base.same_bits import same_bits
from .memory import storages_of, weak_storage

_lazy_clone: Any = torch._lazy_clone
_C: Any = torch._C
_address: Any = _C._data_address

_KINDS = (torch.Tensor, nn.Parameter)
_DEVICES = ("cpu", "cuda")
_SMALL = 1 << 12  # bytes

# Memory that tensors have moved away from while arrays of NumPy may still show it: kept as long as those tensors.
_left_behind: list[tuple[Any, torch.Tensor]] = []


class Content:
    """The content of a tensor as it is now.

    With `share` it is kept whatever happens to the tensor. Where memory cannot be shared it is copied, if it is small
    or with `copy`. Otherwise it is lost once somebody writes to the tensor.
    """

    __slots__ = ("_kept", "_leaf", "_marks", "_requires_grad", "_shared", "_shown", "_version")

    def __init__(self, tensor: torch.Tensor, *, share: bool = True, copy: bool = False) -> None:
        self._shown = tensor.detach()  # leads to no graph, and counts the same changes
        self._version = version_of(tensor)
        self._requires_grad = tensor.requires_grad
        self._leaf = tensor.is_leaf
        self._marks: dict[str, Any] | None = vars(tensor).copy() if vars(tensor) else None
        self._kept = _shared(self._shown) if share else None
        self._shared = self._kept is not None
        if not self._shared and (copy or _is_small(tensor)):
            self._kept = self._shown.clone()

    def __del__(self) -> None:
        if getattr(self, "_shared", False) and self._kept is not None and self.moved():
            let_go_of_memory_left_behind()
            _left_behind.append((weak_storage(storages_of(self._shown)[0]), self._kept))

    @property
    def has_graph(self) -> bool:
        """Whether the tensor was a result."""
        return self._requires_grad and not self._leaf

    @property
    def took_bytes(self) -> bool:
        """Whether there is a copy."""
        return self._kept is not None and (not self._shared or self.moved())

    def moved(self) -> bool:
        """Whether the tensor no longer shares its memory: somebody wrote to it, or asked for memory to write to."""
        return self._shared and _address(self._shown) != _address(self._kept)

    def was_written(self) -> bool:
        """Whether the content of the tensor is another now."""
        if version_of(self._shown) != self._version:
            return True
        return self.moved() and not (_has_its_memory(self._shown) and same_bits(self._shown, self._kept))

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor still has the memory that it had."""
        return address_of(tensor) == address_of(self._shown)

    def is_lost(self) -> bool:
        """Whether somebody wrote to the tensor and nothing was kept."""
        return self._kept is None and self.was_written()

    def fresh(self, made: dict[int, torch.Tensor] | None = None) -> torch.Tensor:
        """A tensor of this content that may be written to, and with as much of a graph as there was.

        If another one was made for the same memory, it is a view of that.
        """
        if not self._shared or self.has_graph or made is None:
            return self._made()
        memory = self._shown.untyped_storage()._cdata
        if memory not in made:
            made[memory] = self._made()
            return made[memory]
        shown, storage = self._shown, made[memory].untyped_storage()
        view = torch.empty(0, dtype=shown.dtype, device=shown.device)
        view.set_(storage, shown.storage_offset(), shown.shape, shown.stride())
        return view.requires_grad_(self._requires_grad)

    def _made(self) -> torch.Tensor:
        source = self._shown if self._kept is None else self._kept
        if not self._shared:
            result = source.detach() if self._kept is None and not self.was_written() else source.clone()
            result.requires_grad_(self._requires_grad)
        elif self._requires_grad and not self._leaf:
            with torch.enable_grad():
                result = _lazy_clone(source.detach().requires_grad_())
        else:
            with torch.no_grad():
                result = _lazy_clone(source).requires_grad_(self._requires_grad)
        if self._marks is not None:
            vars(result).update(self._marks)
        return result


def let_go_of_memory_left_behind() -> None:
    """Of tensors that are gone."""
    _left_behind[:] = [(storage, kept) for storage, kept in _left_behind if not storage.expired()]


def version_of(tensor: torch.Tensor) -> int:
    """Counts changes in place; always the same for tensors that do not count them."""
    return 0 if tensor.is_inference() else tensor._version


def address_of(tensor: torch.Tensor) -> int:
    """Of its first element, for tensors that have memory: another one if somebody has given it other memory."""
    return _address(tensor) if type(tensor) in _KINDS and tensor.layout is torch.strided else 0


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() * tensor.element_size() <= _SMALL


def _shared(tensor: torch.Tensor) -> torch.Tensor | None:
    """Another tensor on the same memory until somebody writes to it; None if there can be none."""
    if type(tensor) not in _KINDS or tensor.layout is not torch.strided or tensor.device.type not in _DEVICES:
        return None
    if tensor.is_quantized or tensor.is_conj() or tensor.is_neg() or tensor.is_inference():
        return None
    if not tensor.untyped_storage().resizable():  # memory that NumPy shows too
        return None
    try:
        with torch.no_grad():
            shared: torch.Tensor = _lazy_clone(tensor)
        return shared
    except RuntimeError:  # memory that other processes have too
        return None


def _has_its_memory(tensor: torch.Tensor) -> bool:
    """Whether nobody has made its storage smaller."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    needed = (tensor.storage_offset() + last + 1) * tensor.element_size()
    return tensor.numel() == 0 or needed <= tensor.untyped_storage().nbytes()
