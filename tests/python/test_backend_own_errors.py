"""What fails in the backend's own code ends in PyTorch's graph or in eager, with one warning and the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from backend_models import Pair, Perceptron, nothing_said, step, vectors
from lowtide._backend import entry, region, sized


def fail(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("planted")


PLACES = [(entry, "split"), (entry, "Joint"), (sized, "record"), (sized, "lower"), (sized, "build_graph"),
          (sized, "assemble"), (region.Region, "_plan")]  # fmt: skip


@pytest.mark.parametrize(("owner", "name"), PLACES)
def test_a_planted_error_ends_in_eager(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(owner, name, fail)
    pair = Pair(Perceptron(), on_unsupported="eager")
    with pytest.warns(RuntimeWarning, match=r"runs eager: .*planted"):
        pair.both(step(vectors))
    with nothing_said():
        pair.both(step(vectors))


@pytest.mark.parametrize(("owner", "name"), PLACES)
def test_with_a_budget_it_is_refused(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(owner, name, fail)
    compiled = torch.compile(Perceptron(), backend="lowtide", options={"memory_budget": "1GiB"})
    with pytest.raises((lowtide.CaptureError, torch._dynamo.exc.BackendCompilerFailed), match=r"planted.*not kept"):
        compiled(vectors())


class Largest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).max()


def test_other_formulas_than_eagers_are_left_to_eager():
    pair = Pair(Largest(), on_unsupported="eager")
    with pytest.warns(RuntimeWarning, match=r"torch.max of all elements"):
        pair.both(step(vectors))


def test_saved_tensor_hooks_see_what_they_see_in_pytorchs_graph():
    pair = Pair(Perceptron(), on_unsupported="eager")
    seen: list[int] = []

    def do(_: nn.Module, call: Any, __: torch.optim.Optimizer) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (seen.append(1), t.clone())[1], lambda t: t):
            loss = call(vectors()).sum()
        loss.backward()
        return loss

    with pytest.warns(RuntimeWarning, match="saved tensor hooks"):
        pair.both(do)
    assert seen
    pair.both(step(vectors))


def test_an_interrupt_in_the_backward_pass_leaves_the_region_usable(monkeypatch: pytest.MonkeyPatch):
    pair = Pair(Perceptron())
    pair.both(step(vectors))
    loss = pair.compiled(vectors()).sum()
    with monkeypatch.context() as patched:
        patched.setattr(sized.SizedRegion, "_deliver", staticmethod(fail))
        with pytest.raises(ZeroDivisionError):
            loss.backward()
    pair.copy.zero_grad()
    pair.eager.zero_grad()
    torch.set_rng_state(torch.get_rng_state())
    pair.both(step(vectors))
