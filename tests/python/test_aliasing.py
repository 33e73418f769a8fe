"""Tensors that share memory: what a step reads through one name depends on what it writes through another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from both_ways import Run, equal_both_ways, perceptron, plain, state_of

WIDTH = 64  # so wide that the planner has reason to move calls around
STEPS = 4


def wide() -> nn.Sequential:
    return perceptron(WIDTH, WIDTH, WIDTH)


def batch() -> torch.Tensor:
    return torch.randn(3, WIDTH)


def read_around_the_update(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[..., Any]:
    """Reads its second argument before and after the update."""

    def step(x: torch.Tensor, other: torch.Tensor) -> Any:
        optimizer.zero_grad()
        out = model(x)
        before = (other * 2).sum()
        loss = out.pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), before, (other + 0).mean()

    return step


def weight_as_argument(run: Run) -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = run.wrap(read_around_the_update(model, optimizer), model, optimizer)
    for _ in range(STEPS):
        run.note(step(batch(), model[0].weight.detach()), state_of(model))


def rows_of_weight_as_argument(run: Run) -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = run.wrap(read_around_the_update(model, optimizer), model, optimizer)
    for index in range(STEPS):
        run.note(step(batch(), model[0].weight.data[8 * (index % 2) :][:8]), state_of(model))


def weight_as_argument_from_the_third_call_on(run: Run) -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step = run.wrap(read_around_the_update(model, optimizer), model, optimizer)
    for index in range(STEPS + 2):
        other = torch.randn(WIDTH, WIDTH) if index in (0, 1, 4) else model[0].weight.detach()
        run.note(step(batch(), other), state_of(model))


def momentum_as_argument(run: Run) -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    step = run.wrap(read_around_the_update(model, optimizer), model, optimizer)
    run.note(step(batch(), torch.randn(WIDTH, WIDTH)))
    for _ in range(STEPS):
        run.note(step(batch(), optimizer.state[model[0].weight]["momentum_buffer"]), state_of(model, optimizer))


def weight_written_through_an_argument(run: Run) -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor, weight: torch.Tensor) -> Any:
        big = x.repeat(64, 1) @ model[0].weight.t().detach()  # reads it before
        with torch.no_grad():
            weight.mul_(0.5)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), big.sum()

    compiled = run.wrap(step, model, optimizer)
    for _ in range(STEPS):
        run.note(compiled(batch(), model[0].weight.data), state_of(model))


def gradient_as_argument(run: Run) -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor, gradient: torch.Tensor) -> Any:
        before = gradient.norm()
        loss = model(x).pow(2).mean()
        loss.backward()
        after = gradient.norm()
        optimizer.step()
        return loss.detach(), before, after

    compiled = run.wrap(step, model, optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(STEPS):
        run.note(compiled(batch(), model[0].weight.grad), state_of(model))


def one_tensor_twice(run: Run) -> None:
    model = wide()

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        before = (y.repeat(32, 1) * 2).sum()
        x.mul_(2)
        return before, model(y + 1), y.sum()

    compiled = run.wrap(step, model)
    with torch.no_grad():
        for index in range(STEPS + 2):
            x = batch()
            y = batch() if index in (0, 4) else x
            run.note(compiled(x, y), x, y)


def overlapping_slices(run: Run) -> None:
    model = wide()

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        before = (y.repeat(32, 1) * 2).sum()
        x.add_(1.0)
        return before, model(y * 3)

    compiled = run.wrap(step, model)
    with torch.no_grad():
        for index in range(STEPS):
            rows = torch.randn(8, WIDTH)
            run.note(compiled(rows[index : index + 3], rows[index + 1 : index + 4]), rows)


def slices_that_are_only_read(run: Run) -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = run.wrap(step, model, optimizer)
    for index in range(STEPS):
        rows = torch.randn(8, WIDTH)
        run.note(compiled(rows[index : index + 3], rows[index + 1 : index + 4]), state_of(model))


def closure_tensor_as_argument(run: Run) -> None:
    model = wide()
    average = torch.zeros(3, WIDTH)

    def step(x: torch.Tensor, other: torch.Tensor) -> Any:
        before = (other.repeat(32, 1) * 2).sum()
        average.mul_(0.9).add_(x, alpha=0.1)
        return before, model(other + x)

    compiled = run.wrap(step, model)
    with torch.no_grad():
        for index in range(STEPS + 2):
            run.note(compiled(batch(), average if index % 2 else batch()), average)


def one_numpy_array_under_two_tensors(run: Run) -> None:
    model = wide()

    def step(x: torch.Tensor, y: torch.Tensor) -> Any:
        before = model(y)
        x.add_(1.0)
        return before, model(y)

    compiled = run.wrap(step, model)
    with torch.no_grad():
        for _ in range(STEPS):
            rows = batch().numpy()
            run.note(compiled(torch.from_numpy(rows), torch.from_numpy(rows)))


def teacher_as_argument_and_in_a_list(run: Run) -> None:
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    teacher = [parameter.detach().clone() for parameter in model.parameters()]

    def step(x: torch.Tensor, weights: list[torch.Tensor]) -> Any:
        optimizer.zero_grad()
        hidden = nn.functional.linear(x, weights[0], weights[1]).relu()
        target = nn.functional.linear(hidden, weights[2], weights[3])
        loss = (model(x) - target).pow(2).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for average, parameter in zip(teacher, model.parameters(), strict=True):
                average.lerp_(parameter, 0.5)
        return loss.detach(), target, [weight.sum() for weight in weights]

    compiled = run.wrap(step, model, optimizer)
    for index in range(STEPS + 1):
        weights = teacher if index else [parameter.detach() for parameter in model.parameters()]
        run.note(compiled(batch(), weights), teacher, state_of(model))


PLANNED = [
    weight_as_argument,
    rows_of_weight_as_argument,
    weight_as_argument_from_the_third_call_on,
    weight_written_through_an_argument,
    gradient_as_argument,
    one_tensor_twice,
    overlapping_slices,
    slices_that_are_only_read,
    closure_tensor_as_argument,
    teacher_as_argument_and_in_a_list,
]


@pytest.mark.parametrize("scenario", PLANNED, ids=lambda one: one.__name__)
def test_arguments_that_share_memory_are_planned(scenario: Callable[[Run], None]) -> None:
    assert equal_both_ways(scenario).eager == 0


@pytest.mark.parametrize("scenario", [momentum_as_argument, one_numpy_array_under_two_tensors])
def test_sharing_that_cannot_be_described_is_refused_by_name(scenario: Callable[[Run], None]) -> None:
    run = equal_both_ways(scenario)
    assert len(run.said) == 1
    assert "shares memory with" in run.said[0]


def test_sharing_is_a_guard_that_is_explained() -> None:
    model = wide()

    @lowtide.compile(model=model)
    def step(x: torch.Tensor, other: torch.Tensor) -> Any:
        out = model(x + other)
        x.mul_(2)
        return out + other

    with torch.no_grad():
        x = batch()
        step(x, batch())
        step(x, x[:])
        step(x, x[:])
    explained = step.explain_guards()
    assert "input1 shares memory with input2, and the step writes it" in explained
    assert step.stats()["captures"] == 2


# -- what the model keeps ----------------------------------------------------------------------------------------------


def flat_parameters(model: nn.Module) -> torch.Tensor:
    """Puts all parameters into one tensor, as some distributed optimizers do."""
    flat = torch.cat([parameter.data.reshape(-1) for parameter in model.parameters()])
    begin = 0
    for parameter in model.parameters():
        parameter.data = flat[begin : begin + parameter.numel()].view_as(parameter)
        begin += parameter.numel()
    return flat


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
@pytest.mark.parametrize("from_call", [0, 2])
def test_parameters_in_one_flat_tensor(optimizer: str, from_call: int) -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        opt = getattr(torch.optim, optimizer)(model.parameters(), 0.1)
        step = run.wrap(plain(model, opt), model, opt)
        flat = torch.zeros(1)
        for index in range(5):
            if index == from_call:
                flat = flat_parameters(model)
            run.note(step(torch.randn(3, 8)), state_of(model, opt), flat)

    assert equal_both_ways(scenario).eager == 0


def test_a_buffer_that_is_part_of_a_parameter() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)
            self.register_buffer("rows", self.linear.weight.data[3:])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) + self.rows.sum()

    def scenario(run: Run) -> None:
        model = Model()
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        train = plain(model, optimizer)
        step = run.wrap(lambda x: ((model.rows * 2).sum(), train(x), model.rows.mean()), model, optimizer)
        for _ in range(STEPS):
            run.note(step(batch()), state_of(model, optimizer))

    assert equal_both_ways(scenario).eager == 0


@pytest.mark.parametrize("zero_last", [True, False])
def test_parameters_that_are_tied_by_their_data_later_on(zero_last: bool) -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        train = plain(model, optimizer)

        def step(x: torch.Tensor) -> torch.Tensor:
            loss = train(x)
            if zero_last:
                optimizer.zero_grad()
            return loss

        compiled = run.wrap(step, model, optimizer)
        for index in range(6):
            if index == 2:
                model[2].weight.data = model[0].weight.data
                model[4].weight.data = model[0].weight.data
            if index == 4:
                model[2].weight.data = model[0].weight.data.clone()
            run.note(compiled(torch.randn(3, 8)), state_of(model, optimizer))

    assert equal_both_ways(scenario).eager == 0


def test_gradients_in_one_flat_tensor() -> None:
    def scenario(run: Run) -> None:
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        flat = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
        begin = 0
        for parameter in model.parameters():
            parameter.grad = flat[begin : begin + parameter.numel()].view_as(parameter)
            begin += parameter.numel()

        def step(x: torch.Tensor) -> Any:
            optimizer.zero_grad(set_to_none=False)
            loss = model(x).pow(2).mean()
            loss.backward()
            norm = flat.norm()
            optimizer.step()
            return loss.detach(), norm

        compiled = run.wrap(step, model, optimizer)
        for _ in range(STEPS):
            run.note(compiled(torch.randn(3, 8)), state_of(model, optimizer), flat)

    assert equal_both_ways(scenario).eager == 0


def test_states_that_share_memory_are_updated_by_the_optimizer_itself() -> None:
    def scenario(run: Run) -> None:
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        step = run.wrap(plain(model, optimizer), model, optimizer)
        for index in range(5):
            if index == 2:
                one = optimizer.state[model[0].weight]["momentum_buffer"]
                optimizer.state[model[1].weight]["momentum_buffer"] = one
            run.note(step(torch.randn(3, 8)), state_of(model, optimizer))

    run = equal_both_ways(scenario)
    assert run.planned == 5 and not run.said
    assert "optimizer.step() runs eagerly" in run.steps[0].explain_guards()


def test_slices_seen_as_another_dtype_begin_where_they_begin() -> None:
    """Offsets count elements, and those of a view have another size."""

    def scenario(run: Run) -> None:
        model = nn.Linear(2, 4)
        step = run.wrap(lambda x: (torch.view_as_complex(x).abs(), x.view(torch.int16).sum(), model(x)), model)
        rows = torch.randn(64, 2)
        with torch.no_grad():
            for index in (0, 2, 5):
                run.note(step(rows[index : index + 4]))

    run = equal_both_ways(scenario)
    assert (run.error, run.eager) == ("", 0)
