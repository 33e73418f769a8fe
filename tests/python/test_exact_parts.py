"""What random numbers do not show: parts that would have other bits for few numbers, or other results altogether."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

import lowtide


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def in_parts(function: Callable[[torch.Tensor, torch.Tensor], Any], width: int, share: float, **options: Any) -> Any:
    """`function(x, w)` planned, and as it is."""
    model = torch.nn.Linear(width, 1, bias=False)

    def step(x: torch.Tensor) -> Any:
        with torch.no_grad():
            return function(x, model.weight)

    return lowtide.compile(step, model=model, memory_budget=share, **options), step


def sigmoid(x, w):
    y = torch.sigmoid(x * w)
    return y.amax(1), y[:, -8:].clone()


def hardtanh_backward(x, w):
    g = torch.ops.aten.hardtanh_backward(x * w, x * w, -1, 1)
    return g.amax(1), g[:, -4:].clone()


@pytest.mark.parametrize("function", [sigmoid, hardtanh_backward])
def test_what_loops_leave_over_is_not_taken_to_be_exact(function):
    planned, eager = in_parts(function, 8193, 0.5)
    x = torch.randn(4, 1)
    x[3] = float("nan")
    with pytest.raises(lowtide.InfeasibleError, match="E301"):
        planned(x)
    planned, eager = in_parts(function, 8192, 0.5)
    for _ in range(100):
        x = torch.randn(4, 1)
        for one, other in zip(planned(x), eager(x), strict=True):
            assert torch.equal(one, other)
    assert planned.stats()["operators_in_parts"] > 0


def test_lists_of_tensors_of_several_ranks_are_not_summed():
    def function(x, w):
        p, q = torch._foreach_exp([(x * w[0]).view(-1, 4, 8), w * 0 + 1])
        return p.amax((1, 2)), q[0, :4].clone()

    planned, eager = in_parts(function, 32, 0.5, allow_inexact=True, on_unsupported="eager")
    x = torch.randn(256, 1)
    try:
        found = planned(x)
    except lowtide.InfeasibleError:
        return
    torch.testing.assert_close(found, eager(x))


def test_operators_without_operands_run_in_parts():
    def function(x, w):
        mask = torch.ones(512, 512).tril()
        return (x * w * mask).relu().amax(1)

    planned, eager = in_parts(function, 512, 0.6, allow_inexact=True)
    x = torch.randn(512, 1)
    torch.testing.assert_close(planned(x), eager(x))


def test_narrow_sums_stay_whole():
    def function(x, w):
        return (x * w.to(torch.float16)).sum()

    planned, eager = in_parts(function, 1024, 0.7, allow_inexact=True)
    x = torch.cat((torch.full((32, 1), 4.0), torch.full((32, 1), -4.0))).to(torch.float16)
    with contextlib.suppress(lowtide.InfeasibleError):
        assert torch.equal(planned(x), eager(x))
