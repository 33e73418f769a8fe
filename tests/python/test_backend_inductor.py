"""`torch.compile(backend="lowtide", options={"engine": "inductor"})`: Inductor's kernels, within budgets in bytes."""

from __future__ import annotations

import functools
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import lowtide
from backend_models import nothing_said
from lowtide._backend import inductor_front
from lowtide._backend.inductor_front import Front
from lowtide._backend.waypoints import Route, first_recomputed
from step_models import FULL

SCALARS = 64 * 1024  # bytes: the loss and the like
ROWS = 1024


class Layer(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.wide, self.back = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.back(F.gelu(self.wide(self.norm(x)))), 0.1, self.training)


class Stack(nn.Module):
    """Layers one after the other, in two regions if that is asked for."""

    def __init__(self, layers: int, *, breaks: bool = False) -> None:
        super().__init__()
        self.layers, self.breaks = nn.ModuleList([Layer() for _ in range(layers)]), breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.layers):
            if self.breaks and index == len(self.layers) // 2:
                torch._dynamo.graph_break()
            x = layer(x)
        return x


def compiled(model: nn.Module, **options: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(model, backend="lowtide", options={"engine": "inductor", **options})


def trained(model: nn.Module, call: Any, steps: int = 2) -> tuple[int, list[torch.Tensor]]:
    """The peak of the last step and its gradients."""
    torch.manual_seed(0)
    x = torch.randn(ROWS, 32)
    for _ in range(steps):
        model.zero_grad()
        with lowtide.measure() as measured:
            call(x).sum().backward()
    return measured.peak_bytes, [parameter.grad.clone() for parameter in model.parameters()]


def stack(layers: int = 2, **how: Any) -> Stack:
    torch.manual_seed(0)
    return Stack(layers, **how)


@functools.cache
def plain() -> tuple[int, list[torch.Tensor]]:
    """PyTorch's own Inductor."""
    model = stack()
    torch._dynamo.reset()
    return trained(model, torch.compile(model, backend="inductor"))


def fronts_of(model: nn.Module, x: torch.Tensor) -> list[Front]:
    """Of each graph of the model."""
    found = []

    def backend(graph: Any, inputs: Any) -> Any:
        found.append(Front(graph, inputs))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(x)
    return found


def test_without_a_budget_it_is_inductor_bit_for_bit():
    peak, gradients = plain()
    model = stack()
    again, same = trained(model, compiled(model))
    assert again == peak
    assert all(torch.equal(a, b) for a, b in zip(gradients, same, strict=True))


def test_a_budget_in_bytes_holds_when_measured_and_draws_stay_what_they_are():
    peak, gradients = plain()
    model = stack()
    budget = int(0.85 * peak)
    with nothing_said():
        measured, same = trained(model, compiled(model, memory_budget=budget))
    assert measured <= budget + SCALARS
    for a, b in zip(gradients, same, strict=True):  # dropout's masks are those of the forward pass
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_predicted_peaks_are_monotone_exact_and_always_the_same():
    peak, _ = plain()
    x = torch.randn(ROWS, 32)
    (front,) = fronts_of(stack(), x)
    assert abs(front.own.nbytes - peak) <= SCALARS
    least = front.smallest.nbytes
    limits = range(least, peak + SCALARS, (peak - least) // (10 if FULL else 4))
    found = [front.within(limit) for limit in limits]
    assert all(entry is not None and entry[1].nbytes <= limit for entry, limit in zip(found, limits, strict=True))
    peaks = [entry[1].nbytes for entry in found if entry is not None]
    assert peaks == sorted(peaks) and len(set(peaks)) > 2
    assert front.within(least - 1) is None
    (again,) = fronts_of(stack(), x)
    assert [again.within(limit) for limit in limits[-3:]] == found[-3:]


def test_waypoints_are_where_little_is_alive():
    def forward(x: torch.Tensor) -> torch.Tensor:  # 4 KiB; 16 KiB in between, which are saved
        for _ in range(3):
            x = torch.tanh(torch.cat([x] * 4)).view(4, -1).sum(0)
        return x

    route = Route(make_fx(forward, tracing_mode="fake")(torch.randn(1024)))
    saved = ["tanh", "view_1", "tanh_2"]  # a view saves what it shows
    assert route.held(saved) == 3 * 16384
    waypoints = route.waypoints(saved, 3)
    assert [route.alive_at(place) for place in waypoints] == [["sum_1"], ["sum_2"]]
    assert first_recomputed(route, waypoints[:1], saved) == ("sum_1", "tanh_1", "tanh_2")
    assert first_recomputed(route, waypoints, saved) == ("sum_1", "sum_2", "tanh_2")


def test_a_budget_that_cannot_be_kept_is_refused_with_figures():
    model = stack(1)
    with pytest.raises(
        lowtide.InfeasibleError, match=r"E301: the memory budget .* is 1.00 KiB, but .* needs"
    ) as caught:
        trained(model, compiled(model, memory_budget="1KiB"))
    assert caught.value.code == "E301"
    assert caught.value.bound_bytes > ROWS * 32 * 4
    assert [name for name, _ in caught.value.culprits] == ["saved tensors and outputs", "gradients"]
    assert all(0 < size <= caught.value.bound_bytes for _, size in caught.value.culprits)


def test_inductor_runs_by_itself_where_that_is_allowed():
    model = stack(1)
    call = compiled(model, memory_budget="1KiB", on_unsupported="eager")
    with pytest.warns(RuntimeWarning, match=r"runs with Inductor's own partition: InfeasibleError: E301.*is not kept"):
        _, gradients = trained(model, call)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_each_region_keeps_the_budget_by_itself():
    model = stack(2, breaks=True)
    with nothing_said():
        peak, gradients = trained(model, compiled(model, memory_budget="2MiB"))
    assert peak <= 2 * 2**21
    whole = stack(2)
    _, same = trained(whole, whole)
    assert [gradient.shape for gradient in gradients] == [other.shape for other in same]
    assert len(fronts_of(model, torch.randn(ROWS, 32))) == 2


def test_inference_keeps_a_budget_or_is_refused():
    model = stack(1).eval()
    x = torch.randn(ROWS, 32)
    with torch.no_grad():
        with nothing_said():
            torch.testing.assert_close(compiled(model, memory_budget="8MiB")(x), model(x), rtol=1e-4, atol=1e-4)
        with pytest.raises(lowtide.InfeasibleError, match=r"10 % of what Inductor needs by itself"):
            compiled(model, memory_budget=0.1)(x)


def test_more_than_the_budget_is_said():
    """Sizes that change are predicted for those that it was compiled with."""
    model = stack(1)
    call = torch.compile(
        model, backend="lowtide", options={"engine": "inductor", "memory_budget": "2MiB"}, dynamic=True
    )
    torch._dynamo.reset()
    with nothing_said():
        call(torch.randn(256, 32)).sum().backward()
    with pytest.warns(RuntimeWarning, match=r"memory_budget is not kept: .* more than the budget"):
        call(torch.randn(4096, 32)).sum().backward()


@pytest.mark.parametrize("engine", ["triton", None, 1])
def test_other_engines_are_refused_by_name(engine: Any):
    call = torch.compile(nn.Linear(2, 2), backend="lowtide", options={"engine": engine})
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=f'"arena" or "inductor", got {engine!r}'):
        call(torch.randn(2, 2))


def test_a_version_of_pytorch_that_lacks_something_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch):
    import torch._inductor.fx_utils

    for name in [
        name for name in sys.modules if name.startswith(("lowtide._backend.inductor_", inductor_front.__name__))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(torch._inductor.fx_utils, "count_flops_fx")
    with pytest.raises(
        torch._dynamo.exc.BackendCompilerFailed, match=r"lacks what the engine uses: .*'count_flops_fx'"
    ):
        compiled(nn.Linear(2, 2), memory_budget="1MiB")(torch.randn(2, 2))


def test_what_fails_in_our_code_ends_in_inductor_with_a_warning(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(inductor_front, "peak_of", broken)
    model = nn.Linear(4, 4)
    x = torch.randn(2, 4)
    with pytest.warns(RuntimeWarning, match="with Inductor's own partition: ZeroDivisionError: planted"):
        given = compiled(model, memory_budget="1MiB", on_unsupported="eager")(x)
    torch.testing.assert_close(given, model(x))
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match=r"planted.*memory_budget is not kept"):
        compiled(model, memory_budget="1MiB")(x)
