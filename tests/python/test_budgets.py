"""Budgets of `compile`: kept from the first step on, monotone, remembered, and refused with reasons."""

from __future__ import annotations

import copy

import pytest
import torch

import lowtide
from models import MODELS, plain_step
from step_models import same


def start(name: str = "bert", **budgets):
    make_model, make_batch = MODELS[name]
    torch.manual_seed(0)
    model = make_model(64) if name in ("bert", "gpt2") else make_model()
    batch = make_batch()
    optimizer = torch.optim.Adam(model.parameters())
    step = plain_step(model, optimizer)
    compiled = lowtide.compile(
        step, model=model, optimizer=optimizer, keep_grads=False, on_unsupported="raise", **budgets
    )
    return model, batch, optimizer, compiled


def eager_twin(model: torch.nn.Module):
    twin = copy.deepcopy(model)
    return twin, plain_step(twin, torch.optim.Adam(twin.parameters()))


@pytest.mark.parametrize("name", ["bert", "cnn"])
def test_the_first_step_is_within_the_budget(name):
    _, batch, _, free = start(name)
    torch.manual_seed(1)
    free(batch)
    needed = free.plan.resident_bytes + free.plan.arena_bytes
    operands = free.plan.resident_bytes + free.graph.operand_bound_bytes
    budget = (needed + operands) // 2 if name == "bert" else needed - (needed - operands) // 8

    model, batch, optimizer, step = start(name, memory_budget=budget)
    twin, eager = eager_twin(model)
    parameters = sum(t.nbytes for t in [*model.parameters(), *model.buffers(), *batch.values()])
    for seed in range(3):
        state = sum(v.nbytes for s in optimizer.state.values() for v in s.values())
        torch.manual_seed(seed)
        with lowtide.measure() as used:
            loss = step(batch)
        assert parameters + state + used.peak_bytes <= budget
        torch.manual_seed(seed)
        assert same(loss, eager(batch))
    assert same(list(model.parameters()), list(twin.parameters()))
    assert len(step.plan.order) > step.graph.num_ops  # some ops run again
    assert step.stats()["misses"] == 0
    step.close()
    free.close()


def test_a_smaller_budget_never_gives_a_faster_plan():
    _, batch, _, free = start("cnn")
    free(batch)
    graph, high = free.graph, free.plan.arena_bytes
    low = graph.operand_bound_bytes
    times = []
    for i in range(6):
        budget = graph.resident_bytes + high - (high - low) * i // 6
        try:
            plan = lowtide.plan(graph, memory_budget=budget)
        except lowtide.InfeasibleError:
            times.append(float("inf"))
            continue
        assert plan.resident_bytes + plan.arena_bytes <= budget
        times.append(plan.time_ns)
    assert times == sorted(times)
    slow = lowtide.plan(graph, latency_budget=free.plan.time_ns * 1.2 / 1e6)
    assert slow.arena_bytes <= high and slow.time_ns <= free.plan.time_ns * 1.2
    free.close()


def test_a_plan_is_made_once(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))
    plans = []
    for _ in range(2):
        _, batch, _, step = start("bert", memory_budget=0.8)
        step(batch)
        plans.append(step.plan)
        step.close()
    files = sorted((tmp_path / "plans").iterdir())
    assert len(files) == 1
    assert plans[0].order == plans[1].order and plans[0].arena_bytes == plans[1].arena_bytes
    files[0].write_bytes(b"nonsense")  # what cannot be read is made again
    _, batch, _, step = start("bert", memory_budget=0.8)
    step(batch)
    assert step.plan.order == plans[0].order
    step.close()


def test_a_budget_that_cannot_be_kept_says_why():
    _, batch, _, step = start("bert", memory_budget=1 << 20)
    with pytest.raises(lowtide.InfeasibleError) as raised:
        step(batch)
    error = raised.value
    assert error.bound_bytes > 1 << 20 and error.culprits
    assert "whatever runs again, no plan needs less than" in str(error)
    assert "modeling_bert.py:" in str(error) or "test_budgets.py:" in str(error)
