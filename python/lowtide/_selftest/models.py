"""Small models of three kinds, each with a training step as people write it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

STEPS = 8  # of a run whose numbers are compared


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        inner: torch.Tensor = self.inner(self.between(x))
        return x + inner


def _transformer(size: int) -> nn.Module:
    layers = [_Attention(size) for _ in range(4)]
    return nn.Sequential(nn.Embedding(100, size), *layers, nn.LayerNorm(size), nn.Linear(size, 100))


def _convolutions(size: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, size // 4, 3, padding=1)]
    for _ in range(4):
        layers += [nn.BatchNorm2d(size // 4), nn.ReLU(inplace=True), nn.Conv2d(size // 4, size // 4, 3, padding=1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(size // 4, 10))


def _perceptron(size: int) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(size, 4 * size), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * size, size)]
    return nn.Sequential(*layers, nn.Linear(size, 10))


@dataclass(frozen=True)
class Kind:
    """A model, and batches for it, of a size: 64 is a second of a CPU."""

    make: Callable[[int], nn.Module]
    batch: Callable[[int, torch.Generator], tuple[torch.Tensor, torch.Tensor]]


def _rows(size: int, draws: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8 * size, size, generator=draws), torch.randint(10, (8 * size,), generator=draws)


def _images(size: int, draws: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(8, 3, size // 2, size // 2, generator=draws), torch.randint(10, (8,), generator=draws)


def _tokens(size: int, draws: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    given, wanted = torch.randint(100, (2, 16, size), generator=draws)
    return given, wanted


KINDS = {
    "perceptron": Kind(_perceptron, _rows),
    "convolutions": Kind(_convolutions, _images),
    "transformer": Kind(_transformer, _tokens),
}


class Training:
    """One model on a device, its optimizer, and all that its steps have left behind."""

    def __init__(self, kind: str, size: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self._kind, self._size, self._device = KINDS[kind], size, device
        self.model = self._kind.make(size).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.losses: list[torch.Tensor] = []

    def step(self, given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """The step that is planned, or runs as it is."""
        self.optimizer.zero_grad()
        out = self.model(given)
        loss = F.cross_entropy(out.flatten(0, -2), wanted.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def run(self, step: Callable[..., torch.Tensor], steps: int = STEPS) -> None:
        """Some steps, on the same batches each time this is called."""
        draws = torch.Generator().manual_seed(1)
        for _ in range(steps):
            batch = [tensor.to(self._device) for tensor in self._kind.batch(self._size, draws)]
            self.losses.append(step(*batch))

    def left(self) -> list[torch.Tensor]:
        """Losses, parameters, buffers, gradients and state, on the CPU."""
        state = [value for values in self.optimizer.state.values() for value in values.values()]
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        found = [*self.losses, *self.model.parameters(), *self.model.buffers(), *gradients, *state]
        return [tensor.detach().cpu() for tensor in found]
