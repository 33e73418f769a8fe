"""A step trains bit for bit as in eager in whatever order its operators run, however far from the program's."""

from typing import Any

import pytest
import torch
from torch import nn

from lowtide import _core, compiling
from step_models import Side, pair, pair_of, run_both, same, small_batches

ORDERS = [name for name, _ in _core.order_algorithms() if name not in ("program", "model_program")]


class ParallelDropouts(nn.Module):
    """Four random masks that depend on nothing but the input: only the random state orders them."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.3)) for _ in range(4))
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(sum(branch(x) for branch in self.branches))


class SharedNorm(nn.Module):
    """One batch norm applied twice, side by side: its running statistics are written twice."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(16, 32), nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.norm(self.left(x))) + torch.tanh(self.norm(self.right(x))))


class TiedWeights(nn.Module):
    """One weight used three times, updated in place after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.inner(x))
        return self.head(self.inner(x) + torch.relu(x) @ self.inner.weight)


def classify(model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.fixture(params=ORDERS)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The order of every step that is compiled."""
    plan = _core.plan
    monkeypatch.setattr(
        compiling._core, "plan", lambda graph, **options: plan(graph, **(options | {"order": request.param}))
    )
    return str(request.param)


def check(eager: Side, planned: Side, batches: list[Any]) -> None:
    for index, batch in enumerate(batches):
        assert same(*run_both(eager, planned, index, *batch))
        assert same(eager.state(), planned.state())
    assert planned.step.stats()["misses"] == 0


@pytest.mark.parametrize("make", [ParallelDropouts, SharedNorm, TiedWeights])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_models_with_hidden_ties(order: str, make: type[nn.Module], optimizer: str) -> None:
    torch.manual_seed(0)
    eager, planned = pair_of(make(), optimizer, classify)
    check(eager, planned, [(torch.randn(8, 16), torch.randint(10, (8,))) for _ in range(3)])
    if order == "latest_first":
        assert planned.step.plan.order != list(range(len(planned.step.plan.order))), "nothing was moved"


@pytest.mark.parametrize("model", ["bert", "cnn"])
def test_whole_models(order: str, model: str) -> None:
    eager, planned = pair(model, "adam", small=True)
    check(eager, planned, [(batch,) for batch in small_batches(model, 2)])
