"""`torch.compile(backend="lowtide")`: the numbers of eager, bit for bit, however the passes follow one another."""

from __future__ import annotations

import copy
import gc
import io
import threading
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from backend_models import (
    MODELS,
    Convolutions,
    Deep,
    Language,
    Pair,
    Perceptron,
    bits,
    nothing_said,
    step,
    take_equal_times,
    vectors,
    words,
)


@pytest.mark.parametrize("name", MODELS)
def test_training_is_equal(name: str):
    model, make = MODELS[name]
    torch.manual_seed(0)
    pair = Pair(model())
    for _ in range(3):
        pair.both(step(make))
    regions = list(pair.together().regions)
    assert regions and all(region.planned_passes for region in regions)
    assert sum(region.misses + region.eager_passes for region in regions) == 0


@pytest.mark.parametrize("budget", [1.0, 0.7, 0.5, 0.3])
def test_training_is_equal_at_every_budget(budget: float, monkeypatch: pytest.MonkeyPatch):
    """At the smallest even random operators run again."""
    take_equal_times(monkeypatch)
    torch.manual_seed(0)
    pair = Pair(Deep(), memory_budget=budget)
    for _ in range(3):
        pair.both(step(lambda: vectors(512)))
    (region,) = pair.together().regions
    (sized,) = region.sizes()
    planned = sized.planned
    assert planned is not None and planned.need <= budget * sized.eager_bytes and region.misses == 0
    order, operators = planned.plan.order, planned.lowered.operators
    again = [str(operators[index].target) for index in set(order) if order.count(index) > 1]
    assert again or budget == 1
    assert any("bernoulli" in target for target in again) == (budget == 0.3)


def two_forwards(first: bool) -> Any:
    def do(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> Any:
        optimizer.zero_grad()
        one, two = call(vectors()).square().mean(), call(vectors()).square().mean()
        for loss in (one, two) if first else (two, one):
            loss.backward()
        optimizer.step()
        return one, two

    return do


@pytest.mark.parametrize("first", [True, False])
def test_two_forwards_before_one_backward(first: bool):
    pair = Pair(Perceptron())
    for _ in range(3):
        pair.both(two_forwards(first))
        pair.both(step(vectors))
    (region,) = pair.together().regions
    assert [len(sized.planned.programs) for sized in region.sizes() if sized.planned] == [2]


def test_many_forwards_whose_losses_are_added():
    pair = Pair(Perceptron())

    def do(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(call(vectors(rows)).square().mean() for rows in (4, 4, 4, 4))
        loss.backward()
        return loss

    pair.both(do)
    pair.both(do)


def test_a_forward_whose_backward_never_comes_gives_its_place_back():
    pair = Pair(Perceptron())

    def lost(_: nn.Module, call: Any, __: torch.optim.Optimizer) -> torch.Tensor:
        return call(vectors()).detach()

    for _ in range(4):
        pair.both(lost)
        gc.collect()
        pair.both(step(vectors))
    (region,) = pair.together().regions
    (sized,) = region.sizes()
    assert sized.planned is not None and len(sized.planned.programs) == 1
    assert sized.runs() == []


def test_a_second_backward_of_a_graph_that_is_kept():
    pair = Pair(Perceptron())

    def do(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad()
        loss = call(vectors()).square().mean()
        loss.backward(retain_graph=True)
        call(vectors()).sum().backward()
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    for _ in range(2):
        pair.both(do)


def test_a_second_backward_of_a_graph_that_is_gone_is_pytorchs_error():
    compiled = torch.compile(Perceptron(), backend="lowtide")
    loss = compiled(vectors()).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_double_backward_is_refused_by_name():
    compiled = torch.compile(Perceptron(), backend="lowtide")
    x = vectors().requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()


def test_a_parameter_that_is_written_between_the_passes_is_refused():
    model = Perceptron()
    compiled = torch.compile(model, backend="lowtide")
    loss = compiled(vectors()).square().sum()
    with torch.no_grad():
        model.second.weight.add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace|changed in place"):
        loss.backward()


def test_what_only_a_plan_needs_again_is_watched_too():
    """A bias is needed where its operator runs again, and eager keeps no watch over it."""
    model = Deep()
    compiled = torch.compile(model, backend="lowtide", options={"memory_budget": 0.5})
    biases = [module.bias for module in model if isinstance(module, nn.Linear)]
    compiled(vectors(512)).square().sum().backward()
    loss = compiled(vectors(512)).square().sum()
    with torch.no_grad():
        for bias in biases:
            bias.add_(1)
    with pytest.raises(RuntimeError, match="was changed in place, or given other memory"):
        loss.backward()
    compiled(vectors(512)).square().sum().backward()


def test_inference_and_no_grad():
    pair = Pair(Convolutions())

    def look(model: nn.Module, call: Any, _: torch.optim.Optimizer) -> Any:
        x = torch.randn(4, 3, 12, 12)
        with torch.no_grad():
            trained = call(x)
        model.eval()
        with torch.inference_mode():
            found = call(x).clone()
        model.train()
        return trained, found

    for _ in range(2):
        pair.both(look)
        pair.both(step(lambda: torch.randn(4, 3, 12, 12)))


def test_eval_between_two_steps():
    pair = Pair(Language())

    def do(model: nn.Module, call: Any, _: torch.optim.Optimizer) -> torch.Tensor:
        model.eval()
        loss = call(words()).square().mean()
        loss.backward()
        model.train()
        return loss

    for _ in range(2):
        pair.both(step(words))
        pair.both(do)


@pytest.mark.parametrize("model", [Perceptron, Language])
def test_autocast(model: Any):
    pair = Pair(model())
    make = vectors if model is Perceptron else words

    def do(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = call(make()).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):
        pair.both(do)
        pair.both(step(make))


def test_accumulation_and_gradients_of_inputs():
    pair = Pair(Perceptron())

    def do(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> Any:
        optimizer.zero_grad()
        inputs = [vectors().requires_grad_() for _ in range(3)]
        for x in inputs:
            call(x).square().mean().backward()
        optimizer.step()
        return [x.grad for x in inputs]

    for _ in range(2):
        pair.both(do)


def test_sizes_that_change():
    pair = Pair(Language())
    for rows in (4, 3, 5, 4, 2, 3):
        pair.both(step(lambda rows=rows: words(rows)))
    sizes = [size for region in pair.together().regions for size in region.sizes()]
    assert len(sizes) == 4 or len(sizes) == 5


def test_a_size_that_is_marked_dynamic():
    pair = Pair(Perceptron())

    def make(rows: int) -> torch.Tensor:
        x = vectors(rows)
        torch._dynamo.mark_dynamic(x, 0)
        return x

    for rows in (4, 6, 4, 9):
        pair.both(step(lambda rows=rows: make(rows)))
    (region,) = pair.together().regions
    assert len(region.sizes()) == 3


def test_hooks_on_outputs():
    pair = Pair(Perceptron())

    def do(_: nn.Module, call: Any, __: torch.optim.Optimizer) -> Any:
        out, seen = call(vectors()), []
        out.register_hook(lambda gradient: (seen.append(gradient.clone()), gradient * 2)[1])
        out.retain_grad()
        out.square().sum().backward()
        return seen, out.grad

    pair.both(do)
    pair.both(do)


class Several(nn.Module):
    """Gives its input, views, one result twice, and what has no gradient; its input's gradient is the output's."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Parameter(torch.randn(16))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.first(x).exp()
        return y, y[:, :4], x, y.detach(), y + self.second, y


def test_outputs_of_every_kind():
    pair = Pair(Several())

    def do(model: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> Any:
        optimizer.zero_grad()
        out = call(vectors())
        (out[1].square().mean() + out[4].mean()).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.grad.mul_(2)  # no gradient shares its memory with another
        optimizer.step()
        return [*out, out[2].shape]

    for _ in range(3):
        pair.both(do)


class TwiceTheSame(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Parameter(torch.randn(4, 16)), nn.Parameter(torch.randn(4, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.one + self.two + x).tanh()


def test_one_gradient_for_two_parameters_is_not_shared():
    pair = Pair(TwiceTheSame())

    def do(model: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> Any:
        optimizer.zero_grad()
        call(vectors()).sum().backward()
        with torch.no_grad():
            model.one.grad.mul_(3)
        return model.two.grad

    for _ in range(2):
        pair.both(do)


def test_an_output_that_is_changed_in_place():
    pair = Pair(Perceptron())

    def do(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> Any:
        optimizer.zero_grad()
        out = call(vectors())
        out.mul_(3)
        out.square().mean().backward()
        return out

    for _ in range(2):
        pair.both(do)


def test_threads_have_places_of_their_own():
    models = [Perceptron(dropout=0.0) for _ in range(3)]
    compiled = [torch.compile(model, backend="lowtide", options={"on_unsupported": "raise"}) for model in models]
    batches = [vectors(64) for _ in models]
    expected = []
    for model, x in zip(models, batches, strict=True):
        twin = copy.deepcopy(model)
        twin(x).square().mean().backward()
        expected.append(bits([parameter.grad for parameter in twin.parameters()]))
    for call, x in zip(compiled, batches, strict=True):
        call(x)  # planned
    wrong: list[int] = []
    begin = threading.Barrier(len(models))

    def train(index: int) -> None:
        begin.wait()
        for _ in range(20):
            models[index].zero_grad()
            compiled[index](batches[index]).square().mean().backward()
            if bits([parameter.grad for parameter in models[index].parameters()]) != expected[index]:
                wrong.append(index)

    threads = [threading.Thread(target=train, args=(index,)) for index in range(len(models))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_one_model_on_two_threads():
    model = Perceptron(dropout=0.0)
    compiled = torch.compile(model, backend="lowtide")
    batches = [vectors(64), vectors(64)]
    expected = [bits(torch.autograd.grad(model(x).square().sum(), list(model.parameters()))) for x in batches]
    compiled(batches[0]).sum().backward()
    wrong: list[int] = []

    def differentiate(index: int) -> None:
        for _ in range(20):
            found = torch.autograd.grad(compiled(batches[index]).square().sum(), list(model.parameters()))
            if bits(found) != expected[index]:
                wrong.append(index)

    threads = [threading.Thread(target=differentiate, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_generators_that_interleave():
    """Two loops that take turns between forward and backward."""
    pair = Pair(Perceptron())

    def steps(call: Any) -> Any:
        for _ in range(3):
            loss = call(vectors()).square().mean()
            yield
            loss.backward()
            yield

    def do(_: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        for _turns in zip(steps(call), steps(call), strict=True):
            pass

    pair.both(do)
    pair.both(do)


def test_an_error_in_mid_step_leaves_the_region_usable():
    pair = Pair(Language())
    pair.both(step(words))
    for call in (pair.eager, pair.compiled):
        with pytest.raises(IndexError):
            call(words() + 1000)
    pair.both(step(words))
    (region,) = pair.together().regions
    assert all(sized.runs() == [] for sized in region.sizes())


def test_an_error_of_the_callers_between_the_passes():
    pair = Pair(Perceptron())

    def fails(_: nn.Module, call: Any, __: torch.optim.Optimizer) -> None:
        loss = call(vectors()).square().mean()
        loss.register_hook(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            loss.backward()

    for _ in range(2):
        pair.both(fails)
        pair.both(step(vectors))


def test_copies_and_pickles_of_a_compiled_module():
    model = Perceptron(dropout=0.0)
    compiled = torch.compile(model, backend="lowtide")
    x = vectors()
    compiled(x).sum().backward()
    copied = copy.deepcopy(compiled)
    stream = io.BytesIO()
    torch.save(compiled.state_dict(), stream)
    stream.seek(0)
    copied.load_state_dict(torch.load(stream))
    assert bits(copied(x)) == bits(model(x))
    copied(x).square().sum().backward()


def test_steps_of_compile_between_the_passes():
    """A step of `lowtide.compile` runs elsewhere while a region keeps the place at the arena's beginning."""
    model, other = Perceptron(dropout=0.0), Perceptron(dropout=0.0)
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    twin = copy.deepcopy(other)
    beside = torch.optim.SGD(twin.parameters(), 0.1)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    planned = lowtide.compile(lambda x: train(other, optimizer, x), model=other, optimizer=optimizer)
    compiled = torch.compile(model, backend="lowtide")
    x = vectors(64)
    expected = bits(torch.autograd.grad(model(x).square().sum(), list(model.parameters())))
    for _ in range(4):
        loss = compiled(x).square().sum()
        assert bits(planned(x)) == bits(train(twin, beside, x))
        assert bits(torch.autograd.grad(loss, list(model.parameters()))) == expected
        assert bits(planned(x)) == bits(train(twin, beside, x))
    assert planned.stats()["calls"] == 8


def test_it_is_quiet_where_all_is_planned():
    with nothing_said(), warnings.catch_warnings():
        pair = Pair(Perceptron())
        pair.both(step(vectors))
        pair.both(step(vectors))


def test_it_is_found_by_its_name():
    assert "lowtide" in torch._dynamo.list_backends()


def test_a_thread_runs_while_another_one_compiles():
    """PyTorch's compiler opens anomaly detection for all threads, without a look for NaN."""
    pair = Pair(Perceptron())
    pair.both(step(vectors))

    def do(model: nn.Module, call: Any, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            return step(vectors)(model, call, optimizer)

    pair.both(do)
    (region,) = pair.together().regions
    assert (region.planned_passes, region.eager_passes) == (4, 0)
