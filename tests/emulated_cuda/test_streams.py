"""Late mode catches what a GPU does wrong now and then: each fault is caught, and the right program passes."""

import threading

import emulated_cuda
import pytest
import torch

N = 1 << 18


def sides():
    return torch.cuda.current_stream(), torch.cuda.Stream()


def finish(*streams):
    """Waits for the streams in this order, or for the whole device if there are none."""
    for stream in streams:
        stream.synchronize()
    torch.cuda.synchronize()


def computed_on_another_stream(wait, together=False):
    main, side = sides()
    a = torch.rand(N)
    x, y = a.cuda(), torch.empty(N, device="cuda")
    torch.cuda.synchronize()
    x.mul_(2)
    if wait:
        side.wait_stream(main)
    with torch.cuda.stream(side):
        torch.add(x, 1, out=y)
    finish(*([] if together else [side]))
    return torch.equal(y.cpu(), a * 2 + 1)


def through_an_event(wait):
    main, side = sides()
    a = torch.rand(N)
    x, y = a.cuda(), torch.empty(N, device="cuda")
    event = torch.cuda.Event()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.mul_(2)
        event.record()
    if wait:
        main.wait_event(event)
    torch.add(x, 1, out=y)
    return torch.equal(y.cpu(), a * 2 + 1)


def freed_while_another_stream_reads(record, together=False):
    main, side = sides()
    a = torch.rand(N)
    x, y = a.cuda(), torch.empty(N, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        torch.add(x, 1, out=y)
    if record:
        x.record_stream(side)
    del x
    finish(*([] if together else [main, side]))
    return torch.equal(y.cpu(), a + 1)


def reused_across_streams(wait):
    """One arena, two tensors at one place: the second is written on another stream than the first is read on."""
    main, side = sides()
    a = torch.rand(N)
    arena, y = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    arena.copy_(a)
    torch.cuda.synchronize()
    torch.add(arena, 1, out=y)
    if wait:
        side.wait_stream(main)
    with torch.cuda.stream(side):
        arena.fill_(-5)
    side.synchronize()
    return torch.equal(y.cpu(), a + 1)


def pinned_source_changed(wait):
    a = torch.rand(N)
    source = a.clone().pin_memory()
    x = torch.empty(N, device="cuda")
    x.copy_(source, non_blocking=True)
    if wait:
        torch.cuda.current_stream().synchronize()
    source.zero_()
    return torch.equal(x.cpu(), a)


def pinned_target_read(wait):
    a = torch.rand(N)
    x, target = a.cuda(), torch.zeros(N, pin_memory=True)
    target.copy_(x, non_blocking=True)
    if wait:
        torch.cuda.current_stream().synchronize()
    return torch.equal(target.clone(), a)


def swapped(wait_for_store, wait_for_load):
    """A tensor goes to the host on a stream of its own, its place is used meanwhile, and it comes back to another."""
    main, side = sides()
    a = torch.rand(N)
    arena, kept = torch.empty(2 * N, device="cuda"), torch.empty(N, pin_memory=True)
    x, place = arena[:N].copy_(a), arena[N:].fill_(0)
    torch.cuda.synchronize()
    x.mul_(2)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        kept.copy_(x, non_blocking=True)
    if wait_for_store:
        main.wait_stream(side)
    x.fill_(-5)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        place.copy_(kept, non_blocking=True)
    if wait_for_load:
        main.wait_stream(side)
    return torch.equal((place + 1).cpu(), a * 2 + 1)


def swapped_out(wait):
    return swapped(wait_for_store=wait, wait_for_load=True)


def swapped_in(wait):
    return swapped(wait_for_store=True, wait_for_load=wait)


PROGRAMS = [
    computed_on_another_stream, through_an_event, freed_while_another_stream_reads, reused_across_streams,
    pinned_source_changed, pinned_target_read, swapped_out, swapped_in,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_right_program_passes(program, every_order):
    assert program(True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_fault_is_caught(program, late):
    assert not program(False)


def test_the_order_decides_what_a_wait_for_all_catches():
    """One wait for the whole device at the end hides a fault from some orders, which CUDA may take."""
    for program, order in ((computed_on_another_stream, 1), (freed_while_another_stream_reads, 2)):
        with emulated_cuda.declared(late=order):
            assert not program(False, together=True) and program(True, together=True)
        with emulated_cuda.declared(late=3 - order):
            assert program(False, together=True)


def test_a_pageable_source_may_change_at_once(every_order):
    a = torch.rand(N)
    source = a.clone()
    x = source.to("cuda", non_blocking=True)
    source.zero_()
    assert torch.equal(x.cpu(), a)


def test_memory_comes_back_after_record_stream(late, bytes_stay):
    """The allocator polls its events. Memory that a side stream used is free again once that has run."""
    torch.cuda.empty_cache()
    main, side = sides()
    x = torch.rand(N, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        x + 1
    x.record_stream(side)
    address = x.data_ptr()
    del x
    other = torch.empty(N, device="cuda")
    assert other.data_ptr() != address
    torch.cuda.synchronize()
    assert torch.empty(N, device="cuda").data_ptr() == address


def test_queries(late):
    event = torch.cuda.Event()
    x = torch.rand(N, device="cuda") * 2
    event.record()
    assert not event.query()
    event.synchronize()
    assert event.query() and torch.cuda.current_stream().query()
    event.record()
    while not event.query():  # ends
        pass
    assert x.is_cuda


def test_threads_on_streams_of_their_own(every_order):
    wrong = []

    def work(seed):
        a = torch.rand(40, 40, generator=torch.Generator().manual_seed(seed))
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(30):
                x = a.pin_memory().to("cuda", non_blocking=True).requires_grad_()
                (x @ x).sum().backward()
                if not torch.allclose(x.grad.cpu(), a.sum(1) + a.sum(0)[:, None]):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_who_waits_for_an_event_waits_for_its_last_record(every_order):
    """Two streams take turns with one event, which the next turn records again before anything is performed."""
    streams, event = [torch.cuda.Stream(), torch.cuda.Stream()], torch.cuda.Event()
    shared = torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    expected = torch.zeros(1000)
    for turn in range(12):
        with torch.cuda.stream(streams[turn % 2]):
            event.wait()
            shared.mul_(2).add_(turn)
            event.record()
        expected.mul_(2).add_(turn)
    torch.cuda.synchronize()
    assert torch.equal(shared.cpu(), expected)
