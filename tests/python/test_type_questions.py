"""Code that asks whether the class of something is that of tensors: found by its bytecode, and refused by name."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import lowtide
from both_ways import Run, equal_both_ways, perceptron, plain
from lowtide._guards.type_questions import asks_for_tensors

TABLE = {Tensor: 1.0}
KINDS = (Tensor, list)
OTHERS = (list, tuple)


class Asking(nn.Module):
    """Its methods ask."""

    kinds = (Tensor,)

    def of_itself(self, x: Any) -> Any:
        return type(self) is Asking and isinstance(x, Tensor)

    def by_attribute(self, x: Any) -> Any:
        return type(x) in self.kinds and isinstance(x, Tensor)

    def own_name(self, x: Any) -> Any:
        return self.__class__.__name__ == "Tensor" and isinstance(x, Tensor)

    def another_like_itself(self, x: Any) -> Any:
        return type(self)() if isinstance(x, Tensor) else None


def closure(table: Any) -> Callable[[Any], Any]:
    return lambda x: table.get(type(x))


def by_variable(x: Any) -> int:
    kind = type(x)
    if kind is torch.Tensor:
        return 1
    return 2


def in_handler(x: Any) -> Any:
    try:
        x = x.first()
    except ValueError:
        if type(x) is torch.Tensor:
            return 1
    return 2


def in_loops(xs: Any) -> int:
    with xs as opened:
        for x in opened:
            while type(x) is torch.Tensor:
                return 1
    return 2


def imported(x: Any) -> bool:
    from torch import Tensor as Kind

    return type(x) is Kind


def given_back(x: Any) -> Any:
    return type(x), torch.Tensor


def method_of_its_class(x: Any) -> Any:
    kind = type(x)
    return kind.zeros() + kind(3) + isinstance(x, Tensor)


def told(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        raise TypeError("no tensor but", type(x))
    print(type(x))
    return f"{type(x)!r:>3} {type(x).__name__}"


ASKS: dict[str, Any] = {
    "is": lambda x: type(x) is torch.Tensor,
    "equal": lambda x: 1 if type(x) == Tensor else 2,  # noqa: E721
    "is not": lambda x: type(x) is not Tensor,
    "the other way round": lambda x: Tensor is type(x),
    "one of": lambda x: type(x) in (torch.Tensor, list),
    "none of": lambda x: type(x) not in {Tensor},
    "one of a table": lambda x: type(x) in KINDS,
    "one of its own": Asking.by_attribute,
    "item": lambda x: TABLE[type(x)],
    "get": lambda x: TABLE.get(type(x), 3.0),
    "get of a literal": lambda x: {torch.Tensor: 1.0}.get(type(x), 3.0),
    "item of a default": lambda x, table={Tensor: 1}: table[type(x)],
    "get of a closure": closure({Tensor: 1}),
    "__class__": lambda x: x.__class__ is Tensor,
    "of an attribute": lambda x: type(x.y[0]) is Tensor,
    "of a choice": lambda x, c: type(x if c else c) is Tensor,
    "in a condition": lambda x, c: (c and type(x) is Tensor) or 3,
    "in a list": lambda xs: [x for x in xs if type(x) is Tensor],
    "in a generator": lambda xs: all(type(x) is Tensor for x in xs),
    "of two": lambda x, y: type(x) is type(y),
    "in a chain": lambda x, y: type(x) is type(y) is Tensor,
    "the name": lambda x: type(x).__name__ == "Tensor",
    "the other name": lambda x: x.__class__.__qualname__ == "Tensor",
    "a parameter": lambda x: type(x) is nn.Parameter,
    "an argument": lambda x: closure(type(x))(Tensor),
    "a named argument": lambda x: dict(kind=type(x), of=Tensor),
    "the function as an argument": lambda xs: list(map(type, xs)) == [Tensor],
    "a key": lambda x: {type(x): 1}[Tensor],
    "a variable": by_variable,
    "in a handler": in_handler,
    "in loops": in_loops,
    "imported": imported,
    "given back": given_back,
}
DOES_NOT: dict[str, Any] = {
    "isinstance": lambda x: isinstance(x, Tensor),
    "issubclass": lambda x: issubclass(type(x), Tensor),
    "another class": lambda x: type(x) is list and isinstance(x, Tensor),
    "other classes": lambda x: type(x) in (list, tuple) or type(x) in OTHERS or isinstance(x, Tensor),
    "nothing": lambda x: type(x) is None or isinstance(x, Tensor),
    "another name": lambda x: type(x).__name__ == "Foo" or isinstance(x, Tensor),
    "no tensors in sight": lambda x: {int: 1}.get(type(x)),
    "makes one": lambda x: type(x)(x) if isinstance(x, Tensor) else 0,
    "makes a class": lambda: type("Named", (Tensor,), {}),
    "is a class": lambda x: isinstance(x, type) and isinstance(x, Tensor),
    "itself": Asking.of_itself,
    "own name": Asking.own_name,
    "another like itself": Asking.another_like_itself,
    "methods of its class": method_of_its_class,
    "told": told,
}


@pytest.mark.parametrize("name", ASKS)
def test_code_that_asks_is_found(name: str) -> None:
    assert asks_for_tensors(ASKS[name], users=True)


@pytest.mark.parametrize("name", DOES_NOT)
def test_other_code_is_left_alone(name: str) -> None:
    assert not asks_for_tensors(DOES_NOT[name], users=True)


def test_of_libraries_only_code_that_says_so() -> None:
    said = {"get of a closure", "of two", "an argument", "one of its own", "get of a literal", "given back"}
    found = {name for name, function in ASKS.items() if asks_for_tensors(function, users=False)}
    assert {"is", "one of a table", "item", "the name", "a variable"} <= found
    assert not said & found


def test_no_module_of_pytorch_is_refused() -> None:
    modules = [module for name, module in sys.modules.items() if name.startswith("torch.nn.modules")]
    found = itertools.chain.from_iterable(vars(module).values() for module in modules if module is not None)
    forwards = {vars(kind).get("forward") for kind in found if isinstance(kind, type) and issubclass(kind, nn.Module)}
    asked = [f for f in forwards - {None} if hasattr(f, "__code__") and asks_for_tensors(f, users=False)]
    assert len(forwards) > 100
    assert not asked


# -- in steps ----------------------------------------------------------------------------------------------------------


class Chooses(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y.relu() if type(y) is torch.Tensor else y


def hook_that_asks(_module: nn.Module, _args: Any, out: Tensor) -> Tensor:
    return out * 2 if type(out) is Tensor else out


class Weighs:
    """A loss of the user's, which the step function calls."""

    def __init__(self) -> None:
        self.of = SimpleNamespace(table=TABLE)

    def __call__(self, y: Tensor) -> Tensor:
        return y * (2.0 if type(y) == Tensor else 3.0)  # noqa: E721


def of_module(_y: Tensor) -> Tensor:
    return _y


def of_function(y: Tensor) -> Tensor:
    return y * TABLE.get(type(y), 3.0)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[Tensor], Tensor], str]] = {
    "module": (lambda: Chooses(8, 4), of_module, "`Chooses.forward` ("),
    "module within": (lambda: nn.Sequential(nn.Linear(8, 8), Chooses(8, 4)), of_module, "`Chooses.forward` ("),
    "function": (perceptron, of_function, "`weigh` ("),
    "object": (perceptron, Weighs(), "`Weighs.__call__` ("),
}


@pytest.mark.parametrize("case", CASES)
def test_a_step_with_such_code_runs_eager_and_says_where(case: str) -> None:
    make, weigh, said = CASES[case]

    def scenario(run: Run) -> None:
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = weigh(model(x)).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            run.note(compiled(torch.randn(3, 8)))

    run = equal_both_ways(scenario)
    assert run.planned == 0
    assert said in run.said[0] and f"{__file__}:" in run.said[0] and "use isinstance" in run.said[0]


def test_a_hook_that_asks() -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        model[0].register_forward_hook(hook_that_asks)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        compiled = run.wrap(plain(model, optimizer), model, optimizer)
        for _ in range(3):
            run.note(compiled(torch.randn(3, 8)))

    run = equal_both_ways(scenario)
    assert run.planned == 0
    assert "use isinstance" in run.said[0]


def test_a_module_that_comes_to_ask_later() -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        compiled = run.wrap(plain(model, optimizer), model, optimizer)
        for index in range(4):
            if index == 2:
                model.append(Chooses(8, 4))
            run.note(compiled(torch.randn(3, 8)))

    run = equal_both_ways(scenario)
    assert run.planned == 2
    assert "use isinstance" in run.said[0]


def test_a_step_that_tells_classes_without_asking_is_planned() -> None:
    said: list[str] = []

    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            said.append(f"{type(loss)} {type(loss).__name__} {isinstance(loss, Tensor)}")
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            run.note(compiled(torch.randn(3, 8)))

    assert equal_both_ways(scenario).planned == 3
    assert set(said) == {"<class 'torch.Tensor'> Tensor True"}


def test_a_budget_raises() -> None:
    model = Chooses(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = lowtide.compile(plain(model, optimizer), model=model, optimizer=optimizer, memory_budget="1GiB")
    with pytest.raises(lowtide.CaptureError, match="use isinstance"):
        step(torch.randn(3, 8))
