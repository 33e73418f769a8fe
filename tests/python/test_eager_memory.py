"""PyTorch's allocator, simulated, as Python sees it; its rules are tested in tests/cpp/caching_allocator_test.cc."""

import pytest
import torch
from torch import nn

import lowtide
from bench.lib.models import plain_step
from lowtide._core import CachingAllocator, GraphBuilder, run_eager
from lowtide.errors import LimitError

MIB = 2**20


def test_requests_and_figures() -> None:
    allocator = CachingAllocator(capacity=50 * MIB)
    first, second = allocator.allocate(9 * MIB), allocator.allocate(3 * MIB)
    assert (allocator.block(first), allocator.block(second)) == ((0, 0, 9 * MIB), (0, 9 * MIB, 3 * MIB))
    allocator.free(first)
    assert allocator.block(first) is None
    assert (allocator.live_bytes, allocator.allocated_bytes, allocator.reserved_bytes) == (3 * MIB, 3 * MIB, 20 * MIB)
    assert allocator.peak_live_bytes == allocator.peak_allocated_bytes == 12 * MIB
    assert allocator.peak_reserved_bytes == 20 * MIB
    assert allocator.fragmentation == pytest.approx(1 - 12 / 20)
    with pytest.raises(LimitError, match=r"E404: out of memory: tried to allocate 40\.00 MiB"):
        allocator.allocate(40 * MIB, stream=3)
    allocator.free(second)
    allocator.empty_cache()
    counts = (allocator.segments, allocator.device_allocs, allocator.device_frees, allocator.retries, allocator.ooms)
    assert counts == (0, 1, 1, 1, 1)


def test_a_step_that_fits_or_not() -> None:
    builder = GraphBuilder()
    weight = builder.buffer(30 * MIB, resident=True, initial=True, role="parameter", name="w")
    made = builder.buffer(15 * MIB, resident=False, initial=False, role="activation", name="h")
    builder.op("forward", [builder.value(weight, "", [])], [made])
    graph = builder.build()
    eager = run_eager(graph, "expandable_segments:True", 60 * MIB)
    assert eager.fits and eager.stopped_at is None and eager.out_of_memory is None
    assert (eager.resident_bytes, eager.peak_live_bytes) == (30 * MIB, 45 * MIB)
    assert eager.peak_reserved_bytes == 60 * MIB  # three pages of 20
    full = run_eager(graph, capacity=40 * MIB)
    assert not full.fits and full.stopped_at == 0
    assert full.out_of_memory == {
        "requested_bytes": 15 * MIB,
        "tried_bytes": 16 * MIB,
        "capacity_bytes": 40 * MIB,
        "free_bytes": 10 * MIB,
        "allocated_bytes": 30 * MIB,
        "reserved_bytes": 30 * MIB,
    }
    assert run_eager(graph, capacity=MIB).stopped_at is None


def test_a_simulated_step_holds_what_a_real_one_does() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.Adam(model.parameters())
    batch = {"x": torch.randn(512, 256), "y": torch.randint(10, (512,))}
    step = plain_step(model, optimizer)
    eager = run_eager(lowtide.capture(step, model=model, optimizer=optimizer, example=(batch,)))
    step(batch)
    optimizer.zero_grad()
    with lowtide.measure() as used:
        step(batch)
    simulated = eager.peak_live_bytes - eager.resident_bytes
    assert simulated <= used.peak_bytes <= 1.02 * simulated, "operators' own workspaces are not in the graph"
