"""The models of the papers at small size, trained on emulated CUDA: planned steps give eager's bits and keep budgets.

LOWTIDE_FULL=1 takes all of them, in every order in which numbers can be made.
"""

import os

import emulated_cuda
import pytest
import torch

import lowtide
from bench import zoo

STEPS = 5
FULL = os.environ.get("LOWTIDE_FULL") == "1"
NAMES = zoo.names() if FULL else ["alexnet", "gpt2"]
BUDGET_BATCH = 32  # of a smaller one, most bytes are weights and state, which no plan makes fewer
SPARE = 64 * 1024  # bytes of scalars beside a plan


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("LOWTIDE_QUIET", "1")
    monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(tmp_path))


def train(name, compiled, budget=None, batch=None):
    """What five steps leave behind, on the CPU; and the compiled step's figures, its last step's bytes among them."""
    job = zoo.build(name, batch=batch)
    model = job.model.train().cuda()
    torch.manual_seed(7)
    optimizer = torch.optim.AdamW(model.parameters())
    step = job.train_step(model, optimizer)
    if compiled:
        step = lowtide.compile(step, model=model, optimizer=optimizer, memory_budget=budget)
    losses, stats = [], {}
    for batch in job.batches(STEPS):
        batch = {key: value.cuda() for key, value in batch.items()}
        if compiled:
            torch.cuda.reset_peak_memory_stats()
            there = torch.cuda.memory_allocated()
        losses.append(step(batch))
        if compiled and len(losses) == STEPS:
            stats = step.stats()
            stats["beside_bytes"] = torch.cuda.max_memory_allocated() - there
    state = [value for values in optimizer.state.values() for value in values.values()]
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    left = [*losses, *model.parameters(), *model.buffers(), *gradients, *state]
    found = [tensor.detach().cpu() for tensor in left]
    if compiled:
        step.close()
    return found, stats


@pytest.mark.parametrize("late", [0, 1, 7] if FULL else [1], ids=lambda late: f"late_{late}")
@pytest.mark.parametrize("budget", [None, 0.6])
@pytest.mark.parametrize("name", NAMES)
def test_trains_as_in_eager(name, budget, late):
    batch = BUDGET_BATCH if budget else None
    with emulated_cuda.declared(late=late):
        expected, _ = train(name, compiled=False, batch=batch)
        try:
            found, stats = train(name, compiled=True, budget=budget, batch=batch)
        except lowtide.InfeasibleError as error:
            assert budget and "no plan needs less" in str(error), "it is proven that weights and state are too many"
            return
    assert len(expected) == len(found) and all(map(torch.equal, expected, found))
    assert (stats["calls"], stats["eager_calls"], stats["misses"]) == (STEPS, 0, 0)
    assert stats["beside_bytes"] <= stats["gradient_bytes"] + SPARE, "the arena was there before, gradients may be new"
    if budget:
        assert stats["planned_bytes"] <= stats["budget_bytes"]
