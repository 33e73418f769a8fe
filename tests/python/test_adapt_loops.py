"""Loops that are not one forward and one backward pass after the other: the same bits, and budgets that stay true."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from adapt_models import Block, Images, Texts, assert_same_bits, copied, random_lengths, summed, texts, trained, twins

LENGTHS = random_lengths(20, 10, 60)


def gradients(model: nn.Module, batch: torch.Tensor, passes: Any) -> list[Any]:
    torch.manual_seed(3)
    passes(model, batch)
    found = [copied(p.grad) for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    return found


def twice(model: nn.Module, batch: torch.Tensor) -> None:
    loss = summed(model, batch)
    loss.backward(retain_graph=True)
    loss.backward()


def two_losses(model: nn.Module, batch: torch.Tensor) -> None:
    result = model(batch)
    result[:, 0].sum().backward(retain_graph=True)
    result[:, 1].square().sum().backward()


def penalty(model: nn.Module, batch: torch.Tensor) -> None:
    loss = summed(model, batch)
    slopes = torch.autograd.grad(loss, [model.head.weight, model.layers[0].wide.weight], create_graph=True)
    (loss + sum(slope.square().sum() for slope in slopes)).backward()


@pytest.mark.parametrize("passes", [twice, two_losses, penalty])
def test_several_backward_passes(passes: Any) -> None:
    model, plain = twins(lambda: Texts(3))
    with lowtide.adapt(model, memory_budget="1GiB"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in texts(LENGTHS):
            assert_same_bits(gradients(model, batch, passes), gradients(plain, batch, passes))


def test_several_backward_passes_with_running_statistics() -> None:
    model, plain = twins(Images)
    with lowtide.adapt(model, memory_budget="1GiB", shelter=100):
        for size in (20, 30, 24):
            image = torch.rand(2, 3, size, size)
            assert_same_bits(gradients(model, image, twice), gradients(plain, image, twice))
    assert_same_bits([copied(b) for b in model.buffers()], [copied(b) for b in plain.buffers()])


def test_parameters_that_are_lent() -> None:
    """`functional_call` has others in the forward pass than there are in the backward pass."""
    model, plain = twins(lambda: Texts(3))

    def lent(model: nn.Module, batch: torch.Tensor) -> list[Any]:
        torch.manual_seed(3)
        others = {name: (2 * p).detach().requires_grad_() for name, p in model.named_parameters()}
        loss = torch.func.functional_call(model, others, (batch,)).square().sum()
        return [copied(g) for g in torch.autograd.grad(loss, list(others.values()))]

    with lowtide.adapt(model, memory_budget="1GiB"):
        for batch in texts(LENGTHS):
            assert_same_bits(lent(model, batch), lent(plain, batch))


def test_gradients_of_functions() -> None:
    model, plain = twins(lambda: Texts(2))
    batch = texts([20])[0]

    def slopes(model: nn.Module) -> list[Any]:
        torch.manual_seed(3)
        parameters = dict(model.named_parameters())
        found = torch.func.grad(lambda p: torch.func.functional_call(model, p, (batch,)).sum())(parameters)
        return [copied(slope) for slope in found.values()]

    with lowtide.adapt(model, memory_budget="1GiB"):
        assert_same_bits(slopes(model), slopes(plain))


@pytest.mark.parametrize("evaluates", [True, False])
def test_evaluation_between_batches_does_not_count(evaluates: bool) -> None:
    model, _ = twins(Texts)
    long = torch.randint(50, (16, 200))
    with lowtide.adapt(model, memory_budget="3MiB") as adapter:
        for batch in texts([*LENGTHS, *LENGTHS]):
            summed(model, batch).backward()
            model.zero_grad()
            with torch.no_grad():
                model.train(not evaluates)(long)  # takes far more than the budget
            model.train()
        adapter.end()
        records = list(adapter.history.records)
    assert all(record.peak_bytes <= record.budget_bytes for record in records)
    assert records[-1].dropped < 5 and not records[-1].sheltered
    assert adapter.stats()["mean_error"] < 0.01


def test_blocks_that_are_called_without_the_model() -> None:
    model, plain = twins(Texts)

    def loss(model: Any, batch: torch.Tensor) -> torch.Tensor:
        x = model.embedding(batch)
        for layer in model.layers:
            x = layer(x)
        return x.square().sum()

    with (
        lowtide.adapt(model, memory_budget="1GiB"),
        pytest.warns(UserWarning, match="called while no batch is under way"),
    ):
        ours = trained(model, texts(LENGTHS[:4]), loss)
    assert_same_bits(ours, trained(plain, texts(LENGTHS[:4]), loss))


# -- preflight --------------------------------------------------------------------------------------------------------


class Remembers(nn.Module):
    """Replaces a buffer outside of all blocks, and counts in place in another."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = Texts(2)
        self.register_buffer("last", torch.zeros(2))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result = self.texts(tokens)
        self.last = result.detach().mean(0)
        self.calls += 1
        return result


def fails(model: nn.Module) -> None:
    summed(model, texts([20])[0]).backward()
    raise RuntimeError("the loss is bad")


def test_preflight_puts_back_what_it_changed_even_if_it_fails() -> None:
    model, _ = twins(Remembers)
    summed(model, texts([12])[0]).backward()
    before = [copied(t) for t in (*model.state_dict().values(), *(p.grad for p in model.parameters()))]
    held = [id(p.grad) for p in model.parameters()]
    state = torch.get_rng_state()
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        adapter.preflight(texts([20])[0])
        with pytest.raises(RuntimeError, match="the loss is bad"):
            adapter.preflight(lambda: fails(model))
        with pytest.raises(ValueError, match="saw no call"):
            adapter.preflight(lambda: None)
    assert_same_bits(before, [copied(t) for t in (*model.state_dict().values(), *(p.grad for p in model.parameters()))])
    assert held == [id(p.grad) for p in model.parameters()]
    assert torch.equal(torch.get_rng_state(), state)


def test_preflight_does_not_count_gradients_that_are_there() -> None:
    model, _ = twins(lambda: Texts(3, 64))
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        needed = adapter.preflight(texts([20])[0])
        summed(model, texts([20])[0]).backward()
        assert adapter.preflight(texts([20])[0]) == pytest.approx(needed, rel=0.02)


def test_preflight_refuses_where_memory_runs_out() -> None:
    model, _ = twins(Texts)
    budget = 5 * sum(p.numel() * 4 for p in model.parameters())
    with (
        lowtide.adapt(model, memory_budget=budget, enforce=True) as adapter,
        pytest.raises(lowtide.InfeasibleError, match=r"E304.* a batch of \[4, 400\] needs at least"),
    ):
        adapter.preflight(texts([400])[0])


# -- what is around a model -------------------------------------------------------------------------------------------


def test_what_cannot_be_adapted_is_refused() -> None:
    model, _ = twins(Texts)
    with lowtide.adapt(model, memory_budget="1GiB"), pytest.raises(ValueError, match="the Texts is adapted already"):
        lowtide.adapt(nn.Sequential(model), memory_budget="1GiB", blocks=Block)
    with pytest.raises(ValueError, match="DataParallel"):
        lowtide.adapt(nn.DataParallel(model), memory_budget="1GiB")
    with pytest.raises(ValueError, match=r"is compiled; lowtide\.compile plans those"):
        lowtide.adapt(torch.compile(model), memory_budget="1GiB")  # type: ignore[arg-type]
    compiled = copy.deepcopy(model)
    compiled.layers[0].compile()
    with pytest.raises(ValueError, match="the Block is compiled"):
        lowtide.adapt(compiled, memory_budget="1GiB")
