"""The yardstick: allocator bytes of any PyTorch code on CPU, Lowtide's and eager's alike."""

from __future__ import annotations

from types import TracebackType

import torch  # noqa: F401 - brings the libraries that the extension needs

from . import _torch


class Measure:
    """Counts what is allocated from entry to exit; see `lowtide.measure`."""

    def __init__(self) -> None:
        self._meter: _torch.Meter | None = None
        self._last = (0, 0, 0, 0)

    def __enter__(self) -> Measure:
        _torch.install_allocator()
        self._meter = _torch.Meter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._meter is not None:
            self._last = self._meter.read()
            self._meter.close()
            self._meter = None

    def _read(self) -> tuple[int, int, int, int]:
        return self._last if self._meter is None else self._meter.read()

    @property
    def current_bytes(self) -> int:
        """Bytes allocated since entry and still there; of the arena, all up to the highest address served."""
        live, arena, _, _ = self._read()
        return live + arena

    @property
    def peak_bytes(self) -> int:
        """The highest `current_bytes` has been."""
        return self._read()[2]

    @property
    def arena_bytes(self) -> int:
        """The part of `current_bytes` that is the arena."""
        return self._read()[1]

    @property
    def allocations(self) -> int:
        """How many ordinary allocations were made."""
        return self._read()[3]


def measure() -> Measure:
    """A context manager that counts the allocator bytes of the PyTorch code under it.

    What `torch.cuda.max_memory_allocated` gives on a GPU, for CPU: bytes asked of PyTorch's allocator since entry, not
    the process's resident set. Enter it before the model is built to count everything.

        with lowtide.measure() as used:
            loss = step(batch)
        print(used.peak_bytes)
    """
    return Measure()
