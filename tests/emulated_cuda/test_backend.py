"""`torch.compile(backend="lowtide")` on emulated CUDA: the numbers of eager on the same device, bit for bit."""

import gc
import threading

import emulated_cuda
import models
import pytest
import torch
from backend_twins import Twins, close_all
from test_compile import Script
from torch import nn

import lowtide
from lowtide import _torch_cuda

ORDERS = (0, 1, 2, 7)  # at once; late: newest first, oldest first, at random


@pytest.fixture(autouse=True)
def _quiet_and_clean(monkeypatch, tmp_path):
    monkeypatch.setenv("LOWTIDE_QUIET", "1")
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    yield
    close_all()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(64, 256), nn.Dropout(dropout), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.last(self.drop(nn.functional.gelu(self.first(x))))


class Deep(nn.Module):
    """Mostly activations, which a plan can make again: one region, or three that are under way at once."""

    def __init__(self, dropout, breaks):
        super().__init__()
        self.blocks, self.breaks = nn.ModuleList([Block(dropout) for _ in range(3)]), breaks

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            if self.breaks:
                torch._dynamo.graph_break()
        return x


def deep(dropout=0.1):
    return Deep(dropout, breaks=False), (torch.randn(512, 64),), lambda model, x: model(x).square().mean()


def broken(dropout=0.1):
    return Deep(dropout, breaks=True), (torch.randn(512, 64),), lambda model, x: model(x).square().mean()


MODELS = [models.mlp, models.convnet, models.bert, models.gpt2, deep, broken]


def in_every_order(do):
    for order in ORDERS:
        with emulated_cuda.declared(late=order):
            do()


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_models_train_as_in_eager(make):
    twins = Twins(lambda: make(dropout=0.1))
    in_every_order(lambda: twins.train(3))
    assert twins.were_planned()


def test_a_budget():
    """Operators run again, and dropout draws the same numbers from the device's generator."""
    twins = Twins(deep, memory_budget=0.6)
    in_every_order(lambda: twins.train(2))
    assert twins.were_planned()
    (planned,) = twins.plans()
    order = planned.plan.order
    assert planned.need <= planned.budget and len(set(order)) < len(order)


def peak_of(do):
    """The most bytes that PyTorch's allocator has handed out while something is done, beyond those before."""
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    do()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("budget", [None, 0.6])
def test_a_step_takes_what_was_predicted(budget, bytes_stay):
    twins = Twins(deep, **({} if budget is None else {"memory_budget": budget}))
    call, optimizer = twins.calls[1], twins.optimizers[1]
    twins.train(3)
    optimizer.zero_grad()
    (planned,) = twins.plans()
    arena = planned.plan.arena_bytes
    assert torch.cuda.memory_allocated() > arena, "it is there between steps"
    scalars = 16 * 1024
    assert peak_of(lambda: twins.step(call, optimizer)) <= planned.need - arena + tangent_of(twins) + scalars


def tangent_of(twins):
    """Of the output, and what it is made of: the caller's own."""
    return twins.batch[0].nbytes * 4  # four at once, where the square is differentiated


def test_a_budget_of_bytes_is_kept_by_all_regions_together(bytes_stay):
    """From the second step on: in the first it is not known yet which of them are under way at once."""
    budget = 5 * 2**20
    twins = Twins(broken, memory_budget=budget)
    call, optimizer = twins.calls[1], twins.optimizers[1]
    twins.step(twins.calls[0], twins.optimizers[0])  # makes workspaces

    def steps():
        with pytest.warns(RuntimeWarning, match="memory_budget is not kept: 3 regions at once"):
            twins.step(call, optimizer)
        for _ in range(3):
            twins.step(call, optimizer)
        assert twins.were_planned()
        optimizer.zero_grad()
        torch.cuda.reset_peak_memory_stats()
        twins.step(call, optimizer)

    state = sum(parameter.nbytes for parameter in twins.models[1].parameters())
    assert peak_of(steps) <= budget + state + tangent_of(twins)


def test_regions_that_find_no_room_run_beside_the_arena_until_it_can_grow(bytes_stay):
    """It moves when it grows, and so cannot while a region has a place there."""
    twins = Twins(broken)
    call = twins.calls[1]
    beside = []
    for _ in range(3):
        loss = twins.loss_of(call, *twins.batch)
        beside.append(sum(program.runtime.annex_bytes for plan in twins.plans() for program in plan.programs))
        loss.backward()
    assert beside[0] > 0 and beside[1:] == [0, 0]


def test_a_whole_step_between_the_passes_of_a_region():
    twins = Twins(deep)
    scripts = [Script(models.mlp), Script(models.mlp)]
    compiled = lowtide.compile(scripts[1].step, model=scripts[1].model, optimizer=scripts[1].optimizer)
    steps = dict(zip(twins.calls, [scripts[0].step, compiled], strict=True))

    def do(call, optimizer):
        loss = twins.loss_of(call, *twins.batch)
        between = steps[call](*[tensor.cuda() for tensor in scripts[0].host])
        loss.backward()
        optimizer.step()
        return [loss, between]

    in_every_order(lambda: twins.both(do))
    assert twins.were_planned() and compiled.stats()["misses"] == 0
    compiled.close()


@pytest.mark.parametrize("budget", [None, 0.6])
@pytest.mark.parametrize("first", [0, 1])
def test_two_forwards_before_one_backward(first, budget):
    """Within a budget the first one comes back to a place that the second one has by then, and moves."""
    twins = Twins(deep, **({} if budget is None else {"memory_budget": budget}))

    def do(call, optimizer):
        optimizer.zero_grad()
        losses = [twins.loss_of(call, *twins.batch), twins.loss_of(call, twins.batch[0] + 1)]
        losses[first].backward()
        losses[1 - first].backward()
        optimizer.step()
        return losses

    in_every_order(lambda: twins.both(do))
    assert twins.were_planned()


def test_backward_twice():
    twins = Twins(deep, memory_budget=0.6)

    def do(call, optimizer):
        loss = twins.loss_of(call, *twins.batch)
        loss.backward(retain_graph=True)
        again = twins.loss_of(call, *twins.batch)
        loss.backward()
        again.backward()
        optimizer.step()
        return [loss]

    in_every_order(lambda: twins.both(do))
    assert twins.were_planned()


@pytest.mark.parametrize("make", [models.mlp, broken], ids=lambda make: make.__name__)
def test_calls_on_other_streams(make):
    """Each step on another stream than the one before, which it waits for."""
    twins = Twins(make)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]

    def do(call, optimizer):
        losses = []
        for stream in streams:
            with torch.cuda.stream(stream):
                losses += twins.step(call, optimizer)
            for other in streams:
                other.wait_stream(stream)
        return losses

    in_every_order(lambda: twins.both(do))
    assert twins.were_planned()


def two_on_two_streams(twins):
    """Forward passes in turn on two streams that do not wait for each other: only the arena is common to both."""
    one, other = torch.cuda.Stream(), torch.cuda.Stream()

    def do(call, optimizer):
        torch.cuda.synchronize()
        found = []
        for turn in range(4):
            with torch.cuda.stream((one, other)[turn % 2]), torch.no_grad():
                found.append(call(twins.batch[0] + turn))
        torch.cuda.synchronize()
        return found

    return do


def test_two_streams_share_the_arena():
    twins = Twins(deep)
    do = two_on_two_streams(twins)
    in_every_order(lambda: twins.both(do))
    assert twins.were_planned()


def test_a_wait_that_is_left_out_is_noticed():
    twins = Twins(deep)
    do = two_on_two_streams(twins)
    twins.both(do)
    _torch_cuda.leave_out_waits(0, True)
    try:
        with emulated_cuda.declared(late=7), pytest.raises(AssertionError):
            twins.both(do)
    finally:
        _torch_cuda.leave_out_waits(0, False)


def gradients_read_on_another_stream(twins):
    """They are let go of at once, and the next step begins, before they are read there."""
    side = torch.cuda.Stream()

    def do(call, optimizer):
        found = []
        for _ in range(3):
            found += twins.step(call, optimizer)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for parameter in call.parameters():
                    found.append(parameter.grad * 2)
                    parameter.grad.record_stream(side)
            optimizer.zero_grad()
        torch.cuda.current_stream().wait_stream(side)
        return found

    return do


def with_gradients_in_the_arena():
    twins = Twins(deep, memory_budget=0.6)
    twins.train(3)
    assert [planned.gradients_in_arena for planned in twins.plans()] == [True]
    return twins


def test_gradients_in_the_arena_are_read_on_another_stream():
    twins = with_gradients_in_the_arena()
    do = gradients_read_on_another_stream(twins)
    in_every_order(lambda: twins.both(do))
    assert twins.were_planned() and all(planned.gradients_in_arena for planned in twins.plans())


def test_a_wait_for_who_reads_gradients_is_noticed_when_left_out():
    twins = with_gradients_in_the_arena()
    do = gradients_read_on_another_stream(twins)
    _torch_cuda.leave_out_waits(0, True)
    try:
        with emulated_cuda.declared(late=7), pytest.raises(AssertionError):
            for _ in range(5):
                twins.both(do)
    finally:
        _torch_cuda.leave_out_waits(0, False)


def test_gradients_that_are_held_while_the_arena_moves():
    twins = with_gradients_in_the_arena()
    held = [parameter.grad for parameter in twins.models[1].parameters()]
    copies = [gradient.cpu() for gradient in held]
    other = Script(models.bert)
    compiled = lowtide.compile(other.step, model=other.model, optimizer=other.optimizer)
    for _ in range(3):
        compiled(*[tensor.cuda() for tensor in other.host])
    twins.train(3)
    assert all(torch.equal(gradient.cpu(), copy) for gradient, copy in zip(held, copies, strict=True))
    assert not any(planned.gradients_in_arena for planned in twins.plans())
    compiled.close()


def test_threads_on_streams_of_their_own():
    """Forward and backward passes of one region on several threads at once."""
    twins = Twins(lambda: deep(0.0))
    inputs = [torch.randn(512, 64, device="cuda") for _ in range(3)]
    streams = [torch.cuda.Stream() for _ in inputs]

    def do(call, _):
        torch.cuda.synchronize()
        found = [None] * len(inputs)

        def work(index):
            with torch.cuda.stream(streams[index]):
                for _ in range(3):
                    given = inputs[index].clone().requires_grad_()
                    twins.loss_of(call, given).backward(inputs=[given])
                torch.cuda.current_stream().synchronize()
                found[index] = given.grad

        threads = [threading.Thread(target=work, args=(index,)) for index in range(len(inputs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    in_every_order(lambda: twins.both(do))
    assert twins.were_planned()


class OnTwoStreams(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other, self.side = nn.Linear(64, 64), nn.Linear(64, 64), torch.cuda.Stream()

    def forward(self, x):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            beside = self.other(x)
        here = self.one(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return here + beside


def test_streams_within_the_graph_are_refused():
    model = OnTwoStreams().cuda()
    compiled = torch.compile(model, backend=Twins.backend, options={})
    x = torch.randn(8, 64, device="cuda")
    with pytest.warns(RuntimeWarning, match="stream"):
        assert torch.equal(compiled(x), model(x))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_and_scaler(dtype):
    twins = Twins(models.gpt2)
    scalers = [torch.amp.GradScaler("cuda", enabled=dtype == torch.float16) for _ in range(2)]

    def do(call, optimizer):
        scaler = scalers[call is twins.calls[1]]
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=dtype):
            loss = twins.loss_of(call, *twins.batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return [loss]

    in_every_order(lambda: twins.both(do))
    assert twins.were_planned()


def test_the_arena_goes_back_with_the_model(bytes_stay):
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    twins = Twins(broken)
    twins.train(2)
    assert torch.cuda.memory_allocated() > before
    del twins
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


def test_out_of_memory_in_a_backward_pass_leaves_a_usable_region():
    """Two forward passes share the arena; the first one's backward pass finds no room there, nor anywhere."""
    twins = Twins(deep, memory_budget=0.6)  # then a region does not need all of its place between its passes
    twins.batch = [twins.batch[0].repeat(16, 1)]  # for which no block that the allocator has is large enough
    twins.train()
    tangent = torch.ones_like(twins.batch[0])

    def do(call, optimizer):
        optimizer.zero_grad()
        one, two = call(twins.batch[0]), call(twins.batch[0] + 1)
        if call is twins.calls[1]:
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(1e-9)
            try:
                with pytest.raises(torch.OutOfMemoryError):
                    one.backward(tangent)
            finally:
                torch.cuda.set_per_process_memory_fraction(1.0)
        two.backward(tangent)
        return [one, two]

    twins.both(do)
    twins.train(2)
    assert twins.were_planned()
