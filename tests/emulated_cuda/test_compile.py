"""Planned steps on emulated CUDA: the numbers are those of eager PyTorch on the same device, bit for bit."""

import contextlib
import gc
import math
import warnings

import emulated_cuda
import models
import pytest
import torch
from torch import nn

import lowtide
from lowtide import _torch_cuda

STEPS = 10  # from the eighth on nothing is timed, and so the host waits for nothing


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("LOWTIDE_QUIET", "1")
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path))


class Script:
    """A model, and a step function of one kind: what is in its name."""

    def __init__(self, make, kind=""):
        torch.manual_seed(0)
        self.kind = kind
        self.model, batch, self.loss_of = make(dropout=0.1)
        self.model.train().cuda()
        self.host = [tensor.pin_memory() if "pinned" in kind else tensor for tensor in batch]
        if "channels_last" in kind:
            self.model.to(memory_format=torch.channels_last)
            self.host[0] = self.host[0].to(memory_format=torch.channels_last)
        rules = {"sgd": {"momentum": 0.9, "lr": 0.1}, "fused": {"fused": True}, "capturable": {"capturable": True}}
        chosen = next((options for name, options in rules.items() if name in kind), {})
        rule = torch.optim.SGD if "sgd" in kind else torch.optim.AdamW
        self.optimizer = rule(self.model.parameters(), **chosen)
        self.scaler = torch.amp.GradScaler("cuda", enabled="scaler" in kind)
        self.losses = []

    def step(self, *batch):
        if "inside" in self.kind:
            batch = [tensor.cuda(non_blocking=True) for tensor in batch]
        self.optimizer.zero_grad()
        dtype = torch.float16 if "scaler" in self.kind else torch.bfloat16
        cast = torch.autocast("cuda", dtype=dtype) if "autocast" in self.kind else contextlib.nullcontext()
        with cast:
            loss = self.loss_of(self.model, *batch)
        self.scaler.scale(loss).backward()
        if "clip" in self.kind:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return torch.tensor(loss.item()) if "item" in self.kind else loss.detach()

    def train(self, step):
        """Some steps; gives all that they leave behind, on the CPU."""
        streams = [torch.cuda.Stream(), torch.cuda.Stream()] if "streams" in self.kind else []
        for count in range(STEPS):
            inside = "inside" in self.kind
            batch = self.host if inside else [tensor.cuda(non_blocking=True) for tensor in self.host]
            if not streams:
                self.losses.append(step(*batch))
                continue
            stream = streams[count % 2]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.losses.append(step(*batch))
                for tensor in batch:
                    tensor.record_stream(stream)
            torch.cuda.current_stream().wait_stream(stream)
        return self.left()

    def left(self):
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        gradients = [parameter.grad for parameter in self.model.parameters()]
        left = [*self.losses, *self.model.parameters(), *self.model.buffers(), *gradients, *state]
        return [tensor.detach().cpu() for tensor in left]


def same(expected, found):
    return len(expected) == len(found) and all(map(torch.equal, expected, found))


def planned(script, **options):
    return lowtide.compile(script.step, model=script.model, optimizer=script.optimizer, **options)


MODELS = [models.mlp, models.convnet, models.bert, models.gpt2]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_models_train_as_in_eager(make, every_order):
    eager = Script(make)
    expected = eager.train(eager.step)
    script = Script(make)
    step = planned(script)
    assert same(expected, script.train(step))
    stats = step.stats()
    assert (stats["calls"], stats["eager_calls"], stats["misses"]) == (STEPS, 0, 0)
    step.close()


KINDS = [
    "sgd", "fused", "capturable", "autocast", "autocast scaler", "autocast scaler clip", "clip", "pinned",
    "pinned inside", "streams", "item",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_scripts_train_as_in_eager(kind, late):
    eager = Script(models.mlp, kind)
    expected = eager.train(eager.step)
    script = Script(models.mlp, kind)
    step = planned(script)
    assert same(expected, script.train(step))
    assert (step.stats()["eager_calls"], step.stats()["misses"]) == (0, 0)
    step.close()


def test_channels_last(late):
    eager = Script(models.convnet, "channels_last")
    expected = eager.train(eager.step)
    script = Script(models.convnet, "channels_last")
    step = planned(script)
    assert same(expected, script.train(step))
    assert step.stats()["misses"] == 0
    step.close()


def test_a_budget_is_kept_by_the_allocators_own_count(every_order):
    """Some operators run again, and dropout draws the same numbers from the device's generator."""
    eager = Script(models.gpt2)
    expected = eager.train(eager.step)
    gc.collect()
    script = Script(models.gpt2)
    step = planned(script, memory_budget=0.8)
    script.train(step)  # plans, and makes the state
    torch.cuda.reset_peak_memory_stats()
    there = torch.cuda.memory_allocated()
    with contextlib.ExitStack() as stack:
        stack.callback(script.losses.clear)
        batch = [tensor.cuda() for tensor in script.host]
        step(*batch)
        most = torch.cuda.max_memory_allocated()
    stats = step.stats()
    assert stats["planned_bytes"] <= stats["budget_bytes"] < stats["eager_bytes"]
    assert most - there <= 64 * 1024, "all but scalars is in the arena, which was there"
    assert step.stats()["misses"] == 0
    step.close()
    again = Script(models.gpt2)
    step = planned(again, memory_budget=0.8)
    assert same(expected, again.train(step))
    step.close()


def test_closing_gives_the_arena_back(bytes_stay):
    script = Script(models.mlp)
    script.train(script.step)
    script.optimizer.zero_grad()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    step = planned(script)
    step(*[tensor.cuda() for tensor in script.host])
    arena = step.stats()["arena_bytes"]
    assert torch.cuda.memory_allocated() >= before + arena
    step.close()
    gc.collect()
    gradients = sum(512 * math.ceil(parameter.nbytes / 512) for parameter in script.model.parameters())
    assert torch.cuda.memory_allocated() <= before + gradients


def drawless(dropout):
    """Dropout would draw in another order."""
    return models.mlp(dropout=0.0)


def another(dropout):
    """Of floats alone: wrong indices would be looked up."""
    model = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 96), nn.GELU(), nn.Linear(96, 10))
    return model, *models.mlp()[1:]


def two_on_two_streams():
    """Two models that have nothing to do with each other but the arena, each on a stream of its own."""
    scripts = [Script(drawless), Script(another)]
    steps = [planned(script) for script in scripts]
    batches = [[tensor.cuda() for tensor in script.host] for script in scripts]
    for script, step, batch in zip(scripts, steps, batches, strict=True):  # plans
        script.losses.append(step(*batch))
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    for _ in range(STEPS - 1):
        for script, step, stream, batch in zip(scripts, steps, streams, batches, strict=True):
            with torch.cuda.stream(stream):
                script.losses.append(step(*batch))
    torch.cuda.synchronize()
    left = [script.left() for script in scripts]
    for step in steps:
        assert step.stats()["misses"] == 0
        step.close()
    return left


def expected_of_two():
    scripts = [Script(drawless), Script(another)]
    return [script.train(script.step) for script in scripts]


def test_steps_on_two_streams_share_the_arena(every_order):
    expected = expected_of_two()
    assert all(map(same, expected, two_on_two_streams()))


def test_a_wait_that_is_left_out_is_noticed(late):
    expected = expected_of_two()
    assert all(map(same, expected, two_on_two_streams()))
    _torch_cuda.leave_out_waits(0, True)
    try:
        with emulated_cuda.declared(late=7):
            assert not all(map(same, expected, two_on_two_streams()))
    finally:
        _torch_cuda.leave_out_waits(0, False)


@pytest.fixture
def in_an_annex():
    """Somebody holds gradients of a step that is over: the arena can neither grow nor move."""
    script = Script(drawless)
    step = planned(script)
    step(*[tensor.cuda() for tensor in script.host])
    held = [parameter.grad for parameter in script.model.parameters()]
    yield
    held.clear()
    step.close()


def gradients_read_on_another_stream(script, step):
    """They are let go of by the next step, which begins before they are read there."""
    side = torch.cuda.Stream()
    for _ in range(STEPS):
        script.losses.append(step(*[tensor.cuda() for tensor in script.host]))
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for parameter in script.model.parameters():
                script.losses.append(parameter.grad * 2)
                parameter.grad.record_stream(side)
        del parameter
    torch.cuda.synchronize()
    return script.left()


def test_gradients_in_the_arena_are_read_on_another_stream(every_order):
    eager, script = Script(drawless), Script(drawless)
    step = planned(script)
    expected = gradients_read_on_another_stream(eager, eager.step)
    assert same(expected, gradients_read_on_another_stream(script, step))
    stats = step.stats()
    assert (stats["gradient_bytes"], stats["eager_calls"], stats["misses"]) == (0, 0, 0)
    step.close()


def test_gradients_in_an_annex_are_read_on_another_stream(in_an_annex, every_order):
    eager, script = Script(drawless), Script(drawless)
    step = planned(script)
    expected = gradients_read_on_another_stream(eager, eager.step)
    assert same(expected, gradients_read_on_another_stream(script, step))
    step.close()


@pytest.mark.parametrize("kind", ["", "item"])
def test_a_budget_is_kept_in_an_annex(in_an_annex, late, kind):
    eager = Script(models.gpt2, kind)
    expected = eager.train(eager.step)
    script = Script(models.gpt2, kind)
    step = planned(script, memory_budget=0.8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert same(expected, script.train(step))
    stats = step.stats()
    assert (stats["calls"], stats["eager_calls"], stats["misses"]) == (STEPS, 0, 0)
    step.close()


def test_gradients_in_the_arena_make_room_for_another_step(every_order, bytes_stay):
    eager, script, other = Script(drawless), Script(drawless), Script(drawless)
    for _ in range(2):
        eager.losses.append(eager.step(*[tensor.cuda() for tensor in eager.host]))
    step, between = planned(script), planned(other)
    batch = [tensor.cuda() for tensor in script.host]
    script.losses.append(step(*batch))
    assert step.stats()["gradient_bytes"] == 0
    between(*batch)  # who is next gets the place
    script.losses.append(step(*batch))
    assert step.stats()["gradient_bytes"] > 0
    assert same(eager.left(), script.left())
    for one in (step, between):
        one.close()


def test_a_random_state_that_is_read_in_the_step_is_eagers(late):
    """Dropout has drawn by then, in eager; a planned step has deferred that."""

    def train(compiled):
        script, seen = Script(models.mlp), []

        def step(given, wanted):
            script.optimizer.zero_grad()
            loss = script.loss_of(script.model, given, wanted)
            seen.append(torch.cuda.get_rng_state())
            loss.backward()
            script.optimizer.step()
            return loss.detach()

        if compiled:
            step = lowtide.compile(step, model=script.model, optimizer=script.optimizer)
        return [*script.train(step), *seen]

    assert same(train(False), train(True))


def test_out_of_memory_leaves_a_usable_model():
    script = Script(models.mlp)
    step = planned(script)
    batch = [tensor.cuda() for tensor in script.host]
    step(*batch)
    step.close()
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1e-9)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 30, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.isfinite(script.step(*batch))


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(64, 64), nn.Linear(64, 64)


@pytest.mark.parametrize("kind", ["a value", "a tower", "the update"])
def test_streams_within_the_function(kind, every_order):
    """What was called before on another stream, which nobody there has waited for, stays on that one."""

    def train(compiled):
        torch.manual_seed(0)
        model = TwoTowers().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        side, values = torch.cuda.Stream(), []
        constant = torch.randn(32, 64, device="cuda")
        torch.cuda.synchronize()

        def step(x):
            here = torch.cuda.current_stream()
            side.wait_stream(here)
            optimizer.zero_grad()
            found = torch.tanh(model.one(x.cuda(non_blocking=True)))
            if kind == "the update":
                side.wait_stream(here)
            with torch.cuda.stream(side):
                beside = model.other(constant)
                if kind == "a value":
                    values.append(beside.sum().item())
                if kind == "the update":
                    found.sum().backward()
                    optimizer.step()
            here.wait_stream(side)
            if kind != "the update":
                (found * beside).pow(2).mean().backward()
                optimizer.step()
            return found.detach().clone()

        run = lowtide.compile(step, model=model, optimizer=optimizer) if compiled else step
        for _ in range(STEPS):
            values.append(run(torch.randn(32, 64).pin_memory()))
        torch.cuda.synchronize()
        return [torch.as_tensor(value).cpu() for value in [*values, *model.parameters()]]

    expected = train(compiled=False)
    with pytest.warns(RuntimeWarning, match="changes the CUDA stream"):
        found = train(compiled=True)
    assert all(map(torch.equal, expected, found))
