"""Eager loops from one arena on emulated CUDA: eager's numbers, bit for bit, within eager's own bytes.

LOWTIDE_FULL=1 takes all models of the zoo, in every order in which numbers can be made.
"""

import contextlib
import gc
import os
import random
import threading

import emulated_cuda
import models
import pytest
import torch
from test_compile import KINDS, Script, same
from torch import nn

import lowtide
from bench import zoo
from lowtide import _torch

STEPS = 6
FULL = os.environ.get("LOWTIDE_FULL") == "1"
SMALL = {make.__name__: make for make in (models.mlp, models.convnet, models.bert, models.gpt2)}
OF_PAPERS = (
    [name for name in zoo.names() if name not in SMALL]
    if FULL
    else ["alexnet", "mobilenet_v2", "transformer", "t5_base"]
)
LIVES = 4096 if FULL else 0  # bytes: what autograd's thread lets go of a moment later may be outside
SEGMENT = (
    20 << 20 if FULL else 0
)  # that PyTorch's allocator takes for an arena of 1 to 10 MiB, and not for small blocks
UNSPLIT = 1 << 20  # bytes that PyTorch's allocator may add to a block, rather than split another one


def plain_step(loss_of):
    def make(model, optimizer):
        def step(batch):
            optimizer.zero_grad()
            loss = loss_of(model, *batch)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    return make


class Loop:
    """A model and batches on the device, the step, and what the loop leaves behind."""

    def __init__(self, name, steps=STEPS):
        torch.manual_seed(0)
        if name in SMALL:
            self.model, batch, loss_of = SMALL[name](dropout=0.1)
            make_step, batches = plain_step(loss_of), [batch] * steps
        else:
            job = zoo.build(name)
            self.model, make_step, batches = job.model, job.train_step, job.batches(steps)
        self.model.train().cuda()
        self.batches = [move(batch) for batch in batches]
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.step = make_step(self.model, self.optimizer)
        self.losses = []
        torch.manual_seed(7)

    def left(self):
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        left = [*self.losses, *self.model.parameters(), *self.model.buffers(), *gradients, *state]
        return [tensor.detach().cpu() for tensor in left]


def trained(name, steps=STEPS):
    """What the loop leaves behind in eager."""
    loop = Loop(name, steps)
    loop.losses.extend(map(loop.step, loop.batches))
    return loop.left()


def move(batch):
    if isinstance(batch, dict):
        return {key: value.cuda() for key, value in batch.items()}
    return [tensor.cuda() for tensor in batch]


def most_bytes():
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


@pytest.fixture(scope="module", autouse=True)
def _clean_device():
    """Workspaces of cuBLAS, for this thread and for autograd's, are there before bytes are counted; nothing is left."""
    nn.Linear(8, 8).cuda()(torch.ones(8, 8, device="cuda")).sum().backward()
    yield
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def eager(name):
    """What the loop leaves behind, and the bytes that its last steps had at most."""
    loop = Loop(name)
    torch.cuda.empty_cache()
    there = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    for batch in loop.batches:
        loop.losses.append(loop.step(batch))
    return loop.left(), [most - before for most, before in zip(most_bytes(), there, strict=True)]


def replayed(name):
    """The same, and the figures of the replay."""
    loop = Loop(name)
    torch.cuda.empty_cache()
    there = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    with lowtide.replay() as replay:
        for count, batch in enumerate(loop.batches):
            replay.settle()
            if count == 4:
                torch.cuda.reset_peak_memory_stats()
            loop.losses.append(loop.step(batch))
        most = [most - before for most, before in zip(most_bytes(), there, strict=True)]
    return loop.left(), most, replay.stats()


NAMES = [*SMALL, *OF_PAPERS]


@pytest.mark.parametrize("name", NAMES)
def test_models_train_as_in_eager_within_its_bytes(name, bytes_stay):
    expected, eagers = eager(name)
    found, most, stats = replayed(name)
    assert same(expected, found)
    assert stats.device == "cuda:0" and stats.replayed == STEPS - 3
    assert (stats.misses, stats.departed, stats.other_threads) == (0, 0, 0)
    assert stats.arena_bytes < most[0] <= eagers[0] + LIVES
    assert most[1] <= eagers[1] + SEGMENT


@pytest.mark.parametrize("late", [1, 2, 7] if FULL else [1])
@pytest.mark.parametrize("name", NAMES)
def test_models_train_as_in_eager_when_numbers_are_late(name, late):
    with emulated_cuda.declared(late=late):
        expected, _ = eager(name)
        found, _, stats = replayed(name)
    assert same(expected, found)
    assert stats.replayed == STEPS - 3 and stats.misses == 0


@pytest.mark.parametrize("kind", KINDS)
def test_scripts_train_as_in_eager(kind, late):
    eager_script = Script(models.mlp, kind)
    expected = eager_script.train(eager_script.step)
    script = Script(models.mlp, kind)
    with lowtide.replay() as replay:

        def step(*batch):
            replay.settle()
            return script.step(*batch)

        found = script.train(step)
    assert same(expected, found)
    assert replay.stats().hits > 0 and replay.stats().misses == 0


class Lengths(nn.Module):
    """Takes memory as a batch is long, some MiB."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))] * 4)

    def forward(self, x):
        return self.layers(x)


def train_lengths(replay=None, lengths=(2000, 750, 1650, 1300, 1950) * 3):
    torch.manual_seed(0)
    model = Lengths().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    draws = torch.Generator().manual_seed(1)
    for length in lengths:
        if replay is not None:
            replay.settle()
        optimizer.zero_grad()
        model(torch.randn(length, 64, generator=draws).cuda()).square().mean().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in model.parameters()]


def test_what_is_reserved_is_less_than_eager_fragments(bytes_stay):
    """Batches of several lengths, where a caching allocator cannot use again what it has."""

    def run(**options):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        there = torch.cuda.memory_reserved()
        left = train_lengths(**options)
        return left, torch.cuda.memory_reserved() - there, torch.cuda.max_memory_allocated()

    expected, eagers, most = run()
    with lowtide.replay() as replay:
        found, reserved, most_replayed = run(replay=replay)
    assert same(expected, found)
    assert reserved < eagers
    assert most_replayed < most + UNSPLIT, "signatures that are not known yet have no arena beside them"
    stats = replay.stats()
    assert stats.replayed >= 9 and stats.misses == 0


# -- streams ----------------------------------------------------------------------------------------------------------


def read_on_another_stream(steps, replay=None, record=True, pool=None):
    """What a side stream makes of a tensor that is released and whose place is served again, in each iteration."""
    torch.manual_seed(0)
    model = nn.Linear(256, 256).cuda()
    batch = torch.randn(512, 256).cuda()
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    made = []
    for count in range(steps):
        if replay is not None:
            replay.settle()
        with torch.no_grad():
            read = model(batch).add_(count)
            side.wait_stream(main)
            with torch.cuda.stream(side):
                made.append((read * 2).sum(0))
            if record:
                read.record_stream(side)
            with torch.cuda.use_mem_pool(pool) if pool is not None else contextlib.nullcontext():
                del read
            for _ in range(3):
                model(batch).zero_()
        if replay is not None:
            replay.step()
    main.wait_stream(side)
    return [tensor.cpu() for tensor in made]


def replayed_on_two_streams():
    with lowtide.replay() as replay:
        made = read_on_another_stream(8, replay)
    return made, replay.stats()


def test_what_another_stream_reads_is_not_overwritten(every_order):
    expected = read_on_another_stream(8)
    made, stats = replayed_on_two_streams()
    assert same(expected, made)
    assert stats.misses == 0 and stats.hits >= 8 and stats.other_streams > 0


def test_a_release_while_a_pool_is_open_waits(every_order):
    """A graph that is captured meanwhile would get an event of ours: the place is free in the next iteration."""
    expected = read_on_another_stream(8)
    with lowtide.replay() as replay:
        made = read_on_another_stream(8, replay, pool=torch.cuda.MemPool())
    assert same(expected, made)
    assert replay.stats().hits > 0 and replay.stats().escaped > 0


def test_a_wait_that_is_left_out_is_noticed():
    expected = read_on_another_stream(8)
    _torch.device_replay().leave_out_waits(True)
    try:
        with emulated_cuda.declared(late=2):
            made, stats = replayed_on_two_streams()
    finally:
        _torch.device_replay().leave_out_waits(False)
    assert stats.misses == 0 and not same(expected, made)


def test_a_record_stream_that_is_left_out_is_noticed():
    expected = read_on_another_stream(8)
    with emulated_cuda.declared(late=2), lowtide.replay() as replay:
        made = read_on_another_stream(8, replay, record=False)
    assert not same(expected, made)


def test_iterations_on_another_stream_use_ordinary_memory(every_order):
    def train(replay=None):
        loop = Loop("mlp", 10)
        streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
        for count, batch in enumerate(loop.batches):
            if replay is not None:
                replay.settle()
            stream, other = streams[count % 2], streams[1 - count % 2]
            stream.wait_stream(other)
            with torch.cuda.stream(stream):
                loop.losses.append(loop.step(batch))
        torch.cuda.synchronize()
        return loop.left()

    expected = train()
    with lowtide.replay() as replay:
        assert same(expected, train(replay))
    stats = replay.stats()
    assert stats.hits > 0 and stats.other_streams > 0


# -- departures -------------------------------------------------------------------------------------------------------


def train_changing(replay=None):
    """An iteration goes another way now and then, and keeps what others let go."""
    loop, kept = Loop("convnet", 14), []
    for count, batch in enumerate(loop.batches):
        if replay is not None:
            replay.settle()
        hook = None
        if count in (7, 11):
            hook = loop.model[0].register_forward_hook(lambda module, given, made: (made * 2).square() + made)
        if count in (9, 10):
            hook = loop.model[2].register_forward_hook(lambda module, given, made: kept.append(made))
        loop.losses.append(loop.step(batch))
        if hook is not None:
            hook.remove()
        if count == 12:
            kept.clear()
    return [*loop.left(), *[tensor.detach().cpu() for tensor in kept]]


def test_departures_and_what_escapes_change_no_number(every_order):
    expected = train_changing()
    with lowtide.replay() as replay:
        found = train_changing(replay)
    assert same(expected, found)
    stats = replay.stats()
    assert stats.departed > 0 and stats.escaped > 0 and stats.hits > 0


def random_iteration(chance, side, kept, made):
    """Makes, reads and releases tensors on two streams; some are kept for later iterations."""
    alive = [torch.full((chance.randrange(1, 5000),), 1.0, device="cuda")]
    for _ in range(30):
        action, one = chance.random(), chance.choice(alive)
        if action < 0.4:
            alive.append(torch.full((chance.randrange(1, 5000),), chance.random(), device="cuda"))
        elif action < 0.6:
            alive.append(one * 2 + 1)
        elif action < 0.75:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                made.append(one.sum())
            one.record_stream(side)
        elif action < 0.8:
            kept.append(one)
        elif len(alive) > 1:
            alive.pop(chance.randrange(len(alive)))
    del kept[: chance.randrange(3)]


def random_loop(seed, replay=None):
    """Most iterations are alike, and some go another way."""
    side, kept, made = torch.cuda.Stream(), [], []
    batch = torch.ones(1, device="cuda")
    for count in range(12):
        if replay is not None:
            replay.settle()
            replay.begin(batch)
        random_iteration(random.Random(seed if count % 4 < 3 else 100 * seed + count), side, kept, made)
        if replay is not None:
            replay.step()
    torch.cuda.current_stream().wait_stream(side)
    return [tensor.cpu() for tensor in (*made, *kept)]


@pytest.mark.parametrize("seed", range(200 if FULL else 8))
def test_random_loops_on_two_streams(seed):
    with emulated_cuda.declared(late=seed % 8):
        expected = random_loop(seed)
        with lowtide.replay() as replay:
            found = random_loop(seed, replay)
    assert same(expected, found)
    assert replay.stats().hits > 0


def test_what_is_alive_at_the_end_keeps_its_memory(late, bytes_stay):
    torch.ones(8, 8, device="cuda").mm(torch.ones(8, 8, device="cuda"))  # cuBLAS has its workspace
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    model, batch = nn.Linear(64, 64).cuda(), torch.ones(32, 64).cuda()
    with lowtide.measure("cuda") as used, lowtide.replay() as replay, torch.no_grad():
        for count in range(8):
            replay.settle()
            made = model(batch)
            kept = made if count == 7 else None
            del made
            replay.step()
    assert replay.stats().hits > 0
    native = _torch.device_replay()
    assert native.blocks_left_behind == 1
    assert used.current_bytes >= kept.nbytes
    expected = model(batch)
    assert torch.equal(kept, expected)
    del kept, expected, model, batch
    assert native.blocks_left_behind == 0
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before


# -- what is not served -----------------------------------------------------------------------------------------------


def test_other_threads_use_ordinary_memory(late):
    expected, loop, made = trained("mlp", 8), Loop("mlp", 8), []

    def elsewhere():
        made.append(torch.ones(1000, device="cuda") * 3)

    with lowtide.replay() as replay:
        for batch in loop.batches:
            replay.settle()
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            loop.losses.append(loop.step(batch))
    assert same(expected, loop.left())
    assert replay.stats().other_threads >= 8 and replay.stats().misses == 0
    assert all(bool((tensor == 3).all()) for tensor in made)


def test_a_pool_of_its_own_is_left_alone():
    """So is the capture of a graph, whose memory is such a pool."""
    pool = torch.cuda.MemPool()
    model, batch = nn.Linear(64, 64).cuda(), torch.ones(32, 64).cuda()
    with lowtide.replay() as replay, torch.no_grad():
        for _ in range(6):
            replay.settle()
            model(batch)
            with torch.cuda.use_mem_pool(pool):
                inside = torch.ones(1 << 20, device="cuda")
            segments = [segment["address"] for segment in pool.snapshot()]
            assert inside.data_ptr() in segments
            del inside
            replay.step()
    assert replay.stats().other_streams >= 6 and replay.stats().misses == 0


def test_nothing_begins_or_ends_while_a_graph_is_captured(monkeypatch):
    model, batch = nn.Linear(64, 64).cuda(), torch.ones(32, 64).cuda()
    with lowtide.replay() as replay, torch.no_grad():
        for _ in range(5):
            model(batch)
            replay.step()
        before = replay.stats()
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        model(batch)
        replay.step()
        assert replay.stats().iterations == before.iterations
        monkeypatch.undo()
        model(batch)
    assert replay.stats().iterations > before.iterations


def test_without_memory_for_an_arena_the_loop_goes_on(monkeypatch):
    expected = train_lengths(lengths=[1500] * 6)
    set_arena = _torch.DeviceReplay.set_arena

    def on_a_full_device(native, bytes):
        torch.cuda.set_per_process_memory_fraction(1e-9)
        try:
            set_arena(native, bytes)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    monkeypatch.setattr(_torch.DeviceReplay, "set_arena", on_a_full_device, raising=False)
    with pytest.warns(UserWarning, match="has no arena for an iteration.*out of memory"), lowtide.replay() as replay:
        found = train_lengths(replay, lengths=[1500] * 6)
    assert same(expected, found)
    assert replay.stats().hits == 0


def test_where_the_part_for_cuda_is_missing_the_loop_is_eager(monkeypatch):
    from lowtide._replay import replay as module

    monkeypatch.setattr(module, "why_not_planned", lambda device: "it is missing")
    said = pytest.warns(UserWarning, match="no requests on cuda:0, which use ordinary memory: it is missing")
    with said, lowtide.replay() as replay:
        found = trained("mlp")
    assert len(said) == 1 and replay.stats().device == "cpu"
    assert same(trained("mlp"), found)


def test_a_compiled_step_inside_is_no_part_of_an_iteration(late, monkeypatch):
    monkeypatch.setenv("LOWTIDE_QUIET", "1")
    expected, others = trained("mlp", 8), trained("convnet", 8)
    loop = Loop("mlp", 8)
    with lowtide.replay() as replay:
        for batch in loop.batches:
            replay.settle()
            loop.losses.append(loop.step(batch))
        before = replay.stats()
        inner = Loop("convnet", 8)
        planned = lowtide.compile(inner.step, model=inner.model, optimizer=inner.optimizer)
        inner.losses.extend(map(planned, inner.batches))
        stats = replay.stats()
    assert same(expected, loop.left()) and same(others, inner.left())
    assert stats.hits >= before.hits > 0 and stats.iterations == before.iterations
    assert planned.stats()["misses"] == 0
    planned.close()
