"""Batches of any length on emulated CUDA: eager's numbers, within a budget by PyTorch's own count."""

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lowtide

BATCHES = 24
WIDTH = 32


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, dropout=0.1, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + F.dropout(self.down(F.gelu(self.up(x))), 0.1, self.training)


class FeedForward(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(WIDTH, 8 * WIDTH), nn.GELU(), nn.Dropout(0.2), nn.Linear(8 * WIDTH, WIDTH))

    def forward(self, x):
        return x + super().forward(x)


class Convolution(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(2, 16), nn.GELU(), nn.Conv2d(16, 8, 1))

    def forward(self, x):
        return x + super().forward(x)


TASKS = {
    "attention": (Attention, lambda length: (16, length, WIDTH)),
    "feed_forward": (FeedForward, lambda length: (64 * length, WIDTH)),
    "convolution": (Convolution, lambda length: (4, 8, length, length)),
}


def train(task, budget=None):
    """What the batches leave behind, on the CPU, and the most bytes that PyTorch had allocated meanwhile."""
    block, shape_of = TASKS[task]
    torch.manual_seed(0)
    chance, draws = random.Random(1), torch.Generator().manual_seed(2)
    model = nn.Sequential(*[block() for _ in range(6)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    adapter = lowtide.adapt(model, memory_budget=budget, optimizer=optimizer) if budget else None
    torch.cuda.reset_peak_memory_stats()
    losses = []
    for _ in range(BATCHES):
        batch = torch.randn(shape_of(chance.randint(16, 64)), generator=draws).cuda()
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        del batch, loss
    most = torch.cuda.max_memory_allocated()
    if adapter:
        stats = adapter.stats()
        assert stats["dropped_share"] > 0
        most = max(most, stats["peak_bytes"])  # it begins peaks anew
        adapter.close()
    left = [*losses, *model.parameters(), *(parameter.grad for parameter in model.parameters())]
    return [tensor.detach().cpu() for tensor in left], most


@pytest.mark.parametrize("task", TASKS)
def test_budgets_are_kept_with_eagers_numbers(task, bytes_stay):
    torch.ones(8, 8, device="cuda").mm(torch.ones(8, 8, device="cuda"))  # cuBLAS has its workspace
    there = torch.cuda.memory_allocated()
    expected, most = train(task)
    budget = there + int(0.75 * (most - there))
    found, held = train(task, budget)
    assert held <= budget < most
    assert all(map(torch.equal, expected, found))
