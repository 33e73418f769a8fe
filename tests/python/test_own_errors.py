"""What goes wrong in Lowtide's own code ends in eager, with the same numbers; what is wrong with a call is its own."""

from __future__ import annotations

import copy
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import lowtide
from lowtide._compile import compile as compiling
from lowtide._guards.surroundings import Surroundings
from lowtide._live import deferring, operands, recording
from lowtide._live.capturing import LiveCapture
from lowtide._live.deferring import Program
from lowtide._step import captured_step as stepping
from lowtide._step.captured_step import CapturedStep
from step_models import same

# An operator that fails so many times, where it finds a 7: profiles run on other values.
failures = 0


@torch.library.custom_op("lowtide_test::fragile", mutates_args=())
def fragile(x: torch.Tensor) -> torch.Tensor:
    global failures
    if failures and bool((x == 7).any()):
        failures -= 1
        raise RuntimeError("planted failure")
    return x.clone()


@fragile.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


fragile.register_autograd(lambda ctx, gradient: gradient, setup_context=lambda ctx, inputs, output: None)


class World:
    """A model that draws random numbers and, if so wished, keeps running statistics."""

    def __init__(self, *, norm: bool = False, compiled: bool = True, **options: Any) -> None:
        torch.manual_seed(0)
        layers = [nn.Linear(4, 8), nn.BatchNorm1d(8) if norm else nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 2)]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.step: Any = self.function
        if compiled:
            self.step = lowtide.compile(self.function, model=self.model, optimizer=self.optimizer, **options)

    def function(self, x: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = (self.model(x) * fragile(marks)).square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def state(self) -> list[Any]:
        gradients = [parameter.grad for parameter in self.model.parameters()]
        parts = [dict(self.model.state_dict()), self.optimizer.state_dict(), gradients, torch.get_rng_state()]
        return copy.deepcopy(parts)

    def train(self, fails_at: int = -1) -> tuple[list[Any], list[str]]:
        """Three steps; of those, one finds a 7."""
        global failures
        torch.manual_seed(1)
        log = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for index in range(3):
                failures = 1 if self.step != self.function else 0
                marks = torch.full((3, 2), 7.0 if index == fails_at else 1.0)
                log.append([self.step(torch.randn(3, 4), marks), self.state()])
        return log, [str(w.message) for w in caught if "lowtide:" in str(w.message)]


def raises(*_args: Any, **_kwargs: Any) -> Any:
    raise AttributeError("planted")


OWN_CODE = [
    (Surroundings, "__init__"),
    (Surroundings, "read"),
    (deferring, "flatten_call"),
    (operands, "describe_tensor"),
    (recording, "flatten"),
    (recording, "lift"),
    (deferring, "read_modes_of_call"),
    (deferring, "user_line"),
    (LiveCapture, "__init__"),
    (LiveCapture, "input"),
    (LiveCapture, "finish"),
    (Program, "__init__"),
    (Program, "launch"),
    (stepping, "OptimizerTwin"),
    (stepping, "lower"),
    (stepping, "profile_operators"),
    (stepping, "build_graph"),
    (compiling, "plan_in_sight"),
    (stepping, "assemble"),
    (CapturedStep, "_rehearse"),
    (CapturedStep, "_bind"),
    (CapturedStep, "_rebind"),
    (CapturedStep, "_residents"),
]


@pytest.mark.parametrize(("where", "name"), OWN_CODE, ids=[name for _, name in OWN_CODE])
def test_an_error_of_ours_ends_in_eager(where, name, monkeypatch):
    expected, _ = World(compiled=False).train()
    world = World()
    monkeypatch.setattr(where, name, raises)
    got, said = world.train()
    assert same(expected, got)
    (warning,) = said
    assert "runs eager: " in warning and "planted" in warning
    assert world.step.stats()["calls"] == 0


def test_a_step_that_was_made_stays_made(monkeypatch):
    expected, _ = World(compiled=False).train()
    world = World()
    monkeypatch.setattr(CapturedStep, "settle", raises)
    got, said = world.train()
    assert same(expected, got) and world.step.stats()["calls"] == 3
    assert all("the times of World.function are not kept: AttributeError: planted" in warning for warning in said)


def test_an_error_of_ours_is_a_capture_error_where_that_was_asked_for(monkeypatch):
    world = World(on_unsupported="raise")
    monkeypatch.setattr(Surroundings, "read", raises)
    with pytest.raises(
        lowtide.CaptureError, match=r"AttributeError: planted \(lowtide/_live/live_step\.py:\d+\)"
    ) as caught:
        world.train()
    assert isinstance(caught.value.__cause__, AttributeError)


@pytest.mark.parametrize("norm", [False, True], ids=["plain", "running statistics"])
def test_a_first_run_that_fails_midway_is_undone_and_repeated(norm):
    expected, _ = World(norm=norm, compiled=False).train(fails_at=0)
    got, said = World(norm=norm).train(fails_at=0)
    assert same(expected, got)
    assert len(said) == 1 and "runs eager: RuntimeError: planted failure" in said[0]


def test_a_later_run_that_fails_midway_is_undone_if_nothing_lasting_was_written():
    expected, _ = World(compiled=False).train(fails_at=1)
    world = World()
    got, said = world.train(fails_at=1)
    assert same(expected, got) and len(said) == 1
    assert world.step.stats()["calls"] == 1 and world.step.stats()["eager_calls"] == 2


def test_a_run_that_cannot_be_undone_raises_what_stopped_it():
    world = World(norm=True)
    with pytest.raises(RuntimeError, match="planted failure") as caught:
        world.train(fails_at=2)  # the first call makes the optimizer's state: the second is planned anew
    note = "\n".join(caught.value.__notes__)
    assert "those before the step; module buffers written already: 1.running_mean, 1.running_var" in note


def test_what_a_call_itself_gets_wrong_is_left_as_in_eager():
    worlds = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4))
        table = nn.Embedding(10, 4)
        model.table = table

        def function(tokens: torch.Tensor, model: nn.Module = model, table: nn.Module = table) -> torch.Tensor:
            return model[1](model[0](torch.ones(3, 4)) + table(tokens)).sum().detach()

        step = lowtide.compile(function, model=model) if compiled else function
        log = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for tokens in ([1, 2, 3], [1, 2, 77], [3, 2, 1]):
                try:
                    log.append(step(torch.tensor(tokens)))
                except IndexError as error:
                    log.append(str(error))
                log.append(torch.get_rng_state())
        worlds.append(log)
    assert same(*worlds)
    assert step.stats()["calls"] == 2 and step.stats()["eager_calls"] == 0


# -- what objects around a step may do ---------------------------------------------------------------------------------


class Bad:
    """An object whose every method raises."""

    def __init__(self) -> None:
        object.__setattr__(self, "scale", 2.0)

    def __eq__(self, other: object) -> bool:
        raise ValueError("planted")

    __hash__ = __len__ = __bool__ = __repr__ = __iter__ = __contains__ = __setattr__ = raises  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    @property
    def broken(self) -> Any:
        raise OSError("planted")


@pytest.mark.parametrize("how", ["closure", "argument", "module", "in a list"])
def test_objects_that_raise_do_no_harm(how):
    def run(compiled: bool) -> list[Any]:
        torch.manual_seed(0)
        model, bad = nn.Linear(4, 4), Bad()
        boxes = [bad, {"one": bad}]
        if how == "module":
            model.bad = bad

        def function(x: torch.Tensor, given: Any = None) -> torch.Tensor:
            found = {"closure": bad, "argument": given, "module": getattr(model, "bad", None), "in a list": boxes[0]}[
                how
            ]
            return (model(x) * found.scale).detach()

        step = lowtide.compile(function, model=model) if compiled else function
        return [step(torch.ones(2, 4), bad if how == "argument" else None) for _ in range(2)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert same(run(False), run(True))


def test_a_graph_from_before_the_step_is_not_used_up():
    def run(compiled: bool, backward: Callable[[torch.Tensor], None]) -> list[Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        box: list[Any] = [None]

        def function() -> torch.Tensor:
            loss = model[1](box[0]).square().mean()
            backward(loss)
            return loss.detach()

        step = lowtide.compile(function, model=model) if compiled else function
        log = []
        for _ in range(2):
            box[0] = model[0](torch.ones(3, 4)).tanh()
            log.append(step())
        return [log, [parameter.grad for parameter in model.parameters()]]

    own_backward = torch.autograd.backward  # by a name of one's own, as many do
    for backward in (torch.Tensor.backward, own_backward):
        expected = run(False, backward)
        with pytest.warns(RuntimeWarning, match="whose graph was made before the model was called"):
            assert same(expected, run(True, backward))


def test_gradients_of_other_tensors_stay():
    model, other = nn.Linear(4, 4), torch.ones(4, requires_grad=True)
    other.grad = mine = torch.full((4,), 5.0)
    step = lowtide.compile(lambda x: (model(x) * other).sum().backward(), model=model, on_unsupported="raise")
    with pytest.raises(lowtide.CaptureError):
        step(torch.ones(2, 4))
    assert other.grad is mine and torch.equal(mine, torch.full((4,), 5.0))


# -- modules that communicate ------------------------------------------------------------------------------------------


@contextmanager
def one_process() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("place", ["the model", "below", "out of sight"])
def test_distributed_data_parallel_is_recognised_before_it_runs(place):
    def run(compiled: bool) -> tuple[list[Any], list[str]]:
        torch.manual_seed(0)
        inner = nn.Linear(4, 4)
        wrapped = nn.parallel.DistributedDataParallel(inner)
        model = {"the model": wrapped, "below": nn.Sequential(wrapped), "out of sight": inner}[place]
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.1)

        def function(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = wrapped(x).square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step: Any = lowtide.compile(function, model=model, optimizer=optimizer) if compiled else function
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            log = [step(torch.ones(2, 4)) for _ in range(3)]
        return [log, dict(inner.state_dict())], [str(w.message) for w in caught if "lowtide:" in str(w.message)]

    with one_process():
        expected, _ = run(False)
        got, said = run(True)
    assert same(expected, got)
    assert len(said) == 1 and "is DistributedDataParallel" in said[0]


def test_weights_that_are_not_there_yet_are_refused_by_name():
    lazy = nn.Sequential(nn.LazyLinear(4))
    with torch.no_grad(), pytest.raises(lowtide.CaptureError, match=r"0\.weight has no shape yet"):
        lowtide.capture(lazy.forward, model=lazy, example=(torch.ones(2, 4),))
    empty = nn.Linear(4, 4, device="meta")
    step = lowtide.compile(lambda x: empty(x), model=empty, on_unsupported="raise")
    with pytest.raises(lowtide.CaptureError, match=r"weight is on the meta device"):
        step(torch.ones(2, 4))


# -- signals -----------------------------------------------------------------------------------------------------------


class Alarm(Exception):
    """What a handler raises to stop a program that takes too long."""


def test_what_a_signal_handler_raises_in_a_capture_goes_to_the_caller():
    def ring(_number: int, _frame: Any) -> None:
        raise Alarm

    model = nn.Linear(4, 4)

    def function(x: torch.Tensor) -> torch.Tensor:
        signal.raise_signal(signal.SIGALRM)
        return model(x)

    step = lowtide.compile(function, model=model)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        with torch.no_grad(), pytest.raises(Alarm):
            step(torch.ones(2, 4))
    finally:
        signal.signal(signal.SIGALRM, before)
    assert step.stats()["eager_calls"] == 0
