"""Small models with repeated blocks, and loops that train two copies side by side: adapted and plain."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import nn


class Block(nn.Module):
    """Attention and a wide layer, with dropout: bytes in the square of the length."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.dropout(torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1)) @ v
        return x + self.dropout(self.narrow(nn.functional.gelu(self.wide(x))))


class Texts(nn.Module):
    def __init__(self, blocks: int = 5, width: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, width)
        self.layers = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2)
        self.first = nn.Sequential(*(Residual(16) for _ in range(3)))
        self.between = nn.Conv2d(16, 24, 3, stride=2)
        self.second = nn.Sequential(*(Residual(24) for _ in range(2)))
        self.head = nn.Linear(24, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.second(self.between(self.first(self.stem(images)))).mean((2, 3)))


def texts(lengths: Iterable[int], seed: int = 0, samples: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(50, (samples, length), generator=generator) for length in lengths]


def random_lengths(count: int, low: int, high: int, seed: int = 0) -> list[int]:
    chance = random.Random(seed)
    return [chance.randint(low, high) for _ in range(count)]


def summed(model: nn.Module, batch: Any) -> torch.Tensor:
    return model(batch).square().sum()


def trained(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Callable[[nn.Module, Any], torch.Tensor] = summed,
    around: Callable[[Callable[[], torch.Tensor]], torch.Tensor] | None = None,
    every: int = 1,
) -> list[np.ndarray]:
    """Trains, with an update after `every` batches; gives losses and gradients by batch, then all that is left.

    Copies are NumPy's: tensors would count against the budget.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(0)
    seen = []
    for number, batch in enumerate(batches):

        def both(batch: Any = batch) -> torch.Tensor:
            scalar = loss(model, batch)
            scalar.backward()
            return scalar.detach()

        seen.append(copied(both() if around is None else around(both)))
        seen.extend(copied(p.grad) for p in model.parameters() if p.grad is not None)
        if (number + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
    seen.extend(copied(tensor) for tensor in model.state_dict().values())
    seen.append(copied(torch.rand(1)))
    return seen


def copied(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy().copy()


def assert_same_bits(ours: list[np.ndarray], plain: list[np.ndarray]) -> None:
    assert len(ours) == len(plain)
    for i, (a, b) in enumerate(zip(ours, plain, strict=True)):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), f"array {i} differs"


def twins(make: Callable[[], nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(1)
    model = make()
    return model, copy.deepcopy(model)
