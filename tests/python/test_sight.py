"""Memory that the step function reads past PyTorch, where the step writes it: refused by name, or never stale."""

from __future__ import annotations

import array
import ctypes
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from both_ways import Run, equal_both_ways, perceptron, state_of
from lowtide._live.sight import Sight

Optimizer = torch.optim.Optimizer
of_module: Any = None


def numbers(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def first(memory: Any) -> float:
    """What the first items come to, of an array or of a storage's bytes."""
    return float((memory if isinstance(memory, np.ndarray) else np.array(memory.tolist())).ravel()[:4].sum())


def float_pointer(tensor: torch.Tensor) -> Any:
    return ctypes.cast(tensor.data_ptr(), ctypes.POINTER(ctypes.c_float))


def floats(tensor: torch.Tensor) -> Any:
    return (ctypes.c_float * tensor.numel()).from_address(tensor.data_ptr())


# By what memory is read, how it is made of a weight, and how it is read.
KINDS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], float]]] = {
    "numpy": (numbers, first),
    "part of numpy": (lambda w: numbers(w)[::-1, 2:], first),
    "by dlpack": (lambda w: np.from_dlpack(w.detach()), first),
    "memoryview": (lambda w: memoryview(numbers(w).reshape(-1)), lambda m: m[0]),
    "storage": (lambda w: w.untyped_storage(), lambda s: float(s[0] + s[1] * 256 + s[2] * 65536 + s[3])),
    "typed storage": (lambda w: w.detach().view(-1).storage(), lambda s: float(s[0])),
    "ctypes": (floats, lambda m: m[0]),
    "pointer": (float_pointer, lambda p: p[0]),
    "method": (lambda w: numbers(w).sum, lambda total: float(total())),
}


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("kind", KINDS)
def test_memory_of_a_weight(kind: str) -> None:
    make, read = KINDS[kind]

    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        memory = make(model[0].weight)

        def step(x: torch.Tensor) -> float:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
            return read(memory)

        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            run.note(compiled(torch.ones(3, 8)))
        run.note(state_of(model))

    run = equal_both_ways(scenario)
    assert run.planned == 0
    assert "shares memory with 0.weight" in run.said[0]


class Holder:
    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.other = None

    def read(self) -> float:
        return float(self.memory[0, 0])


def of_closure(memory: Any, model: nn.Module) -> Callable[[], float]:
    return lambda: float(memory[0, 0])


def of_default(memory: Any, model: nn.Module) -> Callable[[], float]:
    def read(memory: Any = memory) -> float:
        return float(memory[0, 0])

    return read


def of_global(memory: Any, model: nn.Module) -> Callable[[], float]:
    global of_module
    of_module = memory
    return lambda: float(of_module[0, 0])


def of_containers(memory: Any, model: nn.Module) -> Callable[[], float]:
    held = {"all": [(1, memory)]}
    return lambda: float(held["all"][0][1][0, 0])


def of_object(memory: Any, model: nn.Module) -> Callable[[], float]:
    return Holder(memory).read


def of_namespace(memory: Any, model: nn.Module) -> Callable[[], float]:
    held = SimpleNamespace(inner=SimpleNamespace(memory=memory))
    return lambda: float(held.inner.memory[0, 0])


def of_model(memory: Any, model: nn.Module) -> Callable[[], float]:
    model[1].memory = memory
    return lambda: float(model[1].memory[0, 0])


def of_other_module(memory: Any, model: nn.Module) -> Callable[[], float]:
    other = nn.Sequential(nn.ReLU())
    other[0].memory = memory
    return lambda: float(other[0].memory[0, 0])


def of_tensor(memory: Any, model: nn.Module) -> Callable[[], float]:
    tensor = torch.ones(3)
    tensor.memory = memory
    return lambda: float(tensor.memory[0, 0])


HOLDERS = [
    of_closure, of_default, of_global, of_containers, of_object, of_namespace, of_model, of_other_module, of_tensor,
]  # fmt: skip


def reading_steps(run: Run, hold: Callable[..., Any], memory_of: Callable[..., Any], model: nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    read = hold(memory_of(model), model)

    def step(x: torch.Tensor) -> float:
        optimizer.zero_grad(set_to_none=False)
        model(x).pow(2).mean().backward()
        optimizer.step()
        return read()

    compiled = run.wrap(step, model, optimizer)
    for _ in range(3):
        run.note(compiled(torch.ones(3, 8)))


@pytest.mark.parametrize("hold", HOLDERS)
def test_where_the_function_may_have_it_from(hold: Callable[..., Any]) -> None:
    run = equal_both_ways(lambda run: reading_steps(run, hold, lambda model: numbers(model[0].weight), perceptron()))
    assert run.planned == 0
    assert "shares memory with 0.weight" in run.said[0]


def gradient(model: nn.Module) -> np.ndarray:
    model[0].weight.grad = torch.zeros_like(model[0].weight)
    return numbers(model[0].weight.grad)


@pytest.mark.parametrize(
    ("memory_of", "name"),
    [
        (lambda model: numbers(model[1].running_mean)[None], "1.running_mean"),
        (gradient, "the gradient of 0.weight"),
    ],
)
def test_other_memory_that_a_step_writes(memory_of: Callable[..., Any], name: str) -> None:
    def scenario(run: Run) -> None:
        reading_steps(run, of_closure, memory_of, nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)))

    run = equal_both_ways(scenario)
    assert run.planned == 0
    assert f"shares memory with {name}:" in run.said[0]


@pytest.mark.parametrize("held", ["array", "bytes", "storage"])
def test_a_tensor_from_outside_that_the_step_writes(held: str) -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        memory: Any = {"array": np.zeros(4, np.float32), "bytes": bytearray(16), "storage": torch.zeros(4)}[held]
        total = memory if held == "storage" else torch.frombuffer(memory, dtype=torch.float32)
        memory = total.untyped_storage() if held == "storage" else memory
        seen = []

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            y = model(x)
            total.add_(y.detach().sum(0))
            seen.append(bytes(memory) if held == "bytes" else [memory[index] for index in range(4)])
            loss = y.pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            run.note(compiled(torch.ones(3, 8)))
        run.note(seen)

    run = equal_both_ways(scenario)
    assert run.planned == 0
    assert "`memory`" in run.said[0] and "shares memory with a tensor" in run.said[0]


@pytest.mark.parametrize("how", ["variable", "global", "argument", "named argument"])
def test_memory_that_comes_into_sight_later(how: str) -> None:
    def scenario(run: Run) -> None:
        global of_module
        model = perceptron()
        optimizer = torch.optim.AdamW(model.parameters(), 0.1)
        memory = of_module = np.zeros((1, 1), np.float32)

        def step(x: torch.Tensor, given: Any = None) -> float:
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
            return float((memory if how == "variable" else of_module if how == "global" else given)[0, 0])

        compiled = run.wrap(step, model, optimizer)
        for index in range(5):
            if index == 3:
                moments = numbers(optimizer.state[model[0].weight]["exp_avg"])
                if how == "variable":
                    memory = moments
                elif how == "global":
                    of_module = moments
            given = moments if index >= 3 else np.zeros((1, 1), np.float32)
            if how == "named argument":
                run.note(compiled(torch.ones(3, 8), given=given))
            else:
                run.note(compiled(torch.ones(3, 8), given) if how == "argument" else compiled(torch.ones(3, 8)))

    run = equal_both_ways(scenario)
    assert run.planned == 3
    assert "shares memory with an optimizer's exp_avg" in run.said[0]


# -- memory that the function itself gets at ---------------------------------------------------------------------------

# What it makes, and whether the step can be planned when it is made first of all, after the model and after backward().
MADE: dict[str, tuple[Callable[[nn.Module, torch.Tensor], Any], tuple[bool, bool, bool]]] = {
    "weight": (lambda model, x: numbers(model[0].weight), (True, False, True)),
    "data": (lambda model, x: model[0].weight.data.numpy(), (True, False, True)),
    "as an array": (lambda model, x: np.asarray(model[0].weight.detach()), (True, False, True)),
    "by dlpack": (lambda model, x: np.from_dlpack(model[0].weight.detach()), (True, False, True)),
    "storage": (lambda model, x: model[0].weight.untyped_storage(), (True, True, True)),
    "statistics": (lambda model, x: model[1].running_mean.numpy(), (False, False, True)),
    "argument": (lambda model, x: x.numpy(), (True, True, True)),
}


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("made", MADE)
def test_memory_that_the_function_gets_at_itself_is_never_stale(made: str, place: int) -> None:
    make, planned = MADE[made]

    def scenario(run: Run) -> None:
        model = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

        def step(x: torch.Tensor) -> list[float]:
            memory = make(model, x) if place == 0 else None
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            memory = make(model, x) if place == 1 else memory
            loss.backward()
            memory = make(model, x) if place == 2 else memory
            before = first(memory)
            optimizer.step()
            return [before, first(memory)]

        compiled = run.wrap(step, model, optimizer)
        for _ in range(4):
            run.note(compiled(torch.randn(3, 8)))
        run.note(state_of(model, optimizer))

    assert (equal_both_ways(scenario).planned == 4) == planned[place]


# -- ordinary scripts --------------------------------------------------------------------------------------------------


def test_arrays_that_share_nothing_that_is_written_are_no_matter() -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = np.random.randn(8, 3, 8).astype(np.float32)
        whole = torch.from_numpy(data)
        history = np.zeros(8)
        weights = array.array("f", [0.5])

        def step(x: torch.Tensor, index: int) -> float:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean() * weights[0] + model(torch.from_numpy(data[index])).mean()
            loss.backward()
            optimizer.step()
            history[index] = loss.item()
            return float(data[index].sum()) + float(history.sum())

        compiled = run.wrap(step, model, optimizer)
        for index in range(8):
            run.note(compiled(whole[index], index))
        run.note(history.tolist())

    run = equal_both_ways(scenario)
    assert run.planned == 8
    assert not run.said


def test_new_arrays_at_each_call_are_planned_and_not_kept() -> None:
    batch = np.zeros((3, 8), np.float32)

    def scenario(run: Run) -> None:
        nonlocal batch
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(more: np.ndarray) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(torch.from_numpy(batch)).pow(2).mean() * float(more[0])
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        held = []
        for _ in range(5):
            batch, given = np.random.randn(3, 8).astype(np.float32), np.ones(1)
            run.note(compiled(given))
            held += [weakref.ref(batch), weakref.ref(given)]
        batch = given = np.zeros(1)
        run.note([one() is None for one in held])

    run = equal_both_ways(scenario)
    assert run.planned == 5
    assert not run.said


def test_looking_again_takes_microseconds() -> None:
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data, other = np.zeros((3, 8), np.float32), [1.0]

    def step(x: torch.Tensor) -> float:
        return float(data[0, 0]) + other[0] + float(model(x).sum()) + len(optimizer.param_groups)

    sight = Sight(step, model, [optimizer])
    sight.refuse((), {})
    best = min(_seconds(lambda: sight.has_changed((torch.ones(1),), {})) for _ in range(200))
    assert best < 50e-6


def _seconds(function: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin
