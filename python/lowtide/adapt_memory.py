"""How much memory is in use, and how high it rose since it was last asked: one face for the CPU and for CUDA.

On the CPU it is what `lowtide.measure()` counts, plus what the model had before. On CUDA it is what PyTorch's caching
allocator says is allocated.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch.multiprocessing import reductions

from . import _torch

_WeakStorage: Any = reductions.StorageWeakRef


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
    """Bytes of PyTorch's allocator since now, and those of `there_before`."""

    def __init__(self, there_before: Iterable[torch.Tensor]) -> None:
        _torch.install_allocator()
        self._before = storage_bytes(there_before)
        self._meter = _torch.Meter()

    def level(self) -> int:  # noqa: D102
        live, arena, _, _ = self._meter.read()
        return self._before + live + arena

    def mark(self) -> tuple[int, int]:  # noqa: D102
        level, peak = self._meter.mark()
        return self._before + level, self._before + peak

    def limit(self, bytes: int | None) -> None:  # noqa: D102
        self._meter.limit(None if bytes is None else bytes - self._before)

    def close(self) -> None:  # noqa: D102
        self._meter.close()


class CudaMemory(Memory):
    """What PyTorch has allocated on a GPU. The whole process counts, and `limit` leaves the device as it is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def level(self) -> int:  # noqa: D102
        return int(torch.cuda.memory_allocated(self._device))

    def mark(self) -> tuple[int, int]:  # noqa: D102
        level = self.level()
        peak = int(torch.cuda.max_memory_allocated(self._device))
        torch.cuda.reset_peak_memory_stats(self._device)
        return level, peak

    def limit(self, bytes: int | None) -> None:  # noqa: D102
        pass

    def close(self) -> None:  # noqa: D102
        pass


class Watched:
    """Storages that are looked after without being held. Each counts once, whatever tensors show it."""

    def __init__(self) -> None:
        # A weak reference keeps the address from being given to another storage.
        self._storages: dict[int, tuple[Any, int]] = {}

    def watch(self, tensor: torch.Tensor) -> None:
        """Looks after the storage behind the tensor too."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = (_WeakStorage(storage), storage.nbytes())

    def leave_out(self, tensor: torch.Tensor) -> None:
        """Looks no longer after the storage behind the tensor."""
        self._storages.pop(tensor.untyped_storage()._cdata, None)

    def total_bytes(self) -> int:
        """Of all of them, alive or not."""
        return sum(size for _, size in self._storages.values())

    def alive_bytes(self) -> int:
        """Of those that somebody holds."""
        return sum(size for storage, size in self._storages.values() if not storage.expired())


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages behind the tensors, each counted once."""
    return sum({storage._cdata: storage.nbytes() for storage in (t.untyped_storage() for t in tensors)}.values())
