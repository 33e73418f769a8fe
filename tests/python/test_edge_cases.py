"""Steps that are easy to get silently wrong: each gives eager's numbers, planned or by falling back."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout
from torch.utils.checkpoint import checkpoint

import lowtide
from step_models import same


@dataclass
class Case:
    """A step function under test. `between(model, index)` is what the user does before each call."""

    model: nn.Module
    function: Callable[..., Any]
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    arguments: Callable[[int], tuple[Any, ...]] = lambda index: (torch.randn(4, 8),)
    between: Callable[[int], None] = lambda index: None
    watched: list[torch.Tensor] = field(default_factory=list)


PARTS = ("result", "model", "gradients", "state", "watched", "arguments", "random")
CASES: dict[str, tuple[Callable[[], Case], bool]] = {}


def case(*, planned: bool) -> Callable[[Callable[[], Case]], Callable[[], Case]]:
    def register(make: Callable[[], Case]) -> Callable[[], Case]:
        CASES[make.__name__] = (make, planned)
        return make

    return register


def train(model: nn.Module, loss: Callable[..., torch.Tensor], lr: float = 0.1) -> Case:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)

    def function(*args: Any) -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(*args)
        value.backward()
        optimizer.step()
        return value.detach()

    return Case(model, function, [optimizer])


def record(make: Callable[[], Case], compiled: bool) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    one = make()
    function = one.function
    if compiled:
        function = lowtide.compile(function, model=one.model, optimizer=one.optimizers)
    log = []
    for index in range(4):
        torch.manual_seed(index)
        arguments = one.arguments(index)
        one.between(index)
        try:
            result = function(*arguments)
        except (RuntimeError, IndexError) as error:
            result = type(error).__name__
        kept = (
            result,
            dict(one.model.state_dict()),
            [parameter.grad for parameter in one.model.parameters()],
            [optimizer.state_dict()["state"] for optimizer in one.optimizers],
            [tensor.detach() for tensor in one.watched],
            [argument for argument in arguments if isinstance(argument, torch.Tensor)],
            torch.get_rng_state(),
        )
        log.append(copy.deepcopy(kept))
    return log, function


# -- operators -------------------------------------------------------------------------------------------------------


@case(planned=True)
def requests_that_depend_on_data() -> Case:
    model = nn.Linear(8, 16)
    return train(model, lambda x: torch.linalg.matrix_exp(model(x).view(4, 4, 4) * 3).sum() * 1e-3, lr=1e-6)


@case(planned=True)
def a_check_that_raises() -> Case:
    model = nn.Linear(8, 8)
    identity = torch.eye(8)

    def loss(x: torch.Tensor, sign: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(identity * sign + 0 * model(x).sum()).sum()

    one = train(model, loss)
    one.arguments = lambda index: (torch.randn(4, 8), torch.tensor(-1.0 if index == 2 else 1.0))
    return one


@case(planned=True)
def in_place_metadata() -> Case:
    model = nn.Linear(8, 8)
    return train(model, lambda x: (model(x).t_() * model(x).unsqueeze_(0).squeeze_(0).t()).sum())


@case(planned=True)
def gru() -> Case:
    model = nn.GRU(8, 8, batch_first=True)
    return train(model, lambda x: model(x.view(2, 2, 8))[0].square().sum())


@case(planned=True)
def lstm() -> Case:
    model = nn.LSTM(8, 8, num_layers=2, batch_first=True, bidirectional=True)
    return train(model, lambda x: model(x.view(2, 2, 8))[0].square().sum())


@case(planned=True)
def strides_that_the_capture_gets_wrong() -> Case:
    """The real `elu_backward` keeps the strides of its first operand, the fake one those of the second.

    By then `mul` is known on operands with those strides, where the capture was right.
    """
    model = nn.Linear(4, 4)
    one = train(model, lambda x: nn.functional.elu_((x * model.bias) * 2.0).contiguous().square().sum())
    one.arguments = lambda index: (torch.randn(2, 3, 4) if index < 2 else torch.randn(4, 3, 2).permute(2, 1, 0),)
    return one


@case(planned=True)
def frozen_layer_before_batch_norm() -> Case:
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    model[0].requires_grad_(False)
    return train(model, lambda x: model(x).square().sum())


@case(planned=True)
def written_out_to_an_empty_tensor() -> Case:
    model = nn.Linear(8, 8)

    def loss(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(0)
        torch.add(x, 1, out=out)
        return model(out).sum()

    return train(model, loss)


# -- random numbers --------------------------------------------------------------------------------------------------


@case(planned=True)
def checkpoint_with_dropout() -> Case:
    model = nn.Linear(8, 8)
    return train(model, lambda x: checkpoint(lambda y: dropout(model(y)).square(), x, use_reentrant=False).sum())


@case(planned=True)
def checkpoint_without_dropout() -> Case:
    model = nn.Linear(8, 8)
    return train(model, lambda x: checkpoint(lambda y: model(y).square(), x, use_reentrant=False).sum())


@case(planned=True)
def seeds_inside() -> Case:
    model = nn.Linear(8, 8)

    def loss(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return dropout(model(x)).sum()

    return train(model, loss)


@case(planned=False)
def own_generator() -> Case:
    model = nn.Linear(8, 8)
    generator = torch.Generator().manual_seed(5)
    return train(model, lambda x: (model(x) * torch.rand(4, 8, generator=generator)).sum())


# -- memory that moves or is shared ----------------------------------------------------------------------------------


@case(planned=True)
def parameter_data_at_another_offset() -> Case:
    model = nn.Linear(8, 8, bias=False)
    home = torch.randn(4, 64)
    model.weight.data = home[0].view(8, 8)
    one = train(model, lambda x: model(x).square().sum(), lr=1e-3)

    def between(index: int) -> None:
        model.weight.data = home[index].view(8, 8)

    one.between, one.watched = between, [home]
    return one


@case(planned=True)
def shared_by_data_and_then_not() -> Case:
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model[1].weight.data = model[0].weight.data
    one = train(model, lambda x: model(x).square().sum(), lr=1e-3)

    def between(index: int) -> None:
        if index == 2:
            model[1].weight.data = model[1].weight.data.clone()

    one.between = between
    return one


@case(planned=False)
def conjugated_input() -> Case:
    model = nn.Linear(8, 8)
    one = train(model, lambda x: (model(x.real) * x.imag).sum())
    one.arguments = lambda index: (torch.randn(4, 8, dtype=torch.complex64).conj(),)
    return one


@case(planned=True)
def input_written_in_place() -> Case:
    model = nn.Linear(8, 8)
    return train(model, lambda x: model(x.mul_(2)).sum())


@case(planned=False)
def parameter_data_assigned_inside() -> Case:
    model = nn.Linear(8, 8)

    def function(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().sum()
        loss.backward()
        for parameter in model.parameters():
            parameter.data = parameter.data - 0.01 * parameter.grad
            parameter.grad = None
        return loss.detach()

    return Case(model, function)


@case(planned=True)
def parameters_updated_by_hand() -> Case:
    model = nn.Linear(8, 8)

    def function(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().sum()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.01)
                parameter.grad = None
        return loss.detach()

    return Case(model, function)


@case(planned=True)
def average_kept_beside_the_model() -> Case:
    model = nn.Linear(8, 8)
    average = [parameter.detach().clone() for parameter in model.parameters()]
    one = train(model, lambda x: model(x).square().sum())
    step = one.function

    def function(x: torch.Tensor) -> torch.Tensor:
        value = step(x)
        with torch.no_grad():
            for mean, parameter in zip(average, model.parameters(), strict=True):
                mean.lerp_(parameter, 0.1)
        return value

    one.function, one.watched = function, average
    return one


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen * 0.9 + x.detach().mean(0)
        return self.inner(x + self.seen)


@case(planned=True)
def buffer_replaced_in_forward() -> Case:
    model = Remembers()
    return train(model, lambda x: model(x).square().sum())


# -- optimizers and gradients ----------------------------------------------------------------------------------------


@case(planned=True)
def two_optimizers() -> Case:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizers = [torch.optim.Adam(model[0].parameters(), lr=0.01), torch.optim.AdamW(model[2].parameters(), lr=0.02)]

    def function(x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().sum()
        loss.backward()
        for optimizer in reversed(optimizers):
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return Case(model, function, optimizers)


@case(planned=True)
def optimizer_that_was_not_passed() -> Case:
    model = nn.Linear(8, 8)
    one = train(model, lambda x: model(x).square().sum())
    optimizer = torch.optim.Adam(model.parameters())
    step = one.function

    def function(x: torch.Tensor) -> torch.Tensor:
        value = step(x)
        optimizer.step()
        return value

    one.function = function
    return one


@case(planned=True)
def gradient_for_an_outside_tensor() -> Case:
    model = nn.Linear(8, 8)
    extra = torch.ones(8, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        extra.grad = None
        return (model(x) * extra).square().sum()

    one = train(model, loss)
    one.watched = [extra]
    return one


@pytest.mark.parametrize("name", CASES)
def test_equal_to_eager(name):
    make, planned = CASES[name]
    expected, _ = record(make, compiled=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got, step = record(make, compiled=True)
    for index, (a, b) in enumerate(zip(expected, got, strict=True)):
        for part, x, y in zip(PARTS, a, b, strict=True):
            assert same(x, y), f"{part} of call {index}"
    said = [str(w.message) for w in caught if "lowtide" in str(w.message)]
    if planned:
        assert step.stats()["eager_calls"] == 0, said
    else:
        assert step.stats()["calls"] == 0 and len(said) == 1, said


def test_a_result_that_still_needs_its_backward_pass_is_refused():
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def function(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        return model(x).square().sum()  # nobody has been backward through this one

    step = lowtide.compile(function, model=model, optimizer=optimizer, on_unsupported="raise")
    with pytest.raises(lowtide.CaptureError, match="still needs its backward pass"):
        step(torch.randn(4, 8))


def test_autograd_outside_notices_what_a_step_has_written():
    model = nn.Linear(4, 4)
    double = lowtide.compile(lambda x: x.mul_(2), model=model, on_unsupported="raise")
    weight = torch.ones(4, requires_grad=True)
    x = torch.ones(4)
    product = (weight * x).sum()
    with torch.no_grad():
        double(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_a_call_that_fails_in_eager_too_does_not_give_the_step_up():
    model = nn.Linear(8, 8)
    step = lowtide.compile(lambda x: model(x), model=model)
    with torch.no_grad():
        with pytest.raises(RuntimeError):
            step(torch.randn(4, 9))
        step(torch.randn(4, 8))
    assert step.stats()["calls"] == 1


def test_memory_profiler_still_sees_allocations():
    lowtide.measure().__enter__().__exit__(None, None, None)
    with torch.profiler.profile(profile_memory=True) as profile:
        kept = torch.ones(1_000_000)
    assert any(event.self_cpu_memory_usage >= 4_000_000 for event in profile.key_averages())
    del kept
