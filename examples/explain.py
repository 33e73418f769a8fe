"""Says who holds the peak of a training step. Nothing is computed: the step is recorded on fake tensors.

python examples/explain.py
"""

import torch
from torch import nn

import lowtide


class Block(nn.Module):
    """Widens, bends and narrows again, beside a residual branch."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds what the branch makes."""
        return x + self.narrow(nn.functional.gelu(self.wide(x)))


model = nn.Sequential(nn.Embedding(5000, 256), *[Block(256) for _ in range(8)], nn.Linear(256, 5000, bias=False))
optimizer = torch.optim.Adam(model.parameters())


def train_step(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Forward, backward and update."""
    logits = model(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


batch = torch.randint(5000, (2, 16, 512))
graph = lowtide.capture(train_step, model=model, optimizer=optimizer, example=tuple(batch), device="A100")
print(lowtide.explain(graph, top=3))
