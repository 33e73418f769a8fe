"""The yardstick: allocator bytes of any PyTorch code on one device, Lowtide's and eager's alike."""

from __future__ import annotations

from types import TracebackType

import torch

from . import _core, _torch
from ._base.devices import numbered, why_not_planned
from .errors import LowtideError


class Measure:
    """Counts what is allocated from entry to exit; see `lowtide.measure`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._meter: _torch.Meter | None = None
        self._last = (0, 0, 0, 0)

    def __enter__(self) -> Measure:
        _torch.install_allocator()
        self._meter = _torch.Meter(self.device)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._meter is not None:
            self._last = self._meter.read()
            self._meter.close()
            self._meter = None

    def __str__(self) -> str:
        live, arena, peak, allocations = self._read()
        size = _core.format_bytes
        return (
            f"{self.device}: {size(peak)} at most, {size(live + arena)} now, {size(arena)} of it the arena; "
            f"{allocations} allocations"
        )

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


def measure(device: torch.device | str = "cpu") -> Measure:
    """A context manager that counts the allocator bytes of the PyTorch code under it.

    Bytes asked of PyTorch's allocator for one device since entry, not the process's resident set, nor what a caching
    allocator reserves. Enter it before the model is built to count everything.

        with lowtide.measure() as used:
            loss = step(batch)
        print(used.peak_bytes)

    `lowtide.measure("cuda")` counts those of the current GPU, and leaves PyTorch's own statistics as they are.
    """
    where = numbered(torch.device(device))
    if refused := why_not_planned(where):
        raise LowtideError(f"memory on {where} cannot be measured: {refused}")
    return Measure(where)
