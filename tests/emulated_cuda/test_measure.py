"""`lowtide.measure` on emulated CUDA counts what PyTorch's caching allocator was asked for, to the byte."""

import emulated_cuda
import models
import pytest
import torch

import lowtide


def requested(which):
    return torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]


@pytest.mark.parametrize("make", [models.mlp, models.convnet, models.bert, models.gpt2], ids=lambda make: make.__name__)
def test_a_training_takes_what_the_allocator_says(make, bytes_stay):
    torch.cuda.reset_peak_memory_stats()
    there = requested("current")
    with lowtide.measure("cuda") as used:
        left = models.train(make, "cuda", dropout=0.1)
        assert used.current_bytes == requested("current") - there
        assert used.peak_bytes == requested("peak") - there
    assert left and used.arena_bytes == 0
    assert used.device == torch.device("cuda", 0)
    assert str(used).startswith("cuda:0: ") and f"{used.allocations} allocations" in str(used)


def test_what_was_there_before_does_not_count(bytes_stay):
    before = torch.zeros(1000, device="cuda")
    with lowtide.measure("cuda") as used:
        after = torch.zeros(500, device="cuda")
        del before
        assert used.current_bytes == after.nbytes
    assert used.peak_bytes == after.nbytes and used.allocations == 1


def test_each_device_has_its_own_bytes(bytes_stay):
    with lowtide.measure() as on_cpu, lowtide.measure("cuda:0") as on_cuda:
        here, there = torch.zeros(100), torch.zeros(300, device="cuda")
    assert (on_cpu.peak_bytes, on_cuda.peak_bytes) == (here.nbytes, there.nbytes)


def test_the_arena_of_a_planned_step_counts(bytes_stay):
    torch.manual_seed(0)
    model, batch, loss_of = models.mlp()
    model.cuda()
    batch = [tensor.cuda() for tensor in batch]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train_step(*given):
        optimizer.zero_grad()
        loss = loss_of(model, *given)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = lowtide.compile(train_step, model=model, optimizer=optimizer)
    step(*batch)
    with lowtide.measure("cuda") as used:
        step(*batch)
    stats = step.stats()
    assert 0 < used.arena_bytes <= stats["arena_bytes"]
    assert used.peak_bytes <= stats["arena_bytes"] + stats["gradient_bytes"] + 64 * 1024
    step.close()


def test_what_another_stream_reads_is_kept_for_it():
    """A block that is counted is known to PyTorch's allocator when it is recorded for a stream."""
    with emulated_cuda.declared(late=2), lowtide.measure("cuda"):
        side = torch.cuda.Stream()
        read = torch.full((1 << 18,), 3.0, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            made = read * 2
        read.record_stream(side)
        del read
        torch.zeros(1 << 18, device="cuda")
        torch.cuda.current_stream().synchronize()
        side.synchronize()
        assert bool((made == 6).all())


def test_other_devices_are_refused_by_name():
    with pytest.raises(lowtide.LowtideError, match="memory on meta cannot be measured: only cpu and cuda"):
        lowtide.measure("meta")
