"""PyTorch's real caching allocator does what the simulated one says, to the byte, request by request."""

import random

import models
import pytest
import torch

from lowtide import _core

SETTINGS = ["expandable_segments:False", "expandable_segments:True"]
EVENTS = 300


@pytest.fixture(params=SETTINGS)
def settings(request, bytes_stay):
    torch.cuda.synchronize()
    torch._C._accelerator_setAllocatorSettings(request.param)
    yield request.param
    torch._C._accelerator_setAllocatorSettings(SETTINGS[0])


def unused_stream():
    """Streams come from pools. On those of the usual priority other tests have left workspaces of cuBLAS."""
    return torch.cuda.Stream(priority=-1)


def figures(base=(0, 0)):
    """Bytes allocated and reserved, beyond those."""
    return torch.cuda.memory_allocated() - base[0], torch.cuda.memory_reserved() - base[1]


@pytest.mark.parametrize("seed", range(21))
def test_random_requests(seed, settings):
    """On a stream of its own a trace has pools of its own."""
    chance = random.Random(seed)
    simulated = _core.CachingAllocator(settings)
    torch.cuda.empty_cache()
    base, held = figures(), []
    with torch.cuda.stream(unused_stream()):
        for event in range(EVENTS):
            if held and chance.random() < 0.48:
                address, request = held.pop(chance.randrange(len(held)))
                torch.cuda.caching_allocator_delete(address)
                simulated.free(request)
            else:
                size = int(10 ** chance.uniform(0, 7.6))
                held.append((torch.cuda.caching_allocator_alloc(size), simulated.allocate(size)))
            assert figures(base) == (simulated.allocated_bytes, simulated.reserved_bytes), event
        for address, _ in held:
            torch.cuda.caching_allocator_delete(address)
    torch.cuda.empty_cache()
    assert figures(base) == (0, 0)


@pytest.mark.parametrize("make", [models.mlp, models.convnet, models.bert, models.gpt2], ids=lambda make: make.__name__)
def test_requests_of_a_training_run(make, settings):
    """Its trace as PyTorch itself writes it down, played again."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    stream = unused_stream()
    base = figures()
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=1_000_000)
    torch.cuda.reset_peak_memory_stats()
    try:
        with torch.cuda.stream(stream):
            models.train(make, "cuda", dropout=0.1)
            most = torch.cuda.max_memory_allocated() - base[0], torch.cuda.max_memory_reserved() - base[1]
            trace = torch.cuda.memory._snapshot()["device_traces"][0]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    simulated, requests = _core.CachingAllocator(settings), {}
    for entry in trace:
        if entry["action"] == "alloc":
            assert entry["stream"] == stream.cuda_stream
            requests[entry["addr"]] = simulated.allocate(entry["size"])
        elif entry["action"] == "free_completed" and entry["addr"] in requests:
            simulated.free(requests.pop(entry["addr"]))
    assert len(trace) > 200
    assert (simulated.peak_allocated_bytes, simulated.peak_reserved_bytes) == most
