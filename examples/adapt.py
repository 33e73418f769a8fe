"""Batches of any length within one memory budget: `lowtide.adapt` in a plain loop.

    python examples/adapt.py

It also writes adapt.svg, a picture of memory by batch.
"""

import torch
from torch import nn

import lowtide


class Classifier(nn.Module):
    """A small transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        layers = (nn.TransformerEncoderLayer(64, 4, 256, batch_first=True) for _ in range(6))
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(64, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:  # noqa: D102
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def main() -> None:
    """Trains on batches of random length."""
    torch.manual_seed(0)
    model = Classifier()
    optimizer = torch.optim.AdamW(model.parameters())
    adapter = lowtide.adapt(model, memory_budget="24MiB", optimizer=optimizer)
    longest = torch.randint(1000, (8, 128))
    print(f"the longest batch needs at least {adapter.preflight(longest) / 2**20:.1f} MiB")
    for length in torch.randint(20, 129, (40,)).tolist():
        tokens, labels = torch.randint(1000, (8, length)), torch.randint(2, (8,))
        nn.functional.cross_entropy(model(tokens), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    adapter.close()
    print(adapter.history.records[-1].line())
    for name, value in adapter.stats().items():
        print(f"{name:20} {value:g}")
    adapter.plot("adapt.svg")


if __name__ == "__main__":
    main()
