"""A step trains bit for bit as in eager in whatever order its operators run, however far from the program's."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from given_orders import needs_of, plan_in_order, random_order
from lowtide import _core
from lowtide._base.graph_file import GraphFile
from lowtide._compile import compile as compiling
from step_models import LAYERS, Side, pair, pair_of, plain_step, run_both, same, small_batches

SEEDS = range(20 if os.environ.get("LOWTIDE_FULL") else 6)
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


@pytest.fixture(params=[*ORDERS, *SEEDS], ids=lambda order: f"random_{order}" if isinstance(order, int) else order)
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str | int:
    """The order of every step that is compiled: an algorithm's name, or the seed of a random one."""
    plan, order = _core.plan, request.param

    def plan_so(graph: _core.Graph, **options: Any) -> _core.Plan:
        if isinstance(order, int):
            return plan_in_order(graph, random_order(graph, order), tmp_path)
        return plan(graph, **(options | {"order": order}))

    monkeypatch.setattr(compiling._core, "plan", plan_so)
    return order


def check(eager: Side, planned: Side, batches: Iterable[Any]) -> None:
    for index, batch in enumerate(batches):
        assert same(*run_both(eager, planned, index, batch))
        assert same(eager.state(), planned.state())
    assert planned.step.stats()["misses"] == 0


@pytest.mark.parametrize("make", [ParallelDropouts, SharedNorm, TiedWeights])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_models_with_hidden_ties(order: str | int, make: type[nn.Module], optimizer: str) -> None:
    torch.manual_seed(0)
    eager, planned = pair_of(make(), optimizer, plain_step)
    check(eager, planned, [{"x": torch.randn(8, 16), "y": torch.randint(10, (8,))} for _ in range(5)])
    if isinstance(order, int) or order == "latest_first":
        assert planned.step.plan.order != list(range(len(planned.step.plan.order))), "nothing was moved"


@pytest.mark.parametrize("model", ["bert", "cnn"])
def test_whole_models(order: str | int, model: str) -> None:
    eager, planned = pair(model, "adam", small=True, layers=LAYERS)
    check(eager, planned, small_batches(model, 2))


def test_random_orders_are_allowed_and_differ(tmp_path: Path) -> None:
    """So does `verify` say, of orders made without the planner's own account of what depends on what."""
    model = ParallelDropouts()
    optimizer = torch.optim.Adam(model.parameters())
    example = {"x": torch.randn(8, 16), "y": torch.randint(10, (8,))}
    graph = lowtide.capture(plain_step(model, optimizer), model=model, optimizer=optimizer, example=(example,))
    orders = [random_order(graph, seed) for seed in range(100)]
    for order in orders:
        assert plan_in_order(graph, order, tmp_path).order == order
    assert len(set(map(tuple, orders))) == 100
    assert random_order(graph, 7) == orders[7]


def test_a_missing_dependency_is_refused(tmp_path: Path) -> None:
    """Each pair that the graph's file orders is ordered for `verify` too."""
    builder = _core.GraphBuilder()
    weight = builder.buffer(64, resident=True, initial=True, role="parameter", name="weight")
    made = builder.buffer(64, resident=False, initial=False, role="activation", name="made")
    read = builder.value(weight, "float32", [16])
    builder.op("read", [read], [made])
    builder.op("change", [], [weight], mutating=True)
    builder.op("draw", [], [], random=True)
    builder.op("draw again", [], [], random=True)
    graph = builder.build()
    assert needs_of(GraphFile(graph)) == [set(), {0}, set(), {2}]
    for order in ([1, 0, 2, 3], [0, 1, 3, 2]):
        with pytest.raises(lowtide.InvalidPlanError):
            plan_in_order(graph, order, tmp_path)
    assert plan_in_order(graph, [2, 0, 3, 1], tmp_path).order == [2, 0, 3, 1]
