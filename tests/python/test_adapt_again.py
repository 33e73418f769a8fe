"""Second runs of blocks find what their first runs found, whatever anybody did between; what differs is kept."""

from __future__ import annotations

import gc
import random
import re
import threading
import time
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import lowtide
from adapt_models import assert_same_bits, copied
from lowtide._adapt import adapter as adapting
from lowtide._adapt import drop as adapt_drop
from lowtide._adapt.content import Content
from lowtide._adapt.given import Given
from lowtide._adapt.random_state import RandomStates

WIDTH = 8
BATCHES = 6
LATE = 3  # the batch at which some things begin

now = SimpleNamespace(batch=0)


def is_late() -> bool:
    return now.batch >= LATE


class Plain(nn.Module):
    """A block that needs its argument again, and saves nothing of it itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(torch.relu(x))))


def in_a_row(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x = block(x) * 1
    return x


class Model(nn.Module):
    def __init__(self, make: Callable[[], nn.Module], through: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.before = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(make() for _ in range(3))
        self.through = through

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.through(self.blocks, self.before(x) * 1).square().mean()


def made(make: Callable[[], nn.Module], through: Callable[..., torch.Tensor] = in_a_row) -> Model:
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    shared.numbers.clear()
    shared.generator.manual_seed(1)
    depth.set(0)
    Counts.calls, now.batch = 0, 0
    return Model(make, through)


def trained(model: nn.Module, step: Callable[[nn.Module, torch.Tensor], None]) -> list[np.ndarray]:
    """Bits of losses, gradients, tensors of the model and whatever random numbers are left."""
    generator = torch.Generator().manual_seed(5)
    seen = []
    for now.batch in range(BATCHES):
        seen.append(copied(step(model, torch.randn(3 + now.batch, WIDTH, generator=generator)).clone()))
        for parameter in (one for one in model.parameters() if one.grad is not None):
            seen.append(copied(parameter.grad.clone()))
            with torch.no_grad():
                parameter -= 0.05 * parameter.grad
            parameter.grad = None
    tensors = [value for part in model.modules() for value in (*part._buffers.values(), *vars(part).values())]
    seen += [copied(tensor.clone()) for tensor in tensors if isinstance(tensor, torch.Tensor)]
    forget_results(model)
    numbers = [value for part in model.modules() for value in vars(part).values() if isinstance(value, (int, list))]
    return [*seen, np.array(repr(numbers)), np.array([random.random(), np.random.rand(), torch.rand(()).item()])]


def forget_results(model: nn.Module) -> None:
    """What a module keeps leads to its graph, which leads to the module: nobody could free them."""
    for part in model.modules():
        if isinstance(part, Stores):
            part.last = None


def both_passes(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x)
    loss.backward()
    return loss.detach()


# -- blocks -----------------------------------------------------------------------------------------------------------


class WritesArgument(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.mul_(0.9) if is_late() else x)


class WritesState(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(300, WIDTH))
        self.plain = torch.zeros(WIDTH)
        self.pair = (torch.zeros(WIDTH), [torch.zeros(WIDTH)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if is_late():
            self.table += 0.1
            self.plain.add_(x.detach().mean(0))
            self.pair[0].add_(1)
            self.pair[1][0].sub_(1)
        return super().forward(x - self.table[:1] + self.plain + self.pair[0] * self.pair[1][0])


class ScalesWeights(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.first.weight.mul_(0.99)
        return super().forward(x)


class ReplacesWeights(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first.weight.data = torch.renorm(self.first.weight.data, 2, 0, 0.2)
        return super().forward(x)


class Counts(Plain):
    """Numbers and containers everywhere."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.history: list[int] = []
        self.queue: deque[int] = deque(maxlen=2)
        self.members: set[int] = set()
        self.table = {"count": 0}
        self.space = SimpleNamespace(count=0)
        self.array = np.zeros(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        Counts.calls += 1
        self.history.append(self.count)
        self.queue.append(self.count)
        self.members.add(self.count)
        self.table["count"] += 1
        self.space.count += 1
        self.array += 1
        shared.numbers.append(self.count)
        sizes = len(self.history) + len(self.members) + len(shared.numbers) + self.table["count"] + self.space.count
        return super().forward(x * (self.count + Counts.calls + sum(self.queue) + sizes + self.array[0]) / 50)


shared = SimpleNamespace(numbers=[], generator=torch.Generator())


depth: ContextVar[int] = ContextVar("depth", default=0)


class CountsElsewhere(Plain):
    """In what is easily overlooked."""

    def __init__(self) -> None:
        super().__init__()
        self.members = {number: 0 for number in range(5000)}
        self.data = np.zeros(50_000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight: Any = self.first.weight
        weight.count = getattr(weight, "count", 0) + 1
        depth.set(depth.get() + 1)
        self.members[3] += 1
        self.data += 1
        return super().forward(x * (weight.count + depth.get() + self.members[3] + self.data[0]) / 20)


class ReadsAView(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.zeros(300, WIDTH)
        self.row = self.table[2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table.add_(0.1)
        return super().forward(x + self.row)


class Draws(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.torch = torch.Generator().manual_seed(1)
        self.python = random.Random(2)
        self.numpy = np.random.default_rng(3)
        self.old = np.random.RandomState(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not is_late():
            return super().forward(x)
        of_torch = torch.randn(WIDTH, generator=self.torch) + torch.randn(WIDTH, generator=shared.generator)
        return super().forward(x * (self.python.gauss(0, 1) + self.numpy.random() + self.old.randn()) + of_torch)


class DrawsFromAll(Plain):
    """Layers that are left out by chance, from some batch on."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if is_late() and random.random() < 0.5:
            return x * np.random.randn() * random.gauss(0, 1)
        return super().forward(x)


class Stores(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = super().forward(x if self.last is None else x + self.last.detach().mean())
        self.last = torch.softmax(result, -1)
        return result


class FillsCaches(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if is_late() and not hasattr(self, "noise"):
            self.register_buffer("noise", torch.randn(WIDTH))
        return super().forward(x + self.noise if is_late() else x)


class Makes(OrderedDict[str, type[nn.Module]]):
    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key)()


class MakesParts(Plain):
    """Has a table that makes what is asked for, and an object in C whose members are made when they are read."""

    def __init__(self) -> None:
        super().__init__()
        self.makes = Makes(smooth=nn.Tanh)
        self.pattern = re.compile("smooth", re.ASCII | re.IGNORECASE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(self.makes["smooth"](x))


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.2)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return query + self.linear(torch.tanh(self.attention(query, key, value)[0]))


class Noisy(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.noise = nn.RReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.noise(super().forward(x))


class NoisyFunction(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rrelu(super().forward(x), training=True)


class Catches(Plain):
    """PyTorch ends second runs by an exception."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return super().forward(x)
        except Exception:
            return x


class Scripted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.part = torch.jit.script(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()))
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.part(torch.tanh(self.linear(x)))


class Normalizes(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, momentum=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(super().forward(x))


class Given2(Plain):
    """Anything may come with the tensor."""

    def forward(self, x: torch.Tensor, other: Any) -> torch.Tensor:
        return super().forward(x * factor_of(other))


def factor_of(other: Any) -> Any:
    if isinstance(other, Context):
        other.count += 1
        other.items.append(other.count)
        return other.hidden * other.count + len(other.items)
    if isinstance(other, torch.Generator):
        return torch.rand((), generator=other)
    if isinstance(other, dict):
        return sum(other["all"]) + len(other)
    if isinstance(other, Iterator):
        return next(other)
    return sum(other)


@dataclass(slots=True)
class Context:
    hidden: Any
    count: int = 0
    items: list[int] = field(default_factory=list)


# -- what is around them ----------------------------------------------------------------------------------------------


def adds_in_place(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x += block(x)
    return x


def adds_in_place_later(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        if is_late():
            x += block(x)
        else:
            x = x + block(x)
    return x


def writes_to_a_view(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        result = block(x)
        x[:, :3].mul_(0.5)
        x = x + result
    return x


def writes_unseen(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        result = block(x)
        if is_late():
            x.data.mul_(0.5)
        x = x + result
    return x


def writes_to_buffers(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    result = in_a_row(blocks, x)
    for block in blocks:
        block.table.add_(1)
    return result


def grows_a_list(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    all_of_them = [x]
    for block in blocks:
        all_of_them.append(block(x, all_of_them))
    return all_of_them[-1]


def grows_within_a_table(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    table: dict[str, Any] = {"all": [x]}
    for block in blocks:
        x = block(x, table)
        table["all"].append(x)
        table[f"more {len(table)}"] = x
    return x


def changes_an_object(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    context = Context(x * 2)
    for block in blocks:
        x = block(x, context)
        context.hidden = x * 0.5
        context.count += 1
    return x


def gives_a_generator(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    for block in blocks:
        x = block(x, generator)
    return x


def gives_an_iterator(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    numbers = iter([0.5, 2.0, 3.0])
    for block in blocks:
        x = block(x, numbers)
    return x


def gives_one_thrice(blocks: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for block in blocks:
        x = block(x, x, x)  # attention takes another way if they are the same object
    return x


class Case(NamedTuple):
    make: Callable[[], nn.Module]
    through: Callable[..., torch.Tensor] = in_a_row
    kept: str = ""  # what the warning says, if there is one


CASES = {
    "argument": Case(Plain, adds_in_place, "argument 0 is written to after it has run"),
    "argument, later": Case(Plain, adds_in_place_later, "argument 0 is written to after it has run"),
    "view of an argument": Case(Plain, writes_to_a_view, "argument 0 is written to after it has run"),
    "argument, through .data": Case(Plain, writes_unseen, "argument 0 is written to after it has run"),
    "argument, by the block": Case(WritesArgument, kept="argument 0 is written to as it runs"),
    "state, by the block": Case(WritesState, kept="table, plain, .* are written to as it runs"),
    "buffers": Case(WritesState, writes_to_buffers, "written to after it has run"),
    "weights": Case(ScalesWeights, kept="first.weight is written to as it runs"),
    "other weights": Case(ReplacesWeights, kept="first.weight is written to as it runs"),
    "list": Case(Given2, grows_a_list),
    "list in a table": Case(Given2, grows_within_a_table),
    "object": Case(Given2, changes_an_object),
    "generator": Case(Given2, gives_a_generator),
    "iterator": Case(Given2, gives_an_iterator, "it can draw from argument 1, and a second run could not"),
    "same object": Case(Attends, gives_one_thrice),
    "counts": Case(Counts),
    "counts elsewhere": Case(CountsElsewhere),
    "view of a table": Case(ReadsAView, kept="table, row are written to as it runs"),
    "own generators": Case(Draws),
    "global generators": Case(DrawsFromAll),
    "stores a result": Case(Stores),
    "fills caches": Case(FillsCaches),
    "tables that make what is asked for": Case(MakesParts),
    "catches exceptions": Case(Catches),
    "noise": Case(Noisy),
    "noise of a function": Case(NoisyFunction),
    "running statistics": Case(Normalizes),
}


def compared(case: Case, step: Callable[..., Any] = both_passes) -> list[str]:
    """Trains both ways, with every block dropped; gives what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with lowtide.adapt(made(case.make, case.through), memory_budget="1GiB") as adapter:
            adapter._drop_all = True
            ours = trained(adapter.model, step)
    assert_same_bits(ours, trained(made(case.make, case.through), step))
    return [str(warning.message) for warning in said if "lowtide" in str(warning.message)]


@pytest.mark.parametrize("name", CASES)
def test_second_runs_find_what_first_runs_found(name: str) -> None:
    said = compared(CASES[name])
    assert len(said) == bool(CASES[name].kept), said
    assert all(re.search(CASES[name].kept, warning) for warning in said), said


# -- between the two passes -------------------------------------------------------------------------------------------


class Settings(Plain):
    """Depends on how attention is computed, and on what a number is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended = F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])[0, 0]
        return super().forward(attended + (torch.ones(3) / 3).sum().to(x))


class Amplifies(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return result * 1.5 if function is torch.relu else result


def other_settings(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            loss = model(x)
    finally:
        torch.set_default_dtype(torch.float32)
    loss.backward()
    return loss.detach()


def under_a_mode(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with Amplifies():
        loss = model(x)
    loss.backward()
    return loss.detach()


def evaluated_and_frozen(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x)
    model.eval()
    model.blocks[1].requires_grad_(False)
    loss.backward()
    model.train()
    model.blocks[1].requires_grad_(True)
    return loss.detach()


def two_at_once(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    first, second = model(x), model(x * 2)
    second.backward()
    first.backward()
    return first.detach()


def elsewhere(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x)
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    return loss.detach()


def after_an_error(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    def fail(gradient: torch.Tensor) -> None:
        raise ArithmeticError

    loss = model(x)
    hook = model.blocks[1].first.weight.register_hook(fail)
    with pytest.raises(ArithmeticError):
        loss.backward(retain_graph=True)
    hook.remove()
    model.zero_grad()
    loss.backward()
    return loss.detach()


def in_parts(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x)
    torch.autograd.grad(loss, [model.blocks[1].first.weight], retain_graph=True)
    loss.backward()
    return loss.detach()


@pytest.mark.filterwarnings("ignore:lowtide.adapt cannot plan")
@pytest.mark.parametrize(
    ("step", "make"),
    [
        (other_settings, Settings),
        (under_a_mode, Plain),
        (evaluated_and_frozen, lambda: nn.Sequential(Counts(), nn.Dropout(0.3))),
        (two_at_once, Counts),
        (elsewhere, Draws),
        (after_an_error, Counts),
        (in_parts, Counts),
    ],
)
def test_whatever_happens_between_the_passes(step: Any, make: Any) -> None:
    compared(Case(make), step)


def test_parameters_changed_between_the_passes_are_an_error_as_in_eager() -> None:
    def updates(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        loss = model(x)
        with torch.no_grad():
            model.blocks[1].second.weight.mul_(0.9)
        loss.backward()
        return loss

    for adapted in (False, True):
        model = made(Plain)
        with lowtide.adapt(model, memory_budget="1GiB") as adapter:
            adapter._plain = not adapted
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                trained(model, updates)


class Timed(Plain):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x * (time.perf_counter_ns() % 1000))


def test_what_cannot_be_watched_is_noticed() -> None:
    model = made(Timed)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        with pytest.warns(UserWarning, match="keeps Timed: its second run saves other numbers than its first"):
            trained(model, both_passes)
        assert not adapter.blocks


def test_parts_in_torchscript_are_kept() -> None:
    model = made(Scripted)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        with pytest.warns(UserWarning, match="keeps Scripted: part is TorchScript"):
            trained(model, both_passes)
        assert adapter.history.records[-1].dropped == 0


# -- what is left -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "through"), [(Given2, grows_a_list), (Stores, in_a_row), (Counts, in_a_row)])
@pytest.mark.parametrize("backward", [True, False])
def test_nothing_is_left_of_batches_before(make: Any, through: Any, backward: bool) -> None:
    model = made(make, through)
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        adapter._drop_all = True
        gc.disable()
        try:
            levels = []
            for _ in range(6):
                loss = model(torch.ones(50, WIDTH))
                if backward:
                    loss.backward()
                    model.zero_grad()
                del loss
                levels.append(adapter._memory.level())
        finally:
            gc.enable()
            forget_results(model)
    assert levels[2] == levels[-1]


def test_preflight_puts_back_what_the_model_reaches() -> None:
    for make in (Counts, Draws, WritesState, ScalesWeights, ReplacesWeights):
        ours = made(make)
        with lowtide.adapt(ours, memory_budget="1GiB") as adapter, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            now.batch = LATE
            adapter.preflight(torch.ones(4, WIDTH), loss=lambda loss: loss)
            found = trained(ours, both_passes)
        assert_same_bits(found, trained(made(make), both_passes))


# -- failures of our own ----------------------------------------------------------------------------------------------


def fails(*args: Any, **kwargs: Any) -> Any:
    raise LookupError("no such thing")


@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        (adapt_drop, "SecondRuns", "keeps Plain: LookupError"),
        (adapt_drop.SecondRuns, "look", "keeps Plain: LookupError"),
        (adapting, "Rollback", "keeps everything: LookupError"),
    ],
)
def test_what_fails_of_our_own_ends_in_plain_training(
    monkeypatch: pytest.MonkeyPatch, where: Any, what: str, said: str
) -> None:
    monkeypatch.setattr(where, what, fails)
    (warning,) = compared(Case(Plain))
    assert said in warning


# -- contents ---------------------------------------------------------------------------------------------------------

WRITES: dict[str, Callable[[torch.Tensor], object]] = {
    "in place": lambda t: t.add_(1),
    "a view": lambda t: t[0].zero_(),
    "data": lambda t: t.data.mul_(2),
    "numpy": lambda t: t.numpy().__setitem__(0, 5.0),
    "out": lambda t: torch.add(t, 1, out=t),
    "storage": lambda t: t.untyped_storage().fill_(1),
    "smaller": lambda t: t.untyped_storage().resize_(0),
}


@pytest.mark.parametrize("how", WRITES)
def test_contents_are_kept_without_a_copy_until_somebody_writes(how: str) -> None:
    tensor = torch.rand(2000, 8)
    expected = tensor.clone()
    with lowtide.measure() as measured:
        content = Content(tensor)
    assert measured.peak_bytes == 0
    assert not content.moved() and not content.was_written() and not content.took_bytes
    tensor.sum(), tensor @ tensor.T, torch.nn.functional.layer_norm(tensor, (8,))
    assert not content.moved()
    WRITES[how](tensor)
    assert content.moved() and content.was_written() and content.took_bytes
    assert torch.equal(content.fresh(), expected)
    content.fresh().zero_()
    assert torch.equal(content.fresh(), expected)


def test_memory_that_numpy_shows_is_not_shared() -> None:
    tensor = torch.rand(2000, 8)
    shown = tensor.numpy()
    content = Content(tensor)
    tensor.add_(1)
    assert content.is_lost() and not content.moved()
    assert shown[0, 0] == tensor[0, 0]
    small = torch.zeros(3)
    small.numpy()
    content = Content(small)
    small.add_(1)
    assert content.fresh().sum() == 0


@pytest.mark.parametrize("kind", ["leaf", "leaf with gradient", "result", "marked"])
def test_fresh_tensors_are_like_those_of_the_first_run(kind: str) -> None:
    tensor = torch.rand(3, 4, requires_grad=kind != "leaf").mT
    tensor = tensor * 2 if kind == "result" else tensor.detach().requires_grad_(kind == "leaf with gradient")
    if kind == "marked":
        tensor.mark = 5
    fresh = Content(tensor).fresh()
    assert (fresh.is_leaf, fresh.requires_grad) == (tensor.is_leaf, tensor.requires_grad)
    assert fresh.stride() == tensor.stride() and torch.equal(fresh, tensor)
    assert getattr(fresh, "mark", None) == getattr(tensor, "mark", None)
    if kind != "leaf with gradient":
        fresh.mul_(2)


def test_arguments_are_given_again_as_they_were() -> None:
    class Pair(NamedTuple):
        one: Any
        other: Any

    x = torch.rand(3)
    items: list[Any] = [x, 2]
    items.append(items)
    args = (x, items, Pair(items, {"x": x}), deque([1], maxlen=1), {3})
    given = Given(args, {"key": [x]}, lambda name, tensor: Content(tensor))
    items.append("more")
    args[2].other["y"] = 1
    args[3].append(2)
    args[4].add(4)
    expected = x.clone()
    x.zero_()
    for _ in range(2):
        (first, again, pair, queue, members), kwargs = given.again()
        assert torch.equal(first, expected) and len(again) == 3 and again[2] is again
        assert again[0] is first and pair.one is again and pair.other == {"x": first} and kwargs == {"key": [first]}
        assert (list(queue), queue.maxlen, members, type(pair)) == ([1], 1, {3}, Pair)
        again.clear(), pair.other.clear()
        with torch.no_grad():
            first.zero_()
    assert list(given.written()) == ["argument 0"]


def test_random_states_are_read_when_somebody_draws() -> None:
    states = RandomStates()
    for draw in (random.random, np.random.rand, np.random.randn, np.random.randn, lambda: random.seed(3)):
        state = states.now()
        assert states.now() is state
        draw()
        assert states.now() is not state
    state = states.now()
    drawn = [(state.restore(), random.gauss(0, 1), np.random.randn()) for _ in range(2)]
    assert drawn[0] == drawn[1]
