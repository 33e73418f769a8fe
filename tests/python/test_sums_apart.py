"""Means as a sum and a division: the bits of PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import lowtide

aten = torch.ops.aten


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int32 if tensor.dtype == torch.float32 else torch.int64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows, classes", [(1, 3), (7, 11), (513, 1000), (4096, 37)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [1, 5, 10**6])
def test_losses(dtype, rows, classes, weighted, ignored):
    scores = torch.randn(rows, classes, dtype=dtype).log_softmax(1)
    target = torch.randint(classes, (rows,))
    target[::ignored] = -100
    weight = torch.rand(classes, dtype=dtype) if weighted else None
    mean, count = aten.nll_loss_forward(scores, target, weight, 1, -100)
    total, same = aten.nll_loss_forward(scores, target, weight, 2, -100)
    assert torch.equal(bits(mean), bits(total / same)), "also where nothing counts"
    assert torch.equal(count, same)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1,), (7, 11), (1000, 50), (3, 5, 7, 11), (4, 3, 100, 100)])
def test_means(dtype, shape):
    x = torch.randn(shape, dtype=dtype)
    everything = list(range(len(shape)))
    total = aten.sum.dim_IntList(x, everything, False)
    assert torch.equal(bits(x.mean()), bits(aten.div.Scalar(total, x.numel())))
    for dim in everything:
        total = aten.sum.dim_IntList(x, [dim], True)
        assert torch.equal(bits(x.mean(dim, keepdim=True)), bits(aten.div.Scalar(total, shape[dim])))


class Head(nn.Module):
    """Logits of a vocabulary that is large beside everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4096, bias=False)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(torch.tanh(self.body(x))), target)


def trained(memory_budget: float | None, *, allow_inexact: bool = False, keep_grads: bool | None = False):
    torch.manual_seed(0)
    model = Head()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x, target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = step
    if memory_budget is not None:
        run = lowtide.compile(
            step,
            model=model,
            optimizer=optimizer,
            memory_budget=memory_budget,
            keep_grads=keep_grads,
            allow_inexact=allow_inexact,
        )
    losses = [run(torch.randn(256, 16), torch.randint(4096, (256,))) for _ in range(4)]
    return run, losses, [parameter.detach().clone() for parameter in model.parameters()]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))


def test_a_budget_below_the_largest_operator_is_kept_in_parts():
    _, expected, weights = trained(None)
    with pytest.warns(RuntimeWarning, match="not kept while .* was planned") as said:
        step, losses, found = trained(0.3, allow_inexact=True)
    assert [each.filename for each in said] == [__file__]  # once, and not of the steps
    stats = step.stats()
    assert stats["planned_bytes"] <= stats["budget_bytes"] < step.graph.operand_bound_bytes
    assert stats["operators_in_parts"] > 4
    assert stats["misses"] == 0 and not stats["escapes"]
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(found, weights, rtol=1e-5, atol=1e-7)


def test_exact_parts_have_the_same_bits():
    _, expected, weights = trained(None)
    with pytest.warns(RuntimeWarning, match="not kept while .* was planned"):
        step, losses, found = trained(0.55)
    stats = step.stats()
    assert stats["operators_in_parts"] == stats["exact_in_parts"] > 0
    assert stats["planned_bytes"] <= stats["budget_bytes"]
    assert all(torch.equal(one, other) for one, other in zip([*losses, *found], [*expected, *weights], strict=True))


def test_the_error_says_what_would_keep_the_budget():
    with pytest.raises(lowtide.InfeasibleError) as raised:
        trained(0.3)
    assert any("allow_inexact=True would keep it" in note for note in raised.value.__notes__)
    with pytest.raises(lowtide.InfeasibleError) as raised:
        trained(0.01, allow_inexact=True)
    assert any("tried in parts" in note for note in raised.value.__notes__)
