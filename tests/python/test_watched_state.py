"""Python state that modules read in their own ways: through weak references, wrappers, arrays, libraries."""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import functools
import os
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import lowtide
from both_ways import Run, equal_both_ways, perceptron

BFLOAT16 = {"device_type": "cpu", "dtype": torch.bfloat16}


class Trainer:
    def __init__(self) -> None:
        self.steps = 0

    @property
    def scale(self) -> float:
        return 1.0 + self.steps


@pytest.mark.parametrize("hold", [weakref.ref, weakref.proxy])
def test_what_a_module_reads_through_a_weak_reference_is_watched(hold: Callable[[Any], Any]) -> None:
    class Model(nn.Module):
        def __init__(self, trainer: Trainer) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.trainer = hold(trainer)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            trainer = self.trainer() if hold is weakref.ref else self.trainer
            return self.linear(x) * trainer.scale

    def scenario(run: Run) -> None:
        trainer = Trainer()
        model = Model(trainer)
        step = run.wrap(lambda x: model(x), model)
        with torch.no_grad():
            for index in range(4):
                run.note(step(torch.randn(3, 8)))
                trainer.steps += index % 2
        alive = weakref.ref(trainer)
        del trainer
        run.note(alive() is None)

    assert equal_both_ways(scenario).eager == 0


def test_of_a_librarys_trainer_only_what_the_module_names_is_watched() -> None:
    class LibraryTrainer(Trainer):
        __module__ = "lightning.pytorch"

        def __init__(self) -> None:
            super().__init__()
            self.batches_that_stepped = 0

    class Model(nn.Module):
        def __init__(self, trainer: LibraryTrainer) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.trainer = trainer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.trainer.scale

    def scenario(run: Run) -> None:
        trainer = LibraryTrainer()
        model = Model(trainer)
        step = run.wrap(lambda x: model(x), model)
        with torch.no_grad():
            for index in range(6):
                run.note(step(torch.ones(3, 8)))
                trainer.batches_that_stepped = index
                trainer.steps = index // 3

    run = equal_both_ways(scenario)
    assert run.planned == 6
    assert run.steps[0].stats()["captures"] == 2


variable: contextvars.ContextVar[float] = contextvars.ContextVar("variable")
of_thread = threading.local()
inner: dict[str, float] = {}
read_inner = functools.lru_cache(None)(lambda: inner["n"])
nested: list[Any] = [[1.0]]
for _ in range(20):
    nested = [nested]


def set_inner(value: float) -> None:
    inner["n"] = value


def set_and_forget(value: float) -> None:
    set_inner(value)
    read_inner.cache_clear()


def set_innermost(value: float) -> None:
    found = nested
    while isinstance(found[0], list):
        found = found[0]
    found[0] = value


def innermost() -> float:
    found = nested
    while isinstance(found, list):
        found = found[0]
    return found


wrapped, chained = collections.UserDict(n=1.0), collections.ChainMap({}, inner)
proxy, view, getter = types.MappingProxyType(inner), inner.values(), inner.__getitem__
numbers, more_numbers = np.ones(3), array.array("d", [1.0])
objects = np.full((2, 2), 1.0, dtype=object)

# How a module may read a number, and how it is set from outside.
OUT_OF_SIGHT: dict[str, tuple[Callable[[], float], Callable[[float], Any]]] = {
    "UserDict": (lambda: wrapped["n"], lambda value: wrapped.update(n=value)),
    "ChainMap": (lambda: chained["n"], set_inner),
    "mapping proxy": (lambda: proxy["n"], set_inner),
    "view": (lambda: sum(view), set_inner),
    "method of a dict": (lambda: getter("n"), set_inner),
    "cached function": (read_inner, set_and_forget),
    "numpy": (lambda: float(numbers[1]), lambda value: numbers.fill(value)),
    "objects": (lambda: float(objects[1, 1]), lambda value: objects.__setitem__((1, 1), value)),
    "array": (lambda: more_numbers[0], lambda value: more_numbers.__setitem__(0, value)),
    "context variable": (lambda: variable.get(), lambda value: variable.set(value)),
    "thread local": (lambda: of_thread.n, lambda value: setattr(of_thread, "n", value)),
    "deep inside": (innermost, set_innermost),
    "environment": (lambda: float(os.environ["LOWTIDE_TEST_NUMBER"]),
                    lambda value: os.environ.update(LOWTIDE_TEST_NUMBER=str(value))),
}  # fmt: skip


@pytest.mark.parametrize("name", OUT_OF_SIGHT)
def test_what_keeps_its_content_out_of_sight_is_watched(name: str) -> None:
    read, write = OUT_OF_SIGHT[name]

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.read = read

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.read()

    def scenario(run: Run) -> None:
        model = Model()
        step = run.wrap(lambda x: model(x), model)
        with torch.no_grad():
            for number in (1.0, 2.0, 2.0, 1.0):
                write(number)
                run.note(step(torch.ones(3, 8)))

    run = equal_both_ways(scenario)
    assert run.planned == 4
    assert run.steps[0].stats()["captures"] == 2


class Rows(np.ndarray):
    pass


def count_at(index: Any) -> Callable[[Any], None]:
    def count(memory: Any) -> None:
        memory[index] = memory[index] + 1

    return count


def add_byte(memory: Any) -> None:
    memory.append(1)


def grow(memory: Any) -> None:
    memory[0].append(len(memory[0]))


def count_value(memory: Any) -> None:
    memory.value += 1


# What a module may count in, how it does so, and what it has counted.
MEMORY: dict[str, tuple[Callable[[], Any], Callable[[Any], None], Callable[[Any], Any]]] = {
    "array": (lambda: array.array("i", [0, 5]), count_at(0), list),
    "array that grows": (lambda: array.array("i", [0]), add_byte, list),
    "bytearray": (lambda: bytearray(2), count_at(1), list),
    "bytearray that grows": (lambda: bytearray(2), add_byte, list),
    "view of bytes": (lambda: memoryview(bytearray(3)), count_at(1), list),
    "every second byte": (lambda: memoryview(bytearray(6))[::2], count_at(1), list),
    "numpy": (lambda: np.zeros(2), count_at(1), np.ndarray.tolist),
    "numpy without dimensions": (lambda: np.zeros(()), count_at(()), np.ndarray.tolist),
    "numpy with gaps": (lambda: np.zeros((4, 6))[::2, 1::3].T, count_at((0, 1)), np.ndarray.tolist),
    "numpy subclass": (lambda: np.zeros((3, 4)).view(Rows)[:, ::2], count_at((0, 1)), np.ndarray.tolist),
    "numpy records": (
        lambda: np.zeros(2, [("n", "i4"), ("x", "f8")]),
        lambda a: count_at(1)(a["n"]),
        np.ndarray.tolist,
    ),
    "numpy objects": (lambda: np.zeros((2, 2), object), count_at((1, 0)), np.ndarray.tolist),
    "numpy lists": (lambda: np.array([[], None], object), grow, np.ndarray.tolist),
    "ctypes value": (lambda: ctypes.c_int(0), count_value, lambda memory: memory.value),
    "ctypes array": (lambda: (ctypes.c_double * 3)(), count_at(1), list),
}


@pytest.mark.parametrize("kind", MEMORY)
def test_memory_that_a_module_changes_is_put_back_before_eager_runs(kind: str) -> None:
    make, change, read = MEMORY[kind]

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.memory = make()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            change(self.memory)
            return self.linear(x)

    def scenario(run: Run) -> None:
        model = Counts()
        step = run.wrap(lambda x: model(x), model)
        with torch.no_grad():
            for _ in range(3):
                run.note(step(torch.ones(3, 8)))
        run.note(read(model.memory))

    run = equal_both_ways(scenario)
    assert run.planned == 0
    assert "the step changes `self.memory" in run.said[0]


def test_a_library_function_that_is_replaced_later(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.relu(self.linear(x))

    def scenario(run: Run) -> None:
        model = Model()
        step = run.wrap(lambda x: model(x), model)
        with torch.no_grad(), monkeypatch.context() as patched:
            run.note(step(torch.ones(3, 8)))
            patched.setattr(torch.nn.functional, "relu", lambda x: x * 2)
            run.note(step(torch.ones(3, 8)))

    assert equal_both_ways(scenario).planned == 2


def test_attributes_of_parameters_are_watched() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 4)
            self.linear.weight.gain = 1.0  # type: ignore[attr-defined]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.linear.weight.gain

    def scenario(run: Run) -> None:
        model = Model()
        step = run.wrap(lambda x: model(x), model)
        with torch.no_grad():
            for gain in (1.0, 2.0, 1.0):
                model.linear.weight.gain = gain  # type: ignore[attr-defined]
                run.note(step(torch.ones(3, 8)))

    run = equal_both_ways(scenario)
    assert run.planned == 3
    assert run.steps[0].stats()["captures"] == 2


def test_more_than_can_be_watched_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowtide._guards.walk.MAX_PLACES", 20)
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)])
    step = lowtide.compile(lambda x: model(x), model=model, on_unsupported="raise")
    with torch.no_grad(), pytest.raises(lowtide.CaptureError, match="more in Python than can be watched"):
        step(torch.ones(3, 8))


def test_a_region_object_that_is_switched_on_later() -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        region = torch.autocast(**BFLOAT16, enabled=False)

        def step(x: torch.Tensor) -> torch.Tensor:
            with region:
                return model(x).float()

        compiled = run.wrap(step, model)
        with torch.no_grad():
            for index in range(4):
                region._enabled = index >= 2
                run.note(compiled(torch.randn(3, 8)))

    assert equal_both_ways(scenario).eager == 0
