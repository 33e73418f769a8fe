"""Networks that give every pixel a class: an encoder, a decoder, and long connections between them."""

from __future__ import annotations

import torch
from torch import nn


def _twice(channels: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    """Ronneberger et al. 2015, padded so that masks are as large as images."""

    def __init__(self, classes: int, width: int = 64, levels: int = 5) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels)]
        self.down = nn.ModuleList(_twice(*pair) for pair in zip([3, *widths], widths, strict=False))
        self.shrink, self.drop = nn.MaxPool2d(2), nn.Dropout()
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(_twice(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        passed = []
        for index, down in enumerate(self.down):
            x = down(self.shrink(x) if index else x)
            passed.append(x)
        x = self.drop(passed.pop())  # at the end of the contracting path
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat([passed.pop(), grow(x)], dim=1))
        return self.head(x)


class UNetPlusPlus(nn.Module):
    """Zhou et al. 2018: node (i, j) sees nodes (i, < j) and node (i + 1, j - 1); each node (0, > 0) gives a mask."""

    def __init__(self, classes: int, width: int = 32, levels: int = 5) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels)]
        self.levels = levels
        self.shrink = nn.MaxPool2d(2)
        self.grow, self.node = nn.ModuleDict(), nn.ModuleDict()
        for j in range(levels):
            for i in range(levels - j):
                if j:
                    self.grow[f"{i},{j}"] = nn.ConvTranspose2d(widths[i + 1], widths[i], 2, stride=2)
                channels = (j + 1) * widths[i] if j else [3, *widths][i]
                self.node[f"{i},{j}"] = _twice(channels, widths[i])
        self.heads = nn.ModuleList(nn.Conv2d(width, classes, 1) for _ in range(1, levels))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        rows: list[list[torch.Tensor]] = []
        for i in range(self.levels):
            rows.append([self.node[f"{i},0"](self.shrink(rows[i - 1][0]) if i else x)])
        for j in range(1, self.levels):
            for i in range(self.levels - j):
                grown = self.grow[f"{i},{j}"](rows[i + 1][j - 1])
                rows[i].append(self.node[f"{i},{j}"](torch.cat([*rows[i], grown], dim=1)))
        return [head(node) for head, node in zip(self.heads, rows[0][1:], strict=True)]
