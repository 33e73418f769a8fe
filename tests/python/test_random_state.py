"""Random numbers: whoever sets the state is found by whatever name, and operators draw in the order of the program."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.random import manual_seed as seed_by_another_name

from both_ways import Run, equal_both_ways, state_of

STATE = torch.get_rng_state()


def forked(_model: nn.Module) -> None:
    with torch.random.fork_rng():
        torch.randn(3)


def rewound(_model: nn.Module) -> None:
    before = torch.default_generator.get_state()
    torch.randn(3)
    torch.default_generator.set_state(before)


SETTERS: dict[str, Callable[[nn.Module], Any]] = {
    "torch.manual_seed": lambda _: torch.manual_seed(7),
    "imported": lambda _: seed_by_another_name(7),
    "default_generator": lambda _: torch.default_generator.manual_seed(7),
    "seed": lambda _: torch.seed(),
    "set_rng_state": lambda _: torch.set_rng_state(STATE),
    "set_state": lambda _: torch.default_generator.set_state(STATE),
    "fork_rng": forked,
    "rewound": rewound,
    "random": lambda _: random.seed(3),
    "numpy": lambda _: np.random.seed(3),
}


@pytest.mark.parametrize("dropout", [0.5, 0.0])
@pytest.mark.parametrize("name", SETTERS)
def test_a_step_may_set_a_random_state(name: str, dropout: float) -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(dropout))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            SETTERS[name](model)
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        if name != "seed":
            torch.set_rng_state(STATE)  # as the step itself will set it: a change that changes nothing at first
        x = torch.ones(3, 8)
        for _ in range(3):
            result = compiled(x)
            if name != "seed":  # draws from the system
                run.note(result, state_of(model), random.random(), np.random.random())

    run = equal_both_ways(scenario)
    assert run.planned == 3 and not run.said


def test_a_fork_in_which_nothing_is_drawn_is_planned() -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))

        def step(x: torch.Tensor) -> torch.Tensor:
            with torch.random.fork_rng():
                doubled = x * 2
            return model(doubled)

        compiled = run.wrap(step, model)
        with torch.no_grad():
            for _ in range(3):
                run.note(compiled(torch.randn(3, 8)), torch.get_rng_state())

    assert equal_both_ways(scenario).eager == 0


# -- operators that the user wrote -------------------------------------------------------------------------------------

calls: list[int] = []
average = torch.zeros(1)


@torch.library.custom_op("lowtide_test::noise", mutates_args=())
def noise(x: torch.Tensor) -> torch.Tensor:
    return x + torch.randn_like(x)


@torch.library.custom_op("lowtide_test::counted", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    calls.append(len(calls))
    average.mul_(0.5).add_(x.mean())
    return x * len(calls) + average


for operator in (noise, counted):
    operator.register_fake(torch.empty_like)
    operator.register_autograd(lambda _ctx, gradient: gradient)


class Noisy(nn.Module):
    """All noise is drawn first, and used last: a planner would rather have it later."""

    def __init__(self, operator: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.operator = operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noisy = [self.operator(layer(x)) for layer in self.layers]
        dropped = [nn.functional.dropout(layer(x), 0.5).sum(1) for layer in self.layers]
        return torch.stack([*dropped, *(one.sum(1) for one in noisy)])


@pytest.mark.parametrize("operator", [noise, counted], ids=["random", "with state of its own"])
def test_operators_that_the_user_wrote_run_in_the_order_of_the_program(operator: Any) -> None:
    def scenario(run: Run) -> None:
        calls.clear()
        average.zero_()
        model = Noisy(operator)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            run.note(compiled(torch.randn(16, 32)), state_of(model), calls, average)

    assert equal_both_ways(scenario).eager == 0
