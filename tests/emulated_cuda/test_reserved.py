"""A memory budget in bytes is over all that PyTorch's caching allocator reserves on the device."""

import gc
import warnings

import pytest
import torch
from torch import nn

import lowtide

MIB = 1 << 20
STEPS = 4


def whole_mib():
    """What other tests have left on the device."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() // MIB


@pytest.fixture(autouse=True)
def base(monkeypatch, tmp_path, bytes_stay):
    monkeypatch.setenv("LOWTIDE_QUIET", "1")
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path))
    return whole_mib()


class Deep(nn.Module):
    """Activations of 8 MiB in each of twelve layers, over small weights."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(256, 256) for _ in range(12))

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def train(budget=None, planned=False, before_steps=lambda: None):
    """Losses and weights, on the CPU; the most that was reserved; and the step's figures."""
    torch.manual_seed(0)
    model = Deep().cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = lowtide.compile(step, model=model, optimizer=optimizer, memory_budget=budget) if planned else step
    batch = torch.randn(8192, 256).cuda()
    before_steps()
    losses = [run(batch)]
    torch.cuda.reset_peak_memory_stats()
    losses += [run(batch) for _ in range(STEPS - 1)]
    most = torch.cuda.max_memory_reserved()
    found = [tensor.detach().cpu() for tensor in [*losses, *model.parameters()]]
    if not planned:
        return found, most, {}
    stats = run.stats()
    run.close()
    return found, most, stats


@pytest.fixture(scope="module")
def eager():
    """What eager leaves behind, and the MiB that it reserves."""
    before = whole_mib()
    expected, most, _ = train()
    return expected, most // MIB - before


def check(eager, budget, before_steps=lambda: None):
    """Trains within the budget: eager's numbers, no warning, nothing above it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, most, stats = train(f"{budget}MiB", planned=True, before_steps=before_steps)
    assert all(map(torch.equal, eager[0], found))
    assert (stats["eager_calls"], stats["misses"]) == (0, 0)
    assert most <= budget * MIB
    assert most >= (budget - 0.2 * eager[1]) * MIB, "what may be had is used"


def test_a_budget_is_over_what_is_reserved(eager, base):
    check(eager, base + int(0.7 * eager[1]))


def test_other_tensors_of_the_process_count(eager, base):
    others = torch.zeros(24 * MIB, dtype=torch.uint8, device="cuda")
    check(eager, base + 24 + int(0.7 * eager[1]))
    assert others.sum() == 0


def test_what_the_allocator_only_keeps_is_given_back(eager, base):
    def evaluate():
        torch.zeros(400 * MIB, dtype=torch.uint8, device="cuda")

    check(eager, base + int(0.7 * eager[1]), before_steps=evaluate)


def test_an_arena_that_grows_leaves_nothing_behind(base):
    """The second batch is larger, and so is its arena."""
    model = Deep().cuda()
    step = lowtide.compile(lambda x: model(x).sum(), model=model, memory_budget=f"{base + 120}MiB")
    with torch.no_grad():
        for rows in (4096, 12 * 1024):
            batch = torch.randn(rows, 256, device="cuda")
            assert torch.equal(step(batch), model(batch).sum())
            torch.cuda.empty_cache()
            arena = step.stats()["arena_bytes"]
            assert step(batch).isfinite()
    assert torch.cuda.memory_reserved() <= (base + 120) * MIB
    assert arena > 20 * MIB
    step.close()


def test_a_budget_that_is_too_small_says_what_is_set_aside(base):
    others = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(lowtide.InfeasibleError) as caught:
        train(f"{base + 80}MiB", planned=True)
    assert any("PyTorch's allocator has on the device beside the step" in note for note in caught.value.__notes__)
    assert others.sum() == 0


def test_a_budget_that_is_not_kept_is_told_of(base):
    """Another tensor comes after the plan was made."""
    model = Deep().cuda()
    step = lowtide.compile(lambda x: model(x).sum(), model=model, memory_budget=f"{base + 100}MiB")
    batch = torch.randn(8192, 256, device="cuda")
    with torch.no_grad():
        step(batch)
        others = torch.zeros(100 * MIB, dtype=torch.uint8, device="cuda")
        with pytest.warns(RuntimeWarning, match="memory_budget is not kept"):
            step(batch)
        with pytest.raises(lowtide.InfeasibleError):
            step(batch)
    assert others.sum() == 0
    step.close()
