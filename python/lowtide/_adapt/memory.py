"""How much memory is in use, and how high it rose since it was last asked: one face for the CPU and for CUDA.

On the CPU it is what `lowtide.measure()` counts, plus what the model had before and still has. On CUDA it is what
PyTorch's caching allocator says is allocated.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.multiprocessing import reductions

from .. import _torch

weak_storage: Any = reductions.StorageWeakRef
_is_gone: Any = torch.UntypedStorage._expired

_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_BY_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


class Memory(Protocol):
    """Bytes in use on one device."""

    def level(self) -> int:
        """Bytes in use now."""

    def mark(self) -> tuple[int, int]:
        """The level, and the highest since the last mark."""

    def limit(self, bytes: int | None) -> None:
        """From now on a request beyond this level raises torch.OutOfMemoryError, if the device can do so."""

    def close(self) -> None:
        """Counts no longer."""


class CpuMemory(Memory):
    """Bytes of PyTorch's allocator since now, and those of `there_before` that have not gone away."""

    def __init__(self, there_before: Iterable[torch.Tensor]) -> None:
        _torch.install_allocator()
        self._before = Watched()
        for tensor in there_before:
            self._before.watch(tensor)
        self._still_there = self._at_mark = self._before.alive_bytes()
        self._limit: int | None = None
        self._meter = _torch.Meter()

    def level(self) -> int:
        live, arena, _, _ = self._meter.read()
        return self._left_of_before() + live + arena

    def mark(self) -> tuple[int, int]:
        level, peak = self._meter.mark()
        # What went away since the last mark may have been there at the peak.
        before, self._at_mark = self._at_mark, self._left_of_before()
        return self._at_mark + level, before + peak

    def limit(self, bytes: int | None) -> None:
        self._limit = bytes
        self._meter.limit(None if bytes is None else bytes - self._left_of_before())

    def close(self) -> None:
        self._meter.close()

    def _left_of_before(self) -> int:
        left = self._before.alive_bytes()
        if left != self._still_there:
            self._still_there = left
            self._before.forget_the_gone()
            if self._limit is not None:
                self._meter.limit(self._limit - left)
        return left


class CudaMemory(Memory):
    """What PyTorch has allocated on a GPU. The whole process counts, and `limit` leaves the device as it is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def level(self) -> int:
        return int(torch.cuda.memory_allocated(self._device))

    def mark(self) -> tuple[int, int]:
        level = self.level()
        peak = int(torch.cuda.max_memory_allocated(self._device))
        torch.cuda.reset_peak_memory_stats(self._device)
        return level, peak

    def limit(self, bytes: int | None) -> None:
        pass

    def close(self) -> None:
        pass


class Watched:
    """Storages that are looked after without being held. Each counts once, whatever tensors show it."""

    def __init__(self) -> None:
        # A weak reference keeps the address from being given to another storage.
        self._storages: dict[int, tuple[Any, int]] = {}

    def watch(self, tensor: torch.Tensor, known: Container[int] = ()) -> None:
        """Looks after the storages behind the tensor too, except for those that are known."""
        for storage in storages_of(tensor):
            address = storage._cdata
            if address not in known and address not in self._storages:
                self._storages[address] = (weak_storage(storage), storage.nbytes())

    def leave_out(self, tensor: torch.Tensor) -> None:
        """Looks no longer after the storages behind the tensor."""
        for storage in storages_of(tensor):
            self._storages.pop(storage._cdata, None)

    def forget_the_gone(self) -> None:
        """Looks no longer after those that nobody holds."""
        self._storages = {address: one for address, one in self._storages.items() if not _is_gone(one[0].cdata)}

    def total_bytes(self) -> int:
        """Of all of them, alive or not."""
        return sum(size for _, size in self._storages.values())

    def alive_bytes(self) -> int:
        """Of those that somebody holds."""
        return sum([size for storage, size in self._storages.values() if not _is_gone(storage.cdata)])


def storages_of(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    """The storages behind a tensor: one, or those of the tensors that a sparse or a nested one is made of, or none."""
    if tensor.layout is torch.strided and not hasattr(type(tensor), "__tensor_flatten__"):
        return [] if tensor.is_meta else [tensor.untyped_storage()]
    return [storage for part in _parts(tensor) for storage in storages_of(part)]


def _parts(tensor: Any) -> Iterator[torch.Tensor]:
    if hasattr(type(tensor), "__tensor_flatten__"):
        parts = [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        yield from (part for part in parts if isinstance(part, torch.Tensor))
    elif tensor.layout is torch.sparse_coo:
        yield from (tensor._indices(), tensor._values())
    elif tensor.layout in _BY_ROWS:
        yield from (tensor.crow_indices(), tensor.col_indices(), tensor.detach().values())
    elif tensor.layout in _BY_COLUMNS:
        yield from (tensor.ccol_indices(), tensor.row_indices(), tensor.detach().values())


def addresses_of(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Of the storages behind the tensors."""
    return {storage._cdata for tensor in tensors for storage in storages_of(tensor)}


def storage_bytes(tensors: Iterable[torch.Tensor], known: Container[int] = ()) -> int:
    """Bytes of the storages behind the tensors that are not known, each counted once."""
    sizes = {storage._cdata: storage.nbytes() for tensor in tensors for storage in storages_of(tensor)}
    return sum(size for address, size in sizes.items() if address not in known)
