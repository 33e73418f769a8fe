"""Gradients of a region that stay in its arena after the backward pass: who holds them, and what else then runs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from backend_models import Pair, step, take_equal_times, vectors
from lowtide import _torch

ROWS = 48


class Broad(nn.Sequential):
    """Large gradients beside activations that a plan can make again."""

    def __init__(self) -> None:
        super().__init__(*[layer for _ in range(4) for layer in (nn.Linear(16, 48), nn.GELU(), nn.Linear(48, 16))])


def moved(pair: Pair) -> bool:
    """Whether the gradients of the pair's only region are in its arena."""
    (region,) = pair.together().regions
    (sized,) = region.sizes()
    assert sized.planned is not None and region.misses == 0
    return sized.planned.gradients_in_arena


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    take_equal_times(monkeypatch)
    torch.manual_seed(0)
    return Pair(Broad(), memory_budget=0.6)


def train(pair: Pair, steps: int = 3) -> None:
    for _ in range(steps):
        pair.both(step(lambda: vectors(ROWS)))


def test_they_move_when_nobody_holds_them(pair: Pair):
    train(pair, 1)
    assert not moved(pair), "one step says nothing of the next"
    (region,) = pair.together().regions
    (sized,) = region.sizes()
    apart = sized.planned
    train(pair, 3)
    assert moved(pair) and sized.planned is not None and apart is not None
    assert sized.planned.need <= 0.6 * sized.eager_bytes
    assert sized.planned.plan.time_ns < apart.plan.time_ns


def accumulates(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    for _ in range(3):
        call(vectors(ROWS)).square().mean().backward()
    optimizer.step()


def zeroes(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> None:
    call(vectors(ROWS)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def runs_forward_first(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> None:
    loss = call(vectors(ROWS)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@pytest.mark.parametrize("loop", [accumulates, zeroes, runs_forward_first])
def test_they_stay_apart_where_a_loop_holds_them(pair: Pair, loop: Callable[..., Any]):
    for _ in range(3):
        pair.both(loop)
    assert not moved(pair)


@pytest.mark.parametrize("loop", [accumulates, zeroes, runs_forward_first])
def test_a_loop_that_begins_to_hold_them(pair: Pair, loop: Callable[..., Any]):
    train(pair)
    assert moved(pair)
    for _ in range(3):
        pair.both(loop)
    assert not moved(pair)
    train(pair)
    assert not moved(pair), "for good"


def test_what_is_held_keeps_its_bits(pair: Pair):
    train(pair)
    assert moved(pair)
    held: list[tuple[torch.Tensor, Any, torch.Tensor]] = []
    for parameter in pair.copy.parameters():
        gradient = parameter.grad
        assert gradient is not None
        held.append((gradient, gradient.view(-1)[1:].numpy(), gradient.clone()))
    del gradient, parameter
    train(pair)
    assert all(torch.equal(gradient, copy) for gradient, _, copy in held)
    assert all((window == copy.view(-1)[1:].numpy()).all() for _, window, copy in held)
    assert not moved(pair)
    del held
    gc.collect()
    train(pair)


def test_they_outlive_their_region(monkeypatch: pytest.MonkeyPatch):
    take_equal_times(monkeypatch)
    pair = Pair(Broad(), memory_budget=0.6)
    train(pair)
    assert moved(pair)
    gradients = [parameter.grad for parameter in pair.copy.parameters()]
    copies = [gradient.clone() for gradient in gradients if gradient is not None]
    region = weakref.ref(next(iter(pair.together().regions)))
    other = Pair(Broad(), memory_budget=0.6)  # forgets what dynamo has compiled
    del pair
    gc.collect()
    assert region() is None
    train(other)
    assert all(map(torch.equal, gradients, copies))


@pytest.mark.parametrize("held", ["by nobody else", "by the loop", "by a copy of the model"])
def test_a_model_that_is_used_no_more_goes(held: str, monkeypatch: pytest.MonkeyPatch):
    """What is compiled outlives it, and would keep it in memory: its parameters have gradients in the arena."""
    take_equal_times(monkeypatch)
    pair = Pair(Broad(), memory_budget=0.6)
    train(pair)
    assert moved(pair)
    parameters = [weakref.ref(parameter) for parameter in pair.copy.parameters()]
    gradients = [parameter.grad for parameter in pair.copy.parameters()] if held == "by the loop" else []
    others = list(pair.copy.children()) if held == "by a copy of the model" else []
    together = pair.together()
    del pair
    gc.collect()
    assert [parameter() is None for parameter in parameters] == [not others] * len(parameters)
    assert (_torch.arena_leased_bytes() > 0) == (held != "by nobody else") and together.regions
    del gradients, others
    gc.collect()
    assert _torch.arena_leased_bytes() == 0


def test_two_models_in_turn(monkeypatch: pytest.MonkeyPatch):
    """The gradients of one are held while the other one runs."""
    take_equal_times(monkeypatch)
    first = Pair(Broad(), memory_budget=0.6)
    monkeypatch.setattr(torch._dynamo, "reset", lambda: None)
    pairs = [first, Pair(nn.Sequential(Broad(), nn.Tanh()), memory_budget=0.6)]
    for _ in range(4):
        for one in pairs:
            train(one, 1)
    assert not any(moved(one) for one in pairs)


def test_a_backward_pass_that_comes_twice(pair: Pair):
    train(pair)
    assert moved(pair)

    def twice(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        loss = call(vectors(ROWS)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()

    for _ in range(3):
        pair.both(twice)


def test_gradients_asked_for_by_name(pair: Pair):
    train(pair)
    assert moved(pair)

    def asked(model: nn.Module, call: Any, _: torch.optim.Optimizer) -> Any:
        return torch.autograd.grad(call(vectors(ROWS)).sum(), list(model.parameters()))

    for _ in range(3):
        pair.both(asked)


def test_a_gradient_is_resized_and_written(pair: Pair):
    train(pair)
    assert moved(pair)

    def writes(model: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        call(vectors(ROWS)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        first = next(model.parameters()).grad
        assert first is not None
        first.resize_(100, 100).fill_(1)
        next(model.parameters()).grad = None
        optimizer.step()

    for _ in range(3):
        pair.both(writes)


class Broken(nn.Module):
    """Two regions, one around the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Broad(), Broad()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


def test_a_region_that_begins_within_another_has_them_apart(monkeypatch: pytest.MonkeyPatch):
    take_equal_times(monkeypatch)
    pair = Pair(Broken(), memory_budget=0.7)
    train(pair, 5)
    planned = [sized.planned for region in pair.together().regions for sized in region.sizes()]
    assert sorted(one.gradients_in_arena for one in planned if one is not None) == [False, True]


def test_a_region_that_makes_no_gradient():
    """What comes in is what it gives back."""
    torch._dynamo.reset()
    call = torch.compile(lambda x: x + 1, backend="lowtide", options={"on_unsupported": "raise"})
    for _ in range(3):
        x = torch.randn(64, 64, requires_grad=True)
        call(x).sum().backward()
        assert torch.equal(x.grad, torch.ones(64, 64))
