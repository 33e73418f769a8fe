"""Tables of step functions: each runs eager and compiled, and must leave the same behind after every call.

    cases = Cases()

    @cases.add()
    def counts_its_calls(w, x):
        w.seen.append(len(w.seen))
        return w.train(w.loss(x))

`planned` says which calls of a case are planned: "all", "some" or "none".
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

from both_ways import Run, equal_both_ways, perceptron, state_of

CALLS = 8


@dataclass
class World:
    """What a step function has, and what its Python leaves behind."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    seen: list[Any] = field(default_factory=list)  # whatever the step function writes down
    beside: list[nn.Module] = field(default_factory=list)  # modules that are not the model's
    others: list[torch.optim.Optimizer] = field(default_factory=list)  # given to `compile` as well
    own: SimpleNamespace = field(default_factory=SimpleNamespace)  # what a case has set up
    calls: int = 0

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).pow(2).mean()

    def train(self, loss: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


@dataclass
class Case:
    """One row."""

    make: Callable[[World], Callable[[torch.Tensor], Any]]
    planned: str
    model: Callable[[], nn.Module]
    inputs: Callable[[int], torch.Tensor]
    said: str


def batch(_call: int) -> torch.Tensor:
    return torch.randn(12, 8)


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 4))


def normalising() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 4))


def nothing(_world: World) -> None:
    pass


class Cases(dict[str, Case]):
    """The table, by name."""

    def made(
        self,
        planned: str = "all",
        *,
        model: Callable[[], nn.Module] = perceptron,
        inputs: Callable[[int], torch.Tensor] = batch,
        said: str = "",
    ) -> Callable[[Any], Any]:
        """A row whose function makes the step function; `said` is part of the warning."""

        def put(make: Any) -> Any:
            self[make.__name__] = Case(make, planned, model, inputs, said)
            return make

        return put

    def add(self, planned: str = "all", *, setup: Callable[[World], Any] = nothing, **options: Any) -> Any:
        """A row whose function is the step function, with the world before its input."""

        def put(function: Any) -> Any:
            def make(world: World) -> Any:
                setup(world)

                def step(x: torch.Tensor) -> Any:
                    return function(world, x)

                return step

            make.__name__ = function.__name__
            self.made(planned, **options)(make)
            return function

        return put


def exact(value: Any) -> Any:
    """A value with what its bits do not tell: whether a tensor belongs to a graph, and how it lies in memory."""
    if isinstance(value, torch.Tensor):
        return (value.stride(), value.requires_grad, value.is_leaf, type(value).__name__, value)
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, (list, tuple)) else value


def check(case: Case) -> Run:
    """Both ways, call by call; errors of the step function are noted, and training goes on."""

    def scenario(run: Run) -> None:
        model = case.model()
        w = World(model, torch.optim.AdamW(model.parameters(), lr=0.01))
        step = run.wrap(case.make(w), model, [w.optimizer, *w.others])
        for w.calls in range(1, CALLS + 1):
            x = case.inputs(w.calls)
            try:
                result = step(x)
            except (ValueError, RuntimeError, IndexError, TypeError, KeyboardInterrupt) as error:
                result = (type(error).__name__, str(error))
            run.note("what call", w.calls, "gives and writes down", exact(result), exact(w.seen), x, x.grad)
            states = [(state_of(one), one.training) for one in (model, *w.beside)]
            groups = [{**group, "params": len(group["params"])} for group in w.optimizer.param_groups]
            run.note("what call", w.calls, "leaves behind", states, state_of(model, w.optimizer, *w.others), groups)
            run.note("what Python draws after call", w.calls, random.random(), np.random.random())

    run = equal_both_ways(scenario)
    if case.planned == "all":
        assert (run.eager, run.said) == (0, [])
    assert (run.planned > 0) == (case.planned != "none")
    assert (run.eager > 0) == (case.planned != "all")
    assert case.said in "\n".join(run.said)
    return run
