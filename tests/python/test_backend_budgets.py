"""Budgets of the backend: kept in every measurement, or said, or refused with figures."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from backend_models import Deep, Pair, Perceptron, nothing_said, step, vectors

AROUND = 300_000  # bytes of the loss, which is not in a region


class Wide(nn.Module):
    """Three regions that are under way at once."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = Deep(), Deep(), Deep()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x) * x
        torch._dynamo.graph_break()
        x = self.two(x) * x
        torch._dynamo.graph_break()
        return self.three(x) * x


def batch() -> torch.Tensor:
    return vectors(512)


def peak(call: Any, model: nn.Module, x: torch.Tensor) -> int:
    """Bytes at most during a step, beside what was there."""
    model.zero_grad()
    with lowtide.measure() as measured:
        call(x).sum().backward()
    return measured.peak_bytes


def test_a_share_is_kept_in_every_measurement():
    torch.manual_seed(0)
    x = vectors(512)
    eager = peak_of_eager(Deep(), x)
    found = []
    for share in (None, 0.8, 0.6, 0.4):
        torch._dynamo.reset()
        model = Deep()
        compiled = torch.compile(model, backend="lowtide", options={"memory_budget": share} if share else None)
        with nothing_said():
            peaks = [peak(compiled, model, x) for _ in range(3)][1:]  # the first one plans
        assert max(peaks) <= (share or 1.0) * eager + AROUND
        found.append(max(peaks))
    assert found == sorted(found, reverse=True)


def peak_of_eager(model: nn.Module, x: torch.Tensor) -> int:
    return max(peak(model, model, x) for _ in range(2))


@pytest.mark.parametrize("share", [0.8, 0.6])
@pytest.mark.parametrize("in_bytes", [True, False], ids=["bytes", "share"])
def test_a_budget_is_for_all_regions_together(share: float, in_bytes: bool):
    torch.manual_seed(0)
    pair = Pair(Wide())
    x = batch()
    budget = int(share * peak_of_eager(pair.eager, x))
    pair = Pair(Wide(), memory_budget=budget if in_bytes else share)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pair.both(step(batch))
        pair.both(step(batch))
    said = [str(warning.message) for warning in caught if "memory_budget" in str(warning.message)]
    assert all("regions at once had" in line and "more than the budget" in line for line in said)
    with nothing_said():
        pair.both(step(batch))
        assert peak(pair.compiled, pair.copy, x) <= budget + AROUND
    assert len(pair.together().regions) == 3


class Tailed(nn.Module):
    """Regions before and after a deep one, of which each has nothing but what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.deep = Deep()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, :1].exp() * x.mean()
        torch._dynamo.graph_break()
        x = self.deep(x.expand(-1, 16))
        torch._dynamo.graph_break()
        return x.exp()


def test_regions_that_cannot_keep_a_share_by_themselves():
    torch.manual_seed(0)
    pair = Pair(Tailed())
    x = batch()
    eager = peak_of_eager(pair.eager, x)
    pair = Pair(Tailed(), memory_budget=0.6)
    with nothing_said():
        for _ in range(3):
            pair.both(step(batch))
        assert peak(pair.compiled, pair.copy, x) <= 0.6 * eager + AROUND
    assert len(pair.together().regions) == 3


def test_two_forwards_share_the_budget():
    torch.manual_seed(0)
    model = Deep()
    x = vectors(512)
    alone = peak_of_eager(model, x)
    pair = Pair(model, memory_budget=int(1.3 * alone))

    def two(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        (call(vectors(512)).sum() + call(vectors(512)).sum()).backward()

    with pytest.warns(RuntimeWarning, match="memory_budget is not kept: 2 regions at once"):
        pair.both(two)
    with nothing_said():
        for _ in range(2):
            pair.both(two)
            pair.both(step(lambda: vectors(512)))
    pair.copy.zero_grad()
    with lowtide.measure() as measured:
        (pair.compiled(x).sum() + pair.compiled(x).sum()).backward()
    assert measured.peak_bytes <= 1.3 * alone + AROUND


def test_a_budget_that_cannot_be_kept_is_refused_with_its_figures():
    compiled = torch.compile(Perceptron(), backend="lowtide", options={"memory_budget": "1KiB"})
    with pytest.raises(lowtide.InfeasibleError, match="E301") as caught:
        compiled(vectors(64))
    assert caught.value.bound_bytes > 1024
    notes = "\n".join(getattr(caught.value, "__notes__", [str(caught.value)]))
    assert "memory budget of 1.00 KiB for all regions together" in notes
    assert "beside the budget" in notes


def test_it_runs_eager_instead_if_that_is_allowed():
    pair = Pair(Perceptron(), memory_budget="1KiB", on_unsupported="eager")
    with pytest.warns(RuntimeWarning, match=r"runs eager: InfeasibleError: E301.*memory_budget is not kept"):
        pair.both(step(vectors))
    with nothing_said():
        pair.both(step(vectors))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": 1}, "expected memory_budget, on_unsupported or engine, got 'budget'"),
        ({"memory_budget": 1.5}, "memory_budget: expected a share"),
        ({"memory_budget": "lots"}, "lots"),
        ({"on_unsupported": "perhaps"}, "on_unsupported: expected"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], said: str):
    compiled = torch.compile(Perceptron(), backend="lowtide", options=options)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=said):
        compiled(vectors())


def test_a_mode_is_refused():
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="mode: backend"):
        torch.compile(Perceptron(), backend="lowtide", mode="reduce-overhead")(vectors())
