"""Steps that swap to pinned memory of the host: eager's numbers bit for bit, within the budget, in every order.

What leaves the device is stored and loaded on streams of its own. Late mode shows every wait that is missing.
"""

import copy
import gc
import random
import warnings

import emulated_cuda
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lowtide
from lowtide import _torch, _torch_cuda
from lowtide._compile.swap import measured_host_link

MIB = 1 << 20
STEPS = 10  # from the eighth on nothing is timed, and so the host waits for nothing


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("LOWTIDE_QUIET", "1")
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))


def mlp(dropout=0.1):
    layers = [part for _ in range(4) for part in (nn.Linear(192, 192), nn.GELU(), nn.Dropout(dropout))]
    return nn.Sequential(*layers), torch.randn(128, 192)


def transformer(dropout=0.1):
    layers = [nn.TransformerEncoderLayer(128, 2, 256, dropout, batch_first=True) for _ in range(2)]
    return nn.Sequential(*layers), torch.randn(4, 32, 128)


def convnet(dropout=0.1):
    def block():
        return nn.Conv2d(48, 48, 3, padding=1), nn.BatchNorm2d(48), nn.GELU(), nn.Dropout(dropout)

    return nn.Sequential(nn.Conv2d(3, 48, 1), *[part for _ in range(8) for part in block()]), torch.randn(4, 3, 8, 8)


class Script:
    """A model, its optimizer, a batch and a step."""

    def __init__(self, make, **options):
        torch.manual_seed(0)
        self.model, batch = make(**options)
        self.model.train().cuda()
        self.batch = batch.cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.losses = []

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def train(self, step, steps=STEPS):
        self.losses += [step(self.batch) for _ in range(steps)]
        return self.left()

    def left(self, gradients=True):
        """All that the steps leave behind, on the CPU. What is queued is done in the order of the mode."""
        torch.cuda.synchronize()
        grads = [p.grad for p in self.model.parameters() if gradients and p.grad is not None]
        left = [*self.losses, *self.model.buffers(), *grads, *self.weights_and_state()]
        return [tensor.detach().cpu() for tensor in left]

    def weights_and_state(self):
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        return [*self.model.parameters(), *state]

    def away(self):
        """How many of these have their memory in the tier."""
        return sum(map(_torch.is_away, self.weights_and_state()))


def planned(script, budget, **options):
    options = {"memory_budget": budget, "swap": "host", **options}
    return lowtide.compile(script.step, model=script.model, optimizer=script.optimizer, **options)


def same(expected, found):
    return len(expected) == len(found) and all(map(torch.equal, expected, found))


def planned_at_least(script):
    """The step with the smallest of these budgets that can be kept, after one call, and its loss."""
    for share in (0.1, 0.15, 0.2, 0.25):
        step = planned(script, share)
        try:
            return step, step(script.batch)
        except lowtide.InfeasibleError:
            step.close()
    raise AssertionError("a quarter of what eager needs is enough")


MODELS = [mlp, transformer, convnet]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("budget", [0.5, 0.3, "least"])
def test_models_train_as_in_eager(make, budget, every_order):
    eager = Script(make)
    expected = eager.train(eager.step)
    script = Script(make)
    if budget == "least":
        step, loss = planned_at_least(script)
        script.losses.append(loss)
    else:
        step = planned(script, budget)
        script.losses.append(step(script.batch))
    script.losses.append(step(script.batch))  # plans with the state that is there now
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    there = torch.cuda.memory_allocated()
    script.losses += [step(script.batch) for _ in range(STEPS - 2)]
    assert torch.cuda.max_memory_allocated() - there <= 64 * 1024, "all but scalars is in the arena, which was there"
    assert same(expected, script.left())
    stats = step.stats()
    assert (stats["calls"], stats["eager_calls"], stats["misses"]) == (STEPS, 0, 0)
    assert stats["planned_bytes"] <= stats["budget_bytes"] < 0.51 * stats["eager_bytes"]
    assert script.away() > 0
    step.close()


# -- between steps -----------------------------------------------------------------------------------------------------


def read_state(script):
    return [value.cpu() for value in script.model.state_dict().values()]


def read_a_weight(script):
    return [next(script.model.parameters()).detach().cpu()]


def write_weights(script):
    with torch.no_grad():
        for parameter in script.model.parameters():
            parameter.mul_(1.01)
    return []


def write_from_the_host(script):
    weight = next(script.model.parameters())
    weight.data.copy_(torch.full(weight.shape, 0.01).pin_memory(), non_blocking=True)
    return []


def replace_a_weight(script):
    weight = next(script.model.parameters())
    weight.data = weight.detach() * 0.5
    return []


def load_state(script):
    halved = {name: value * 0.5 for name, value in script.model.state_dict().items()}
    script.model.load_state_dict(halved)
    script.optimizer.load_state_dict(script.optimizer.state_dict())
    return []


def evaluate(script):
    script.model.eval()
    with torch.no_grad():
        found = script.model(script.batch)
    script.model.train()
    return [found]


def read_on_another_stream(script):
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        found = [parameter.detach() * 2 for parameter in script.model.parameters()]
    main.wait_stream(side)
    return found


def drop_gradients(script):
    script.optimizer.zero_grad(set_to_none=True)
    return []


def train_eagerly(script):
    return [script.step(script.batch)]


ACTIONS = [
    read_state, read_a_weight, write_weights, write_from_the_host, replace_a_weight, load_state, evaluate,
    read_on_another_stream, drop_gradients, train_eagerly,
]  # fmt: skip


def train_with(script, step, actions):
    """A step before each of the actions; gives what those find, and what is left."""
    found = []
    for action in actions:
        script.losses.append(step(script.batch))
        found += action(script)
    script.losses.append(step(script.batch))
    return [tensor.cpu() for tensor in found] + script.left()


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_between_steps_tensors_are_as_in_eager(action, late):
    actions = [action] * STEPS
    eager = Script(mlp)
    expected = train_with(eager, eager.step, actions)
    script = Script(mlp)
    step = planned(script, 0.3)
    assert same(expected, train_with(script, step, actions))
    assert script.away() > 0
    step.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_loops(seed, every_order):
    actions = random.Random(seed).choices(ACTIONS, k=2 * STEPS)
    make, budget = MODELS[seed % 3], random.Random(seed).choice([0.3, 0.5, 0.7])
    eager = Script(make)
    expected = train_with(eager, eager.step, actions)
    script = Script(make)
    step = planned(script, budget)
    assert same(expected, train_with(script, step, actions))
    step.close()


def test_homes_are_no_memory_of_the_device(bytes_stay):
    script = Script(mlp)
    step = planned(script, 0.3)
    script.train(step)
    step.close()
    sizes = [p.untyped_storage().nbytes() for p in script.model.parameters() if _torch.is_away(p)]
    assert sizes
    tier = _torch.host_tier(torch.device("cuda", 0))
    before = torch.cuda.memory_allocated()
    for parameter in script.model.parameters():
        _torch.bring_back(parameter, tier)
    assert torch.cuda.memory_allocated() - before == sum(-(-size // 512) * 512 for size in sizes)
    assert not any(map(_torch.is_away, script.model.parameters()))


def test_memory_of_a_home_is_used_again_after_its_streams(every_order):
    """What was put away is freed while another stream reads it, and the next home gets its memory."""
    tier = _torch.host_tier(torch.device("cuda", 0))
    kept = torch.zeros(MIB, device="cuda")
    _torch.put_away(kept, tier)  # pinned memory is kept while any is used
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    a = torch.rand(MIB)
    x, y = a.cuda(), torch.empty(MIB, device="cuda")
    _torch.put_away(x, tier)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        torch.add(x, 1, out=y)
    x.record_stream(side)
    address = x.data_ptr()
    del x
    other = torch.full((MIB,), -5.0, device="cuda")
    _torch.put_away(other, tier)
    assert other.data_ptr() == address
    side.synchronize()
    assert torch.equal(y.cpu(), a + 1)


# -- what goes wrong ---------------------------------------------------------------------------------------------------

failing = {"now": False}


@torch.library.custom_op("lowtide_swap_tests::may_fail", mutates_args=())
def may_fail(x: torch.Tensor) -> torch.Tensor:
    if failing["now"]:
        raise RuntimeError("it fails now")
    return x * 2


@may_fail.register_fake
def _(x):
    return torch.empty_like(x)


may_fail.register_autograd(lambda _, gradient: may_fail(gradient))


class MayFail(nn.Module):
    def forward(self, x):
        return may_fail(x)


def failing_mlp():
    layers = [part for _ in range(4) for part in (nn.Linear(192, 192), nn.GELU())]
    return nn.Sequential(*layers[:4], MayFail(), *layers[4:]), torch.randn(128, 192)


def test_a_step_that_fails_leaves_right_tensors(every_order):
    """In the middle of the forward pass: weights are as they were, and so is state but for what decays by itself."""
    eager, script = Script(failing_mlp), Script(failing_mlp)
    step = planned(script, 0.3)
    for _ in range(STEPS):
        eager.losses.append(eager.step(eager.batch))
        script.losses.append(step(script.batch))
        before, state = script.left(gradients=False), copy.deepcopy(script.optimizer.state_dict())
        failing["now"] = True
        try:
            with pytest.raises(RuntimeError, match="it fails now"):
                step(script.batch)
        finally:
            failing["now"] = False
        for was, found in zip(before, script.left(gradients=False), strict=True):
            assert torch.equal(was, found) or torch.equal(was * 0.999, found)
        assert same(before[: len(script.losses) + 8], script.left(gradients=False)[: len(script.losses) + 8])
        script.optimizer.load_state_dict(state)
    assert same(eager.left(gradients=False), script.left(gradients=False))
    step.close()


@pytest.mark.parametrize("before, after", [(True, False), (False, True)], ids=["before", "after"])
def test_a_wait_that_is_left_out_is_noticed(before, after, late):
    eager = Script(mlp)
    expected = eager.train(eager.step)
    script = Script(mlp)
    step = planned(script, 0.3)
    _torch_cuda.leave_out_waits_of_transfers(0, before=before, after=after)
    try:
        with emulated_cuda.declared(late=7):
            assert not same(expected, script.train(step))
    finally:
        _torch_cuda.leave_out_waits_of_transfers(0, before=False, after=False)
    step.close()


def test_two_models_on_two_streams(every_order):
    """They have nothing to do with each other but the arena and the tier."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]

    def train(compiled):
        scripts = [Script(mlp, dropout=0.0), Script(transformer, dropout=0.0)]
        steps = [planned(script, 0.4) if compiled else script.step for script in scripts]
        for script, step in zip(scripts, steps, strict=True):
            script.train(step, steps=2)
        for stream in streams:  # cuBLAS makes its workspaces
            with torch.cuda.stream(stream):
                torch.ones(4, 4, device="cuda").mm(torch.ones(4, 4, device="cuda"))
        torch.cuda.synchronize()
        for _ in range(STEPS):
            for script, step, stream in zip(scripts, steps, streams, strict=True):
                with torch.cuda.stream(stream):
                    script.losses.append(step(script.batch))
        torch.cuda.synchronize()
        left = [tensor for script in scripts for tensor in script.left()]
        for step in steps if compiled else []:
            assert step.stats()["misses"] == 0
            step.close()
        return left

    assert same(train(False), train(True))


# -- budgets in bytes --------------------------------------------------------------------------------------------------


def deep(dropout=0.1):
    """Activations of 2 MiB, weights of 1 MiB."""
    return nn.Sequential(*[part for _ in range(8) for part in (nn.Linear(512, 512), nn.Tanh())]), torch.randn(1024, 512)


def reserved():
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


@pytest.mark.parametrize("share", [0.7, 0.5, 0.3])
def test_a_budget_is_over_what_is_reserved(share, bytes_stay):
    base = reserved()
    eager = Script(deep)
    expected = eager.train(eager.step)
    whole = torch.cuda.memory_reserved() - base
    del eager
    base = reserved()
    script = Script(deep)
    budget = base + int(share * whole)
    step = planned(script, f"{budget}B")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        script.losses.append(step(script.batch))
        torch.cuda.reset_peak_memory_stats()
        found = script.train(step, STEPS - 1)
    assert torch.cuda.max_memory_reserved() <= budget
    assert same(expected, found)
    assert (step.stats()["eager_calls"], step.stats()["misses"]) == (0, 0)
    step.close()


# -- links -------------------------------------------------------------------------------------------------------------


def test_the_link_is_measured(every_order):
    with emulated_cuda.declared(link=8):
        link = measured_host_link(torch.device("cuda", 0))
    assert link.duplex and link.latency_ns <= 1
    assert link.store_rate == pytest.approx(8e9, rel=0.01) and link.load_rate == pytest.approx(8e9, rel=0.01)


@pytest.mark.parametrize("link, budget", [(16, 0.5), (16, 0.3), (4, 0.7), (4, 0.3), (1, 0.7), (1, 0.5)])
def test_the_plan_knows_how_long_it_takes(link, budget, late):
    """On the virtual clock, where transfers take what the link is declared to take and kernels their roofline."""
    with emulated_cuda.declared(link=link, bandwidth=50, tflops=0.5):
        script = Script(deep)
        step = planned(script, budget, link=f"{link}GB/s")
        script.train(step)
        taken = emulated_cuda.milliseconds(lambda: step(script.batch))
        variant = next(iter(step._steps())).current
        tiers, buffers = variant.plan.block_tiers(), variant.plan.block_buffers()
        ways = {True: 0, False: 0}  # nanoseconds of stores and loads, one after the other
        for source, *_ in variant.plan.transfers():
            ways[tiers[source] == 0] += variant.lowered.buffers[buffers[source]].nbytes / link
        compute = sum(variant.profiles[index].time_ns for index in variant.plan.order)
        predicted = variant.plan.time_ns
        step.close()
    assert taken == pytest.approx(1e-6 * predicted, rel=0.1)
    if predicted <= 1.05 * compute:  # transfers are hidden
        assert taken <= 1.1e-6 * max(compute, *ways.values())


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_other_tiers_are_refused_by_name(tmp_path):
    script = Script(mlp)
    with pytest.raises(ValueError, match='expected "host" for a model on cuda:0'):
        lowtide.compile(script.step, model=script.model, memory_budget=0.5, swap=tmp_path)
    with pytest.raises(ValueError, match="needs a model on a CUDA device, on cpu name a folder"):
        lowtide.compile(script.step, model=nn.Linear(2, 2), memory_budget=0.5, swap="host")
    with pytest.raises(ValueError, match="a rate is bytes a second"):
        planned(script, 0.5, link="fast")


def test_a_model_that_has_moved_is_refused():
    model = nn.Linear(256, 256).cuda()
    step = lowtide.compile(lambda x: F.relu(model(x)).sum(), model=model, memory_budget=0.9, swap="host")
    model.cpu()
    with (
        pytest.raises(lowtide.CaptureError, match="the step is on cpu, and swaps from cuda:0 to host"),
        torch.no_grad(),
    ):
        step(torch.randn(64, 256))
