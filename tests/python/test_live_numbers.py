"""Numbers of live Python that are others at every call become operands of one program."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import lowtide
from live_cases import Cases, check
from lowtide._live import numbers

cases = Cases()


@cases.add()
def has_another_weight_at_every_call(w, x):
    return w.train(w.loss(x) * (0.1 * w.calls))


@cases.add()
def has_several_numbers(w, x):
    y = w.model(x)
    warm = min(1.0, w.calls / 5)
    loss = y.pow(2).mean() + warm * y.abs().mean() - 0.1 * warm
    return w.train(loss / (w.calls + 2) + 1 / (w.calls + 1))


@cases.add()
def divides_by_a_count(w, x):
    return w.train(w.model(x).pow(2).sum() / (17 + 3 * w.calls))


@cases.add()
def has_integers_and_floats_in_turn(w, x):
    return w.train(w.loss(x) * (w.calls + 1 if w.calls % 2 else 0.5 * w.calls))


@cases.add()
def has_edges_among_its_numbers(w, x):
    return w.train(w.loss(x) * [0.3, 0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, 2.0][w.calls % 8])


@cases.add()
def has_numbers_that_are_none(w, x):
    return w.loss(x).detach() * [0.5, math.inf, -math.inf, math.nan][w.calls % 4]


@cases.add()
def has_numbers_of_numpy(w, x):
    return w.train(w.loss(x) * np.float64(0.1 * w.calls))


@cases.add()
def has_its_number_on_the_left(w, x):
    y = w.model(x)
    return w.train((1.5 * w.calls - y).pow(2).mean() + (0.5 + w.calls) / (2 + y.pow(2).mean()))


@cases.add()
def changes_in_place(w, x):
    loss = w.loss(x) * 1
    loss *= 0.5 + w.calls
    loss += w.calls / 3
    loss -= w.calls / 7
    loss /= 1.5 + w.calls
    return w.train(loss)


@cases.add()
def averages_weights(w, x):
    if not w.seen:
        w.seen += [parameter.detach().clone() for parameter in w.model.parameters()]
    loss = w.train(w.loss(x))
    decay = 1 - 1 / (w.calls + 1)
    with torch.no_grad():
        for mean, parameter in zip(w.seen, w.model.parameters(), strict=True):
            mean.mul_(decay).add_(parameter, alpha=1 - decay)
    return loss


@cases.add()
def scales_in_half_precision(w, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (w.model(x) * (1 + w.calls / 8)).pow(2).mean()
    return w.train(loss)


@cases.add()
def scales_in_a_checkpoint(w, x):
    factor = 1 + w.calls / 8
    y = checkpoint(lambda z: (w.model(z) * factor).tanh(), x, use_reentrant=False)
    return w.train(y.pow(2).mean())


@cases.add()
def has_two_shapes(w, x):
    return w.train(w.loss(x[: 4 + 4 * (w.calls % 2)]) * (0.1 * w.calls))


@cases.add()
def accumulates_with_weights(w, x):
    w.optimizer.zero_grad()
    for part in x.chunk(2):
        (w.loss(part) * (1 / (1 + w.calls))).backward()
    w.optimizer.step()


@cases.add("some")
def departs_behind_a_number(w, x):
    loss = w.loss(x) * (0.1 * w.calls)
    if w.calls % 4 == 3:
        w.seen.append(type(loss.grad_fn).__name__)
    return w.train(loss)


@cases.add()
def raises_behind_a_number(w, x):
    loss = w.loss(x) * (0.1 * w.calls)
    loss.backward()
    if w.calls % 4 == 3:
        raise ValueError(w.calls)
    w.optimizer.step()
    return loss.detach()


@cases.add()
def negates_its_number(w, x):
    y = w.model(x)
    return w.train(torch.sub(y.pow(2).mean(), y.abs().mean(), alpha=0.1 * w.calls))


@cases.add()
def skips_what_is_too_large(w, x):
    loss = w.loss(x) * (0.1 * w.calls)
    if torch.isnan(loss) or loss > 0.3:
        return None
    return w.train(loss)


@cases.add()
def asks_for_a_value_before_a_number(w, x):
    loss = w.loss(x)
    w.seen.append(loss.item())
    return w.train(loss * (0.1 * w.calls))


@cases.add()
def asks_for_a_value_behind_a_number(w, x):
    loss = w.loss(x) * (0.1 * w.calls)
    w.seen.append(loss.item())
    return w.train(loss)


@torch.library.custom_op("lowtide_test::mul", mutates_args=())
def mul(x: torch.Tensor, weight: float) -> torch.Tensor:
    """Another operator of that name, which looks at its number."""
    return x * weight if weight > 0.3 else x + weight


mul.register_fake(lambda x, weight: torch.empty_like(x))


@cases.add()
def calls_another_operator_of_that_name(w, x):
    with torch.no_grad():
        return mul(w.model(x), 0.1 * w.calls)


@cases.add()
def has_numbers_beyond_those_of_pytorch(w, x):
    return w.train(w.loss(x) / (1 << (10 * w.calls + 1)))


@pytest.mark.parametrize("name", cases)
def test_numbers_are_those_of_eager(name: str) -> None:
    check(cases[name])


def test_one_capture_serves_all_numbers() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def train(x: torch.Tensor, weight: float) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum() * weight
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = lowtide.compile(train, model=model, optimizer=optimizer)
    for number in range(100):
        step(torch.ones(2, 4), number / 7)
    stats = step.stats()
    assert (stats["captures"], stats["eager_calls"]) == (2, 0)


def test_what_is_made_of_a_number_is_recorded_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "_ARITHMETIC", frozenset({torch.Tensor.pow}))  # makes one less of it, backwards
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.ones(2, 4)

    def train(weight: float) -> torch.Tensor:
        optimizer.zero_grad()
        model(x).abs().pow(weight).sum().backward()
        return model.weight.grad.clone()

    step = lowtide.compile(train, model=model, optimizer=optimizer)
    for weight in (2.5, 3.5, 4.5):
        assert torch.equal(step(weight), train(weight))
    assert (step.stats()["captures"], step.stats()["eager_calls"]) == (3, 1)
