"""Marks and limits of the meters of allocator bytes."""

import pytest
import torch

from lowtide import _torch
from lowtide._adapt.memory import CudaMemory


@pytest.fixture
def meter():
    _torch.install_allocator()
    opened = _torch.Meter()
    yield opened
    opened.close()


def test_a_mark_begins_a_new_peak(meter: _torch.Meter) -> None:
    a = torch.empty(1000, dtype=torch.uint8)
    b = torch.empty(500, dtype=torch.uint8)
    del b
    assert meter.mark() == (1000, 1500)
    assert meter.mark() == (1000, 1000)
    c = torch.empty(10, dtype=torch.uint8)
    assert meter.mark() == (1010, 1010)
    del a, c
    assert meter.mark() == (0, 1010)


def test_a_limit_is_a_device_that_is_full(meter: _torch.Meter) -> None:
    kept = torch.empty(600, dtype=torch.uint8)
    meter.limit(1000)
    fits = torch.empty(400, dtype=torch.uint8)
    with pytest.raises(torch.OutOfMemoryError, match="1 bytes more than the 1000 that are there"):
        torch.empty(1, dtype=torch.uint8)
    assert meter.mark() == (1000, 1000)  # what was refused is not counted
    del fits
    torch.empty(400, dtype=torch.uint8)
    meter.limit(None)
    torch.empty(4000, dtype=torch.uint8)
    meter.limit(700)
    meter.close()
    torch.empty(4000, dtype=torch.uint8)
    assert kept.numel() == 600


def test_marks_on_a_gpu_are_those_of_its_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none here: what PyTorch would say is given."""
    asked: list[str] = []
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 700)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 900)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: asked.append(str(device)))
    memory = CudaMemory(torch.device("cuda:1"))
    assert memory.level() == 700 and not asked
    assert memory.mark() == (700, 900) and asked == ["cuda:1"]
