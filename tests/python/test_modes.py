"""What is around a call: switches hold as in eager code, and whoever must see the function at work sees it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrizations, parametrize

import lowtide
from both_ways import Run, equal_both_ways, perceptron, plain, state_of
from lowtide import _torch
from lowtide._base.engine_switches import read_anew
from lowtide._capture.autocast_casts import read_autocast
from lowtide._live.modes import differing_modes, read_modes_of_call

BFLOAT16 = {"device_type": "cpu", "dtype": torch.bfloat16}


@contextmanager
def set_for_a_while(read: Callable[[], Any], write: Callable[[Any], None], value: Any) -> Any:
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


SWITCHES: dict[str, Callable[[], Any]] = {
    "grad mode": torch.no_grad,
    "inference mode": torch.inference_mode,
    "autocast": lambda: torch.autocast(**BFLOAT16),
    "autocast region": lambda: torch.autocast(**BFLOAT16, enabled=False),
    "autocast cache": lambda: torch.autocast(**BFLOAT16, cache_enabled=False),
    "default device": lambda: set_for_a_while(
        lambda: torch.utils._device.CURRENT_DEVICE, torch.set_default_device, torch.device("cpu")
    ),
    "torch function modes": lambda: torch.device("cpu"),
    "attention priority": lambda: sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True),
}


READ_BY_CALLS = ("grad mode", "inference mode", "autocast", "autocast cache", "attention priority")


@pytest.mark.parametrize("name", READ_BY_CALLS)
def test_a_switch_that_calls_read_is_seen(name: str) -> None:
    before = read_modes_of_call()
    with SWITCHES[name]():
        modes = read_modes_of_call()
    assert read_modes_of_call() == before != modes
    assert " -> " in differing_modes(before, modes)


AUTOCAST: dict[str, tuple[Callable[[], Any], Callable[[Any], None], Any]] = {
    **{
        f"{what} on {device}": (partial(read, device), partial(write, device), value)
        for device, dtype in (("cpu", torch.float16), ("cuda", torch.bfloat16))
        for what, read, write, value in (
            ("casts", torch.is_autocast_enabled, torch.set_autocast_enabled, True),
            ("dtype", torch.get_autocast_dtype, torch.set_autocast_dtype, dtype),
        )
    },
    "cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, False),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_each_part_of_autocast_is_seen_by_itself(name: str) -> None:
    before, word = read_modes_of_call(), _torch.call_word()
    with set_for_a_while(*AUTOCAST[name]):
        modes = read_modes_of_call()
        assert modes[2] == read_autocast() != before[2]
        assert _torch.call_word() != word
    assert read_modes_of_call() is before


def test_what_another_thread_sets_meanwhile_is_not_remembered() -> None:
    words = iter([("a",), ("b",), ("b",), ("b",)])
    known: dict[Any, Any] = {}
    assert read_anew(known, lambda: next(words), lambda: ("mixed",)) == ("mixed",)
    assert known == {}
    assert read_anew(known, lambda: next(words), lambda: ("b's",)) == ("b's",)
    assert known == {("b",): ("b's",)}


@pytest.mark.parametrize("inside", [False, True], ids=["around", "inside"])
@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_holds_as_in_eager_code(name: str, inside: bool) -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(Twice(), nn.BatchNorm1d(4))
        switched = [False]

        def function(x: torch.Tensor) -> torch.Tensor:
            first = model(x).detach()
            with SWITCHES[name]() if inside and switched[0] else nullcontext():
                heads = [model(x + n).detach()[None, None] for n in range(3)]
                second = nn.functional.scaled_dot_product_attention(*heads)
            return (first + second).float()

        step = run.wrap(function, model)
        for switched[0] in (False, True, False, True):
            with SWITCHES[name]() if switched[0] and not inside else nullcontext():
                out = step(torch.randn(3, 32))
                run.note(out.clone(), out.is_inference(), state_of(model))

    run = equal_both_ways(scenario)
    assert (run.planned, run.eager, run.said) == (4, 0, []), run.why


# -- what must see the function itself ---------------------------------------------------------------------------------


def test_a_trace_records_the_function_itself() -> None:
    model = nn.Linear(8, 4)
    step = lowtide.compile(lambda x: model(x), model=model)
    with torch.no_grad():
        step(torch.randn(3, 8))
        model.requires_grad_(False)
        with pytest.warns(RuntimeWarning, match=r"under torch\.jit\.trace"):
            traced = torch.jit.trace(lambda x: step(x), torch.randn(3, 8), check_trace=False)
        x = torch.randn(3, 8)
        assert torch.equal(traced(x), model(x))
        assert "linear" in str(traced.graph)


def test_an_exported_or_compiled_caller_sees_the_function_itself() -> None:
    model = nn.Linear(8, 4)
    step = lowtide.compile(lambda x: model(x), model=model)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    x = torch.randn(3, 8)
    with torch.no_grad():
        step(x)
        assert torch.equal(torch.compile(lambda x: step(x) * 2, backend=backend, fullgraph=True)(x), model(x) * 2)
    assert len(graphs) == 1
    assert step.stats()["calls"] == 1


def test_anomaly_detection_finds_what_it_finds_in_eager_code() -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.sqrt(model(x) * 0).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        run.note(compiled(torch.randn(3, 8)))
        with torch.autograd.detect_anomaly():
            compiled(torch.randn(3, 8))

    run = equal_both_ways(scenario)
    assert run.error == "RuntimeError"
    assert run.planned == 1


def test_tangents_pass_through_a_step() -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        step = run.wrap(lambda x: model(x).tanh(), model)
        with torch.no_grad():
            run.note(step(torch.randn(3, 8)))
            with forward_ad.dual_level():
                dual = forward_ad.unpack_dual(step(forward_ad.make_dual(torch.randn(3, 8), torch.ones(3, 8))))
                run.note(dual.primal, dual.tangent)
            run.note(step(torch.randn(3, 8)))

    assert equal_both_ways(scenario).planned == 2


def test_parametrizations_that_are_cached_around_the_call() -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 8)), nn.Linear(8, 4))
        step = run.wrap(lambda x: model(x), model)
        with torch.no_grad():
            run.note(step(torch.randn(3, 8)))
            with parametrize.cached():
                run.note(step(torch.randn(3, 8)))
                model[0].parametrizations.weight.original0.mul_(2.0)
                run.note(step(torch.randn(3, 8)))  # with the weight of before
            run.note(step(torch.randn(3, 8)))

    assert equal_both_ways(scenario).planned == 2


# -- autocast around the call ------------------------------------------------------------------------------------------


class Twice(nn.Module):
    """Uses one weight twice, so that it matters whether it is cast once or twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.linear(self.linear(x).relu()))


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("calls", [1, 3], ids=["a region for each call", "a region for three calls"])
@pytest.mark.parametrize("inside", [True, False], ids=["region inside too", "around only"])
def test_autocast_around_the_loop_keeps_the_casts_that_eager_keeps(cache: bool, calls: int, inside: bool) -> None:
    def scenario(run: Run) -> None:
        model = Twice()
        optimizer = torch.optim.SGD(model.parameters(), 0.5)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            with torch.autocast(**BFLOAT16) if inside else nullcontext():
                loss = model(x).float().pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        for _ in range(2):
            with torch.autocast(**BFLOAT16, enabled=not inside, cache_enabled=cache):
                for _ in range(calls):
                    run.note(compiled(torch.randn(3, 32)), state_of(model, optimizer))

    assert equal_both_ways(scenario).eager == 0


@pytest.mark.parametrize("planned_first", [True, False])
def test_eager_code_and_steps_share_the_casts_of_a_region(planned_first: bool) -> None:
    def scenario(run: Run) -> None:
        model = Twice()
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        compiled = run.wrap(plain(model, optimizer), model, optimizer)
        for _ in range(3):
            with torch.autocast(**BFLOAT16):
                x = torch.randn(3, 32)
                if planned_first:
                    run.note(compiled(x))
                before = model(x)
                before.float().sum().backward()
                run.note(before, compiled(x), model(x), state_of(model, optimizer))

    run = equal_both_ways(scenario)
    assert (run.planned > 0) is planned_first


def test_casts_that_were_made_without_gradients_are_used_as_eager_uses_them() -> None:
    def scenario(run: Run) -> None:
        model = Twice()
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        compiled = run.wrap(plain(model, optimizer), model, optimizer)
        with torch.autocast(**BFLOAT16):
            run.note(compiled(torch.randn(3, 32)))
        with torch.autocast(**BFLOAT16):
            with torch.no_grad():
                model(torch.randn(3, 32))
            run.note(compiled(torch.randn(3, 32)), state_of(model, optimizer))

    equal_both_ways(scenario)


# -- what is refused, and what waits -----------------------------------------------------------------------------------


def test_scripted_modules_are_refused_by_name() -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(torch.jit.script(nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 4))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = run.wrap(plain(model, optimizer), model, optimizer)
        for _ in range(2):
            run.note(step(torch.randn(3, 8)), state_of(model))

    run = equal_both_ways(scenario)
    assert "TorchScript" in run.said[0]


def test_lazy_modules_learn_their_shapes_in_the_first_call() -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(nn.LazyConv1d(4, 3), nn.LazyBatchNorm1d())
        optimizer = torch.optim.SGD(list(model.parameters()), 0.1)
        step = run.wrap(plain(model, optimizer), model, optimizer)
        for _ in range(3):
            run.note(step(torch.randn(3, 2, 8)), state_of(model))

    run = equal_both_ways(scenario)
    assert (run.eager, run.planned, run.said) == (1, 2, [])


def test_a_graph_that_was_made_before_the_step_is_left_alone() -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        hidden = [torch.zeros(1)]

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = model[2](hidden[0]).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        compiled = run.wrap(step, model, optimizer)
        for _ in range(2):
            hidden[0] = model[0](torch.randn(3, 8))
            run.note(compiled(), state_of(model))

    run = equal_both_ways(scenario)
    assert run.error == ""
    assert "graph was made before" in run.said[0]
