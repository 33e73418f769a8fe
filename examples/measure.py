"""Trains a small network twice, eager and planned, and compares losses, memory and plan.

python examples/measure.py
"""

import torch
from torch import nn

import lowtide

STEPS = 20


def train(planned: bool) -> tuple[list[float], int]:
    """Losses of every step, and the most bytes that were allocated at once."""
    torch.manual_seed(0)
    with lowtide.measure() as used:
        model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, 10))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        if planned:
            step = lowtide.compile(step, model=model, optimizer=optimizer)
        losses = [step(torch.randn(256, 64), torch.randint(10, (256,))).item() for _ in range(STEPS)]
        if planned:
            print(step.graph.summary())
            print(step.plan.summary())
    return losses, used.peak_bytes


eager_losses, eager_bytes = train(planned=False)
planned_losses, planned_bytes = train(planned=True)
assert eager_losses == planned_losses, "not one bit may differ"
print(f"eager {eager_bytes} bytes, planned {planned_bytes} bytes, last loss {planned_losses[-1]:.4f}")
