"""Eager code keeps no budget: a step that cannot be planned is refused then, unless it was said to run eager."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import lowtide


class Looking(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def read_output(_module: nn.Module, _args: Any, out: torch.Tensor) -> None:
    out.sum().item()


def item_in_a_module(compile_step: Callable[..., Any], model: nn.Module, x: torch.Tensor) -> None:
    model.register_forward_hook(read_output)
    compile_step(lambda x: model(x).sum())(x)


def dispatch_mode(compile_step: Callable[..., Any], model: nn.Module, x: torch.Tensor) -> None:
    step = compile_step(model.forward)
    with Looking():
        step(x)


def closed(compile_step: Callable[..., Any], model: nn.Module, x: torch.Tensor) -> None:
    step = compile_step(model.forward)
    step.close()
    step(x)


def nested(compile_step: Callable[..., Any], model: nn.Module, x: torch.Tensor) -> None:
    inner = compile_step(model.forward)
    outer = lowtide.compile(lambda x: inner(x) * 2, model=model, on_unsupported="raise")
    outer(x)


REASONS = {
    item_in_a_module: r"\.item\(\)",
    dispatch_mode: "a dispatch mode",
    closed: "it was closed",
    nested: "another step that is being captured",
}


@pytest.mark.parametrize("budget", ["memory_budget", "latency_budget"])
@pytest.mark.parametrize("run", REASONS, ids=lambda run: run.__name__)
def test_a_call_that_cannot_be_planned_is_refused(run, budget):
    model = nn.Linear(8, 4)
    value = {"memory_budget": "1GiB", "latency_budget": "1s"}[budget]

    def compile_step(function: Callable[..., Any]) -> Any:
        return lowtide.compile(function, model=model, **{budget: value})

    said = rf"{REASONS[run]}.*; eager, {budget} is not kept: on_unsupported=\"eager\" allows that"
    with torch.no_grad(), pytest.raises(lowtide.CaptureError, match=said):
        run(compile_step, model, torch.ones(2, 8))


@pytest.mark.parametrize("run", REASONS, ids=lambda run: run.__name__)
def test_or_runs_eager_on_request_and_says_once_that_budgets_are_not_kept(run):
    model = nn.Linear(8, 4)
    steps = []

    def compile_step(function: Callable[..., Any]) -> Any:
        budgets = {"memory_budget": "1GiB", "latency_budget": "1s"}
        steps.append(lowtide.compile(function, model=model, **budgets, on_unsupported="eager"))
        return steps[0]

    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(compile_step, model, torch.ones(2, 8))
        if run is item_in_a_module:
            assert "memory_budget and latency_budget are not kept" in steps[0].summary()
            assert steps[0].plan is None
    (said,) = [str(w.message) for w in caught if "lowtide" in str(w.message)]
    assert said.endswith("memory_budget and latency_budget are not kept")
    assert " runs eager" in said and steps[0].stats()["eager_calls"] == 1


WAYS = 20


@pytest.mark.parametrize("budgets", [{"memory_budget": "1GiB"}, {"latency_budget": "1s"}])
def test_with_a_budget_every_way_that_the_step_takes_is_planned(budgets):
    model = nn.Linear(8, 4)
    step = lowtide.compile(lambda x, n: model(x) ** n, model=model, **budgets)
    with torch.no_grad():
        for n in range(WAYS):
            assert torch.equal(step(torch.ones(2, 8), n), model(torch.ones(2, 8)) ** n)
    assert (step.stats()["captures"], step.stats()["eager_calls"]) == (WAYS, 0)


def test_without_a_budget_most_of_them_run_eager():
    model = nn.Linear(8, 4)
    step = lowtide.compile(lambda x, n: model(x) ** n, model=model)
    with (
        torch.no_grad(),
        pytest.warns(RuntimeWarning, match="most calls are different: .*pow.* is called with") as caught,
    ):
        for n in range(WAYS):
            assert torch.equal(step(torch.ones(2, 8), n), model(torch.ones(2, 8)) ** n)
    (said,) = [str(warning.message) for warning in caught if "lowtide:" in str(warning.message)]
    assert "not kept" not in said
    assert (step.stats()["calls"], step.stats()["eager_calls"]) == (8, WAYS - 8)


@pytest.mark.parametrize("budgets", [{}, {"memory_budget": "1GiB"}, {"latency_budget": "1s"}])
def test_a_value_that_the_function_itself_reads_is_planned(budgets):
    model = nn.Linear(8, 4)
    step = lowtide.compile(lambda x: model(x).sum().item(), model=model, on_unsupported="raise", **budgets)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 8)
            assert step(x) == model(x).sum().item()
    assert (step.stats()["calls"], step.stats()["eager_calls"]) == (3, 0)


def test_without_a_budget_there_is_none_to_speak_of():
    model = nn.Linear(8, 4)
    model.register_forward_hook(read_output)
    step = lowtide.compile(lambda x: model(x).sum(), model=model)
    assert step.summary() == f"lowtide: {step.__qualname__} has no plan yet; 0 planned calls, 0 eager calls"
    with torch.no_grad(), pytest.warns(RuntimeWarning, match=r"runs eager: .*\.item\(\)") as caught:
        step(torch.ones(2, 8))
        step(torch.ones(2, 8))
    (said,) = [str(warning.message) for warning in caught if "lowtide:" in str(warning.message)]
    assert "not kept" not in said
    assert "runs eager: the step reads" in step.summary() and step.summary().endswith("0 planned calls, 2 eager calls")
    with pytest.raises(ValueError, match="on_unsupported: expected"):
        lowtide.compile(model.forward, model=model, on_unsupported="never")
