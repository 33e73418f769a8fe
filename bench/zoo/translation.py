"""Networks that turn one sequence into another: PyTorch's own transformer, and recurrent layers."""

from __future__ import annotations

import math

import torch
from torch import nn


class Translator(nn.Module):
    """Vaswani et al. 2017 on nn.Transformer; one embedding serves source, target and output."""

    def __init__(self, classes: int, width: int = 512, heads: int = 8, layers: int = 6, longest: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.transformer = nn.Transformer(width, heads, layers, layers, 4 * width, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("positions", _sinusoids(longest, width), persistent=False)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        scaled = self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(scaled + self.positions[: tokens.shape[1]])

    def forward(self, source: torch.Tensor, target: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        length = target.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        decoded = self.transformer(
            self.embed(source), self.embed(target),
            tgt_mask=future, tgt_is_causal=True, src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return decoded @ self.embedding.weight.T


def _sinusoids(length: int, width: int) -> torch.Tensor:
    rates = torch.exp(-math.log(10000.0) * torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


class Seq2Seq(nn.Module):
    """Sutskever et al. 2014: the state in which one stack of nn.LSTM leaves the source starts another."""

    def __init__(self, classes: int, source_classes: int | None = None, width: int = 1024, layers: int = 3) -> None:
        super().__init__()
        self.source = nn.Embedding(source_classes or classes, width)
        self.target = nn.Embedding(classes, width)
        self.encoder = nn.LSTM(width, width, layers, dropout=0.1, batch_first=True)
        self.decoder = nn.LSTM(width, width, layers, dropout=0.1, batch_first=True)
        self.head = nn.Linear(width, classes)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        _, state = self.encoder(self.source(source))
        decoded, _ = self.decoder(self.target(target), state)
        return self.head(decoded)
