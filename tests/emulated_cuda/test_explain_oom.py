"""`lowtide.explain_oom` on emulated CUDA: who holds a device that is full, by the allocator's own figures."""

import gc
import inspect
import json

import pytest
import torch
from torch import nn

import lowtide

MIB = 1 << 20


@pytest.fixture
def small_device(bytes_stay):
    """This process may have so many bytes more than it has."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]

    def declare(more):
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + more) / total)

    yield declare
    torch.cuda.set_per_process_memory_fraction(1.0)


def evaluate(model, losses):
    while True:
        losses.append(model(torch.randn(2048, 64).cuda()).square().mean())


def test_losses_kept_with_their_graphs(small_device):
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)).cuda()
    model(torch.zeros(1, 64).cuda())  # cuBLAS has its workspace
    small_device(40 * MIB)
    losses, report = [], None
    before = torch.cuda.memory_allocated()
    try:
        evaluate(model, losses)
    except torch.OutOfMemoryError as error:
        assert lowtide.is_out_of_memory(error)
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        report = lowtide.explain_oom()
        assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (allocated, reserved)
    holder = report.holders[0]
    assert holder.name == "losses[*] in evaluate()" and holder.count == len(losses) > 3
    lines, first = inspect.getsourcelines(evaluate)
    assert holder.source == f"{__file__}:{first + 2}" and "losses.append" in lines[2]
    memory = report.device
    assert memory.device == "cuda:0" and memory.total_bytes == torch.cuda.mem_get_info()[1]
    assert (memory.allocated_bytes, memory.reserved_bytes) == (allocated, reserved)
    assert memory.reserved_bytes <= memory.limit_bytes < memory.total_bytes
    assert report.total_bytes + report.unseen_bytes == allocated
    assert "graphs of" in report.advice[0] and "detach()" in report.advice[0]
    assert "device    cuda:0 has 24.00 GiB, " in str(report) and "allocated" in str(report)
    assert json.loads(report.to_json()) == report.to_dict()
    assert holder.bytes > 0.9 * (allocated - before)
    losses.clear()
    gc.collect()
    assert bool(torch.isfinite(model(torch.zeros(1, 64).cuda())).all()), "the script goes on"


def test_fragmentation_is_told(small_device):
    small_device(100 * MIB)
    pieces = [torch.empty(20 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]
    parts = []
    for _ in range(4):
        pieces.pop()
        parts.append(torch.empty(13 * MIB, dtype=torch.uint8, device="cuda"))
    try:
        torch.empty(26 * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        report = lowtide.explain_oom()
    assert report.device.requested_bytes == 26 * MIB
    assert report.device.is_fragmented
    assert report.device.unallocated_bytes == torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    assert any(text.startswith("fragmentation: ") and "26.00 MiB" in text for text in report.advice)
    assert report.holders[0].name.startswith("parts[*] in ")


def test_a_full_device_is_not_fragmented(small_device):
    small_device(50 * MIB)
    held = torch.empty(40 * MIB, dtype=torch.uint8, device="cuda")
    here = torch.empty(80 * MIB, dtype=torch.uint8)
    try:
        torch.empty(4096 * MIB, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        report = lowtide.explain_oom()
    assert not report.device.is_fragmented and not any("fragmentation" in text for text in report.advice)
    assert report.holders[0].name.startswith("held in ") and report.holders[0].bytes == held.nbytes
    assert here.nbytes > held.nbytes, "what the CPU has is not in it"


def test_in_the_middle_of_a_replayed_loop(small_device):
    """The arena is counted, its tensors have their names, and the loop goes on."""
    model, batch, kept = nn.Linear(64, 64).cuda(), torch.ones(32, 64).cuda(), []
    with lowtide.replay() as replay, torch.no_grad():
        for count in range(8):
            replay.settle()
            kept = [model(batch), torch.relu(model(batch))]
            if count == 5:
                try:
                    torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
                except torch.OutOfMemoryError:
                    report = lowtide.explain_oom()
            kept.clear()
            replay.step()
    assert "kept[*] in " in str([holder.name for holder in report.holders])
    assert replay.stats().hits > 0 and torch.equal(model(batch), model(batch))
